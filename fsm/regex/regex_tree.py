"""The syntax tree of a regular expression: frozen nodes. `regex_syntax.py` parses patterns into it.

Nodes compare by identity: trees share parts, and a walk may cache its results by `id`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..text.unicode_sets import Intervals


@dataclass(frozen=True, slots=True, eq=False)
class CharSet:
    """One character out of sorted disjoint intervals."""

    intervals: Intervals


@dataclass(frozen=True, slots=True, eq=False)
class Plain:
    """These characters, one after the other."""

    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Concat:
    """Parts in order; none is the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Either:
    """Any of the options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Times:
    """The item between minimum and maximum times (None: no bound)."""

    item: Node
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Assertion:
    """`start`, `end`, `line_start`, `line_end`, `word_boundary` or `inside_word` (no word boundary).

    `intervals` are the word characters or the line breaks of the dialect, for the kinds that ask about them.
    """

    kind: str
    intervals: Intervals = ()


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A look-ahead or look-behind: consumes nothing, asks for (or forbids) `body` next to this place."""

    body: Node
    is_ahead: bool
    is_negative: bool


Node = CharSet | Plain | Concat | Either | Times | Assertion | Look


def children(node: Node) -> tuple[Node, ...]:
    """The nodes directly inside of another one."""
    if isinstance(node, (Concat, Either)):
        return node.parts if isinstance(node, Concat) else node.options
    return (node.item,) if isinstance(node, Times) else (node.body,) if isinstance(node, Look) else ()


def nodes_of(tree: Node) -> Iterator[Node]:
    """The tree and all nodes inside of it."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        pending += children(node)


OPTIONAL_BREAK = Times(CharSet(((10, 10),)), 0, 1)
PYTHON_END = Either((Assertion("end"), Look(Concat((OPTIONAL_BREAK.item, Assertion("end"))), True, False)))
"""What `$` is for Python: the end of the text, or just before a line break that is its last character."""
