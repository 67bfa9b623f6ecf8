"""White space and punctuation: the three layouts in which JSON is written, as ready-made expressions.

::

    compact    {"a":[1,2],"b":null}            json.dumps(separators=(",", ":"))
    spaced     {"a": [1, 2], "b": null}        json.dumps()
    flexible   one space, or a line break with up to 16 blanks, wherever JSON allows white space; never more
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..any_json import BLANK, Whitespace
from ..network.expression import (
    AnyOrder,
    Embed,
    Expression,
    Literal,
    Member,
    Parts,
    Repeat,
    Sequence,
    alternation,
)
from ..record import record
from ..regex.regex import regex_to_dfa
from ..text.literals import literal_dfa
from .texts import string_text


@record
class Layout:
    """Punctuation of one style. Functions return parts to be put into a `Sequence`.

    Attributes:
        spell_key: a key as it stands before its colon.
        braces: what stands around the members of an object.
        has_edges: brackets and commas of lists are edges, as of one whose items must differ (`Embed.is_edge`).
    """

    comma_text: bytes
    colon_text: bytes
    blank: Expression | None
    comma: Parts
    colon: Parts
    spell_key: Callable[[str], bytes]
    braces: tuple[bytes, bytes]
    has_edges: bool = False

    @classmethod
    def of(cls, comma: bytes, colon: bytes, blank: Expression | None) -> Layout:
        """The layout with these between two members or items, and between a key and its value."""
        if blank is None:
            return cls(comma, colon, None, (Literal(comma),), (Literal(colon),), _quoted, (b"{", b"}"))
        spaced = (blank, Literal(comma), blank), (blank, Literal(colon), blank)
        return cls(comma, colon, blank, *spaced, _quoted, (b"{", b"}"))

    @classmethod
    def bare(cls, joint: bytes, spell_key: Callable[[str], bytes]) -> Layout:
        """Members without braces and colons, with a text between two of them; only for `members` and their keys."""
        return cls(joint, b"", None, (Literal(joint),) if joint else (), (), spell_key, (b"", b""))

    def with_edges(self) -> Layout:
        """The same for lists that have no value twice."""
        blank = () if self.blank is None else (self.blank,)
        space = self.comma_text[1:]
        comma = (*blank, _edge(b","), *((Literal(space),) if space else ()), *blank)
        return replace(self, comma=comma, has_edges=True)

    def key(self, key: str, *, after_comma: bool = False) -> Parts:
        """A literal key with its colon, and with the comma before it."""
        if self.blank is None:
            comma = self.comma_text if after_comma else b""
            return (Literal(comma + self.spell_key(key) + self.colon_text),)
        comma_parts = self.comma if after_comma else ()
        return (*comma_parts, Literal(self.spell_key(key)), *self.colon)

    def head(self, key: str, value: Expression) -> tuple[bytes, Expression]:
        """A member as the bytes that distinguish it from others, and what follows them."""
        if self.blank is None:
            return self.spell_key(key) + self.colon_text, value
        return self.spell_key(key), Sequence((*self.colon, value))

    def members(self, parts: Parts, *, may_be_empty: bool) -> Expression:
        """The object with these members; `may_be_empty`: also with none."""
        return self.bracketed(self.braces[0], parts, self.braces[1], may_be_empty=may_be_empty)

    def no_members(self) -> Expression:
        """The object without members."""
        return self.empty(*self.braces)

    def bracketed(self, left: bytes, parts: Parts, right: bytes, *, may_be_empty: bool) -> Expression:
        """The brackets around members or items; `may_be_empty`: also with nothing in them."""
        inner: Expression = Sequence(parts) if len(parts) != 1 else parts[0]
        opening, closing = self._bracket(left), self._bracket(right)
        if self.blank is None:
            if may_be_empty:
                return Sequence((opening, Repeat(inner, 0, 1), closing))
            return Sequence((opening, *parts, closing))
        filled = Sequence((self.blank, inner, self.blank))
        body = alternation(filled, self.blank) if may_be_empty else filled
        return Sequence((opening, body, closing))

    def empty(self, left: bytes, right: bytes) -> Expression:
        """Brackets with nothing in them."""
        if self.blank is None:
            return Sequence((self._bracket(left), self._bracket(right))) if self.has_edges else Literal(left + right)
        return Sequence((self._bracket(left), self.blank, self._bracket(right)))

    def _bracket(self, text: bytes) -> Expression:
        return _edge(text) if self.has_edges else Literal(text)

    def constants(self, values: list[Any], *, mixes: bool) -> list[Expression]:
        """Values as they are written; only of a layout without blanks.

        Args:
            mixes: the members of an object come in any order.
        """
        write = json.JSONEncoder(ensure_ascii=False, separators=(self.comma_text.decode(), self.colon_text.decode()))
        if mixes:
            return [self._constant(value, write.encode) for value in values]
        return [Literal(write.encode(value).encode()) for value in values]

    def _constant(self, value: Any, write: Callable[[Any], str]) -> Expression:
        """A value whose objects have their members in any order: a literal if no object in it has two."""
        if type(value) is dict and value:
            items = [self._constant(item, write) for item in value.values()]
            if len(items) > 1:
                heads = map(self.head, value, items)
                members = tuple([Member(text, body, is_required=True) for text, body in heads])
                return self.members((AnyOrder(members, (), Sequence(self.comma)),), may_be_empty=False)
            (key,) = value
            return _joined([Literal(self.braces[0]), *self.key(key), *items, Literal(self.braces[1])])
        if type(value) is list:
            listed = [part for item in value for part in (*self.comma, self._constant(item, write))]
            return _joined([Literal(b"["), *listed[len(self.comma) :], Literal(b"]")])
        return Literal(write(value).encode())

    def listed(self, item: Parts, minimum: int, maximum: int | None) -> tuple[Parts, bool] | None:
        """Items with commas between them: the parts of one or more, and whether there may be none.

        None if there can be no item at all.
        """
        if maximum == 0:
            return None
        more = Repeat(Sequence((*self.comma, *item)), max(minimum - 1, 0), None if maximum is None else maximum - 1)
        return (*item, more), minimum == 0


@functools.cache
def _edge(text: bytes) -> Embed:
    """A bracket or a comma around values that must differ."""
    return Embed(literal_dfa([text.decode()]), is_edge=True)


def _joined(parts: list[Expression]) -> Expression:
    """The parts one after the other, as one literal if all of them are literals."""
    texts = [part.data for part in parts if isinstance(part, Literal)]
    return Literal(b"".join(texts)) if len(texts) == len(parts) else Sequence(tuple(parts))


def _quoted(key: str) -> bytes:
    return string_text(key).encode()


COMPACT = Layout.of(b",", b":", None)
SPACED = Layout.of(b", ", b": ", None)


@functools.cache
def layout_of(whitespace: Whitespace) -> Layout:
    """The layout of that name (one shared object)."""
    if whitespace == "flexible":
        return Layout.of(b",", b":", Embed(regex_to_dfa(BLANK)))
    return COMPACT if whitespace == "compact" else SPACED
