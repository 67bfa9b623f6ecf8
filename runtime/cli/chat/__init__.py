"""`phloem chat`: a conversation in the terminal, or by a pipe.

::

    command ──► session ──► commands      /help, /system, /schema …: what is done between two messages
                  │  │
                  │  └────► conversation  messages, constraint, the answer under way; asks the engine
                  │
                  ├─ input_line           a terminal's line: history, keys, completion
                  └─ transcript           what is shown: rendered by rich, or as plain text

Neither prompt_toolkit nor rich is imported where there is no terminal.
"""

from .command import chat as chat
