"""Where in a grammar text something is wrong: line and column, as editors count them."""

from __future__ import annotations

from ...errors import InvalidGrammar


def grammar_error(message: str, text: str, offset: int) -> InvalidGrammar:
    """The error with line and column (from 1) in its message and as `pointer`."""
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return InvalidGrammar(
        f"grammar, line {line}, column {column}: {message}", pointer=f"line {line}, column {column}", param="grammar"
    )
