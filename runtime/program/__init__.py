"""The DSL: generation programs over one engine.

::

    @function                            expression.py   what can be appended (api.py: the words that make it)
    def tip(s, topic):                   state.py        s: append and read
        s += user(topic)                 transcript.py   text and token ids, nothing tokenised twice
        s += assistant(gen("tip"))       interpreter.py  runs expressions in order, on a worker
    tip.run(topic="sleep")["tip"]        function.py     run, run_batch, bind

Uses the engine and the request types, and nothing below.
"""

from .api import (
    assistant,
    assistant_begin,
    assistant_end,
    gen,
    gen_int,
    gen_string,
    select,
    system,
    system_begin,
    system_end,
    user,
    user_begin,
    user_end,
)
from .choices import greedy_token_selection, token_length_normalized, unconditional_likelihood_normalized
from .expression import Expression
from .fork import ForkGroup
from .function import Program, function, set_default_backend
from .state import ProgramState

__all__ = [
    "Expression",
    "ForkGroup",
    "Program",
    "ProgramState",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "greedy_token_selection",
    "select",
    "set_default_backend",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
]
