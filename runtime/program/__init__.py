"""The DSL: generation programs over an engine in this process, or over a server.

::

    @function                            expression.py   what can be appended (api.py: the words that make it)
    def tip(s, topic):                   state.py        s: append and read
        s += user(topic)                 transcript.py   text and token ids, nothing tokenised twice
        s += assistant(gen("tip"))       interpreter.py  runs expressions in order, on a worker
    tip.run(topic="sleep")["tip"]        function.py     run, run_async, run_batch, bind
                                         typed.py        generate, extract: a value as one call
                                         backends/       servers that answer instead of an engine

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
from .backends.anthropic_api import Anthropic
from .backends.openai_api import OpenAI
from .backends.runtime import Runtime
from .backends.runtime_endpoint import RuntimeEndpoint
from .choices import greedy_token_selection, token_length_normalized, unconditional_likelihood_normalized
from .expression import Expression
from .fork import ForkGroup
from .function import Program, flush_cache, function, set_default_backend
from .state import ProgramState
from .typed import extract, generate

__all__ = [
    "Anthropic",
    "Expression",
    "ForkGroup",
    "OpenAI",
    "Program",
    "ProgramState",
    "Runtime",
    "RuntimeEndpoint",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "extract",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "generate",
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
