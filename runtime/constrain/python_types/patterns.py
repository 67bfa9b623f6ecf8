"""Patterns of strings: what pydantic's engines mean by one, where a JSON Schema would mean something else."""

from __future__ import annotations

import re
from typing import Any

from pydantic.json_schema import JsonSchemaValue

from .forms import refused

_FLAGS = {"I": re.IGNORECASE, "M": re.MULTILINE, "S": re.DOTALL, "X": re.VERBOSE, "A": re.ASCII}
_RUST_ONLY = re.compile(r"\[[^\]]*(&&|--|~~|\[)|\\[Az<>]|\\[pP][A-Za-z]|\\[xbuU]\{|\(\?[a-zA-Z-]*[-mxUR]")
"""Sets of sets, other anchors, short names of properties, and flags that change how a pattern is read."""


def pattern_or_refusal(pattern: Any, engine: str | None) -> JsonSchemaValue:
    """The pattern as a JSON Schema."""
    if isinstance(pattern, re.Pattern):
        flags = "".join(name for name, flag in _FLAGS.items() if pattern.flags & flag)
        if flags:
            return refused(f"the flags {flags} of a compiled pattern cannot be enforced; write out what they mean")
        return {"pattern": pattern.pattern}
    if engine != "python-re" and (found := _RUST_ONLY.search(pattern)) is not None:
        return refused(f"{found.group()!r} of the pattern {pattern!r} is read by pydantic alone; write it another way")
    return {"pattern": pattern}
