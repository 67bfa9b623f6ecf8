"""phloem: a prefix-caching LLM runtime with structured generation.

::

    import phloem as ph

    engine = ph.Engine()                                        # the bundled model; or a folder, or a hub id
    engine.generate("Hello", ph.SamplingParams(max_tokens=32)).text
    engine.generate(prompt, constraint=ph.json_schema(Person)).parsed

    @ph.function
    def tip(s, topic):
        s += ph.user(f"A tip about {topic}.") + ph.assistant(ph.gen("tip"))

    tip.run(topic="sleep", backend=engine)["tip"]

Names load their module on first use, so `import phloem` itself is cheap and needs no torch.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from phloem.errors import (
        ConfigError,
        ConstraintError,
        ConstraintTooLarge,
        DeadlineExceeded,
        EmptyLanguage,
        EngineStopped,
        InvalidGrammar,
        InvalidRegex,
        InvalidSchema,
        InvalidStructuralTag,
        ModelError,
        PhloemError,
        ProgramError,
        PromptTooLong,
        QueueFull,
        RequestError,
        UnsupportedSchema,
    )
    from phloem.faces.matcher import GrammarMatcher
    from phloem.faces.vocabulary import Vocabulary
    from phloem.fsm import Compiler
    from phloem.runtime.config import EngineConfig
    from phloem.runtime.constrain.spec import (
        ConstraintSpec,
        choice,
        grammar,
        json_object,
        json_schema,
        regex,
        structural_tag,
    )
    from phloem.runtime.engine.async_engine import AsyncEngine
    from phloem.runtime.engine.engine import Engine
    from phloem.runtime.engine.statistics import EngineStatistics
    from phloem.runtime.engine.stream import Stream
    from phloem.runtime.explain import explain
    from phloem.runtime.offload.kv_store import KVStore
    from phloem.runtime.program import (
        Anthropic,
        Expression,
        ForkGroup,
        OpenAI,
        Program,
        ProgramState,
        Runtime,
        RuntimeEndpoint,
        assistant,
        assistant_begin,
        assistant_end,
        extract,
        flush_cache,
        function,
        gen,
        gen_int,
        gen_string,
        generate,
        greedy_token_selection,
        select,
        set_default_backend,
        system,
        system_begin,
        system_end,
        token_length_normalized,
        unconditional_likelihood_normalized,
        user,
        user_begin,
        user_end,
    )
    from phloem.runtime.request import Completion, Delta, FinishReason, TokenLogprob, Usage
    from phloem.runtime.sampling_params import SamplingParams

_MODULE_OF = {
    **dict.fromkeys(
        (
            "ConfigError",
            "ConstraintError",
            "ConstraintTooLarge",
            "DeadlineExceeded",
            "EmptyLanguage",
            "EngineStopped",
            "InvalidGrammar",
            "InvalidRegex",
            "InvalidSchema",
            "InvalidStructuralTag",
            "ModelError",
            "PhloemError",
            "ProgramError",
            "PromptTooLong",
            "QueueFull",
            "RequestError",
            "UnsupportedSchema",
        ),
        "phloem.errors",
    ),
    "AsyncEngine": "phloem.runtime.engine.async_engine",
    "Compiler": "phloem.fsm",
    "Engine": "phloem.runtime.engine.engine",
    "EngineConfig": "phloem.runtime.config",
    "EngineStatistics": "phloem.runtime.engine.statistics",
    "Stream": "phloem.runtime.engine.stream",
    "SamplingParams": "phloem.runtime.sampling_params",
    "explain": "phloem.runtime.explain",
    "GrammarMatcher": "phloem.faces.matcher",
    "Vocabulary": "phloem.faces.vocabulary",
    "KVStore": "phloem.runtime.offload.kv_store",
    **dict.fromkeys(
        ("ConstraintSpec", "choice", "grammar", "json_object", "json_schema", "regex", "structural_tag"),
        "phloem.runtime.constrain.spec",
    ),
    **dict.fromkeys(("Completion", "Delta", "FinishReason", "TokenLogprob", "Usage"), "phloem.runtime.request"),
    **dict.fromkeys(
        (
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
        ),
        "phloem.runtime.program",
    ),
}

__all__ = [
    "Anthropic",
    "AsyncEngine",
    "Compiler",
    "Completion",
    "ConfigError",
    "ConstraintError",
    "ConstraintSpec",
    "ConstraintTooLarge",
    "DeadlineExceeded",
    "Delta",
    "EmptyLanguage",
    "Engine",
    "EngineConfig",
    "EngineStatistics",
    "EngineStopped",
    "Expression",
    "FinishReason",
    "ForkGroup",
    "GrammarMatcher",
    "InvalidGrammar",
    "InvalidRegex",
    "InvalidSchema",
    "InvalidStructuralTag",
    "KVStore",
    "ModelError",
    "OpenAI",
    "PhloemError",
    "Program",
    "ProgramError",
    "ProgramState",
    "PromptTooLong",
    "QueueFull",
    "RequestError",
    "Runtime",
    "RuntimeEndpoint",
    "SamplingParams",
    "Stream",
    "TokenLogprob",
    "UnsupportedSchema",
    "Usage",
    "Vocabulary",
    "__version__",
    "assistant",
    "assistant_begin",
    "assistant_end",
    "choice",
    "explain",
    "extract",
    "flush_cache",
    "function",
    "gen",
    "gen_int",
    "gen_string",
    "generate",
    "grammar",
    "greedy_token_selection",
    "json_object",
    "json_schema",
    "regex",
    "select",
    "set_default_backend",
    "structural_tag",
    "system",
    "system_begin",
    "system_end",
    "token_length_normalized",
    "unconditional_likelihood_normalized",
    "user",
    "user_begin",
    "user_end",
]


def __getattr__(name: str) -> Any:
    """Loads an exported name from its module the first time it is asked for."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'phloem' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


_found = importlib.util.find_spec("phloem._core")
if _found is None or _found.origin is None:  # the folder of that name holds types only
    raise ImportError(
        "phloem's C++ core is not compiled here: run `make demo`, or `python setup.py build_ext --inplace`"
    )
