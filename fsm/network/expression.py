"""The intermediate representation: what may be written, as rules over bytes.

Every front end (regex, choice, JSON Schema, grammar text) ends in a `Grammar`: named rules whose bodies are
trees of the eight node types below. The automaton reads nothing else.

::

    Literal(b'{"a":')      these bytes
    ByteSet(mask)          one byte b with bit b of the mask set
    Sequence((x, y))       x then y;        Sequence(()) is the empty text
    Alternation((x, y))    x or y;          Alternation(()) is nothing at all
    Repeat(x, 0, None)     x any number of times, or between minimum and maximum times
    Rule("value")          whatever the rule of that name writes; recursion is allowed
    Embed(language)        any text of a regular language given as a byte automaton
    AnyOrder(members, ..)  some of the members, each at most once, in any order, with separators between them

This module knows no tokens and no automata: a `Language` is only carried. Nodes are immutable and compare
by value, a language by identity, so sub-trees may be shared freely. Depth is bounded by memory alone, except for
hashing, comparing and printing, which are recursive in Python; `fsm` does none of these to a deep tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..record import record, value_record

if TYPE_CHECKING:
    from ..text.language import Language


@value_record
class Literal:
    """Exactly these bytes; `b""` is the empty text."""

    data: bytes


@value_record
class ByteSet:
    """One byte out of a set: byte b belongs to it if bit b of `mask` (0 <= mask < 2**256) is set."""

    mask: int


@value_record
class Sequence:
    """The parts one after the other."""

    parts: tuple[Expression, ...]


@value_record
class Alternation:
    """Any one of the options; none at all is the empty language."""

    options: tuple[Expression, ...]


@value_record
class Repeat:
    """`item` between `minimum` and `maximum` times (`None`: no upper bound)."""

    item: Expression
    minimum: int
    maximum: int | None


@value_record
class Rule:
    """A reference to a rule of the grammar by name."""

    name: str


@value_record
class Embed:
    """Any text of a regular language over bytes.

    Attributes:
        is_key: the texts are keys of an object, as JSON strings, and it has none of them twice (`written`).
        is_item: they are items of a list, as JSON strings, and it has none of them twice.
        is_owed: several such keys or items must be written, so that a shortest text has to have different ones.
        is_edge: they are a bracket or a comma of a list that has no value twice.
    """

    language: Language
    is_key: bool = False
    is_item: bool = False
    is_owed: bool = False
    is_edge: bool = False


@record
class Member:
    """One of the things that are written in any order: its own text, which sets it apart, then its body.

    Attributes:
        text: what it begins with; no other member begins with the same and ends there. `None`: the body alone, which
            must not be empty, and may be told from others only further on.
        is_required: it must be written.
        is_last: no `others` are written any more once it is; it has no text.
        implied: members (by index) that must be written if this one is; with all that these imply.
        excluded: members that cannot be written if this one or one that it implies is. Mutual, and a member is
            excluded by another also if one that it implies is.
    """

    text: bytes | None
    body: Expression
    is_required: bool = False
    implied: tuple[int, ...] = ()
    excluded: tuple[int, ...] = ()
    is_last: bool = False


@record
class AnyOrder:
    """At least one of the members and others, in any order, with the separator between two of them.

    Attributes:
        members: each is written at most once.
        others: alternatives, each of which may be written any number of times; none begins with the text of a member.
        separator: stands between two members.
        minimum, maximum: bounds on the number of members and others together (maximum `None`: no bound). With such
            bounds no member may imply or exclude another.
    """

    members: tuple[Member, ...]
    others: tuple[Expression, ...]
    separator: Expression
    minimum: int = 0
    maximum: int | None = None


Expression = Literal | ByteSet | Sequence | Alternation | Repeat | Rule | Embed | AnyOrder
Parts = tuple[Expression, ...]
"""Expressions one after another."""


@record
class CommonRule:
    """A rule that many grammars have, and that refers to no other: what is made of it is kept.

    The same rule is one object wherever it stands, so that it is known again.
    """

    name: str
    body: Expression


@value_record
class Grammar:
    """Rules by name and the rule to start from. Every `Rule` in a body must name a key of `rules`.

    Attributes:
        common: one of the rules, but not the one to start from.
        pointer_of: where a rule comes from, by its name, if that is a place in JSON.
    """

    rules: Mapping[str, Expression]
    start: str
    common: CommonRule | None = None
    pointer_of: Callable[[str], str] | None = None


EMPTY_TEXT = Sequence(())
NOTHING = Alternation(())


def literal(text: str | bytes) -> Literal:
    """The bytes of `text`, UTF-8 if it is a string."""
    return Literal(text.encode() if isinstance(text, str) else text)


def sequence(*parts: Expression) -> Expression:
    """The parts one after the other; a single part is itself."""
    return parts[0] if len(parts) == 1 else Sequence(parts)


def alternation(*options: Expression) -> Expression:
    """Any one of the options; a single option is itself."""
    return options[0] if len(options) == 1 else Alternation(options)


def optional(item: Expression) -> Repeat:
    """`item` or nothing."""
    return Repeat(item, 0, 1)
