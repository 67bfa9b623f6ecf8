"""What both notations of grammars are read with: tokens of the text, groups that are still open, and errors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ...errors import InvalidGrammar
from ..network.expression import Expression, alternation, sequence


class Token(NamedTuple):
    """A piece of the grammar's text and where it begins."""

    kind: str
    text: str
    offset: int


@dataclass(slots=True)
class Group:
    """An open bracket, or the body of a definition: finished alternatives, and the one being read."""

    offset: int
    closes_with: str = ""
    options: list[Expression] = field(default_factory=list)
    parts: list[Expression] = field(default_factory=list)
    repeatable: bool = False  # whether the last part may still get a repetition

    def close_option(self) -> None:
        """Ends the alternative that is being read."""
        self.options.append(sequence(*self.parts))
        self.parts = []
        self.repeatable = False

    def expression(self) -> Expression:
        """Ends the group: any of its alternatives."""
        self.close_option()
        return alternation(*self.options)


def grammar_error(message: str, text: str, offset: int) -> InvalidGrammar:
    """The error with line and column, as editors count them (from 1), in its message and as `pointer`."""
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return InvalidGrammar(
        f"grammar, line {line}, column {column}: {message}", pointer=f"line {line}, column {column}", param="grammar"
    )
