"""`phloem chat`: a conversation in the terminal, or by a pipe.

::

    command ──► commands    each line is a message, or a command: /help, /system, /schema …
                  └────────► session                what is known between two lines; one message and its answer
                               ├─ conversation      messages, constraint, the answer under way; asks the engine
                               └─ a view            transcript: by rich; plain_transcript: as plain text

    input_line    a terminal's line: history, keys, completion

Neither prompt_toolkit nor rich is imported where there is no terminal.
"""

from .command import chat as chat
