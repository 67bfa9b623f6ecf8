"""The page of the Python interface: every public name of phloem, from its docstring, by Sphinx's autodoc."""

from __future__ import annotations

import inspect

import phloem as ph

GROUPS = {
    "Engines": "Engine AsyncEngine Stream EngineConfig EngineStatistics SamplingParams",
    "What an engine answers": "Completion Delta FinishReason TokenLogprob Usage",
    "Constraints": "json_schema json_object regex choice grammar structural_tag ConstraintSpec explain",
    "The constraint engine": "Vocabulary Compiler GrammarMatcher",
    "Values in one call": "generate extract",
    "Programs": "function Program ProgramState ForkGroup Expression",
    "What a program says": "gen gen_int gen_string select system system_begin system_end user user_begin user_end"
    " assistant assistant_begin assistant_end greedy_token_selection token_length_normalized"
    " unconditional_likelihood_normalized",
    "Backends of programs": "set_default_backend flush_cache Runtime RuntimeEndpoint OpenAI Anthropic",
    "A store for keys and values": "KVStore",
    "Errors": "PhloemError ConfigError ModelError RequestError PromptTooLong QueueFull DeadlineExceeded EngineStopped"
    " ConstraintError InvalidSchema UnsupportedSchema InvalidRegex InvalidGrammar InvalidStructuralTag EmptyLanguage"
    " ConstraintTooLarge ProgramError",
}
_MADE_ONLY = ("RuntimeEndpoint", "OpenAI", "Anthropic", "Expression", "ConstraintSpec")  # their methods are for phloem
_HEAD = """# Python interface

All public names of `phloem`: `import phloem as ph`, then `ph.Engine` and so on. What is not on this page is internal
and may change at any time. Each name loads its module on first use.
"""


def api_page() -> str:
    """The page as MyST. Raises if a public name is in no group."""
    grouped = {name for names in GROUPS.values() for name in names.split()}
    if odd := grouped ^ (set(ph.__all__) - {"__version__"}):
        raise ValueError(f"GROUPS in {__file__} and phloem.__all__ differ: {', '.join(sorted(odd))}")
    parts = [_HEAD]
    for title, names in GROUPS.items():
        directives = "\n".join(_directive(name) for name in names.split())
        parts.append(f"\n## {title}\n\n````{{eval-rst}}\n.. currentmodule:: phloem\n\n{directives}\n````\n")
    return "".join(parts)


def _directive(name: str) -> str:
    value = getattr(ph, name)
    if inspect.isclass(value) and issubclass(value, BaseException):
        return f".. autoexception:: {name}\n   :show-inheritance:\n   :no-members:\n"
    if name in _MADE_ONLY:
        return f".. autoclass:: {name}\n"
    if inspect.isclass(value):
        members = ":members:\n   :undoc-members:\n   :inherited-members: object, str, tuple, Enum"
        return f".. autoclass:: {name}\n   {members}\n"
    if inspect.isfunction(value):
        return f".. autofunction:: {name}\n"
    return f".. py:data:: {name}\n\n   A value of `choices_method`: how `select` compares the choices.\n"
