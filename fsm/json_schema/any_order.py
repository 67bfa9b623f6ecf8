"""Objects whose keys may come in any order, as `AnyOrder`s: one per mode of the conditions (see `conditions`).

Keys that are not named may stand anywhere. The exception are witnesses (keys that must exist among the unnamed ones,
`not: {additionalProperties: ..}`): after one of them only named keys and other witnesses may follow, so that no
repetition of its key can undo it.

Where the values of a key are distinguished (`variants`), each variant is a member, and excludes the others. A set tells
its members apart by their texts: a constant belongs to the text of its member, so all but one variant of a key have to
be constants::

    "kind":"a"    and nothing more             implies size
    "kind":       any string but "a" and "b"
"""

from __future__ import annotations

from itertools import combinations

from ...errors import ConstraintTooLarge, UnsupportedSchema
from ..network.expression import (
    EMPTY_TEXT,
    Alternation,
    AnyOrder,
    Embed,
    Expression,
    Literal,
    Member,
    Sequence,
    alternation,
)
from ..record import record
from ..text.language import Language
from .conditions import REMEDY, Mode, modes
from .layout import Layout
from .others import Cell, Witnesses, as_owed
from .parts import Clause
from .schema_order import SchemaOrder
from .shape import Shape
from .texts import error_at

MAX_WITNESSES = 4
MAX_PAIRS = 4_000
"""Most pairs of variants that exclude each other, of all keys of one shape."""

MAX_CONSTANTS = 64
MAX_LOOKS = 4_000
"""Most constants of one variant that are looked for, and most bytes of them."""

Head = tuple[str, bytes, Expression]
"""A member: its name among the clauses, the text that tells it from others, and what follows."""


@record
class AnyKeyOrder:
    """Writes shapes; those in which no two orders are possible are left to `in_order`."""

    layout: Layout
    in_order: SchemaOrder

    def written(self, shape: Shape) -> Expression | None:
        """The objects of a shape; None if there are none."""
        required = shape.required
        impossible = frozenset([key for key, value in shape.members if value is None])
        is_plain = required is not None and shape.others.choices is None
        if is_plain and len(shape.members) - len(impossible) + bool(shape.others.cells) <= 1:
            return self.in_order.written(shape)
        counted = shape.minimum > 0 or shape.maximum is not None or shape.others.count is not None
        if required is None:
            apart = _apart(shape)
            found = modes(frozenset([one | apart for one in shape.clauses]), impossible, counted, shape.pointer)
        else:
            found = [Mode(frozenset(required), impossible, {}, {})] if impossible.isdisjoint(required) else []
        options: list[Expression] = []
        may_be_empty = False
        for mode in found:
            for witnesses in ((),) if shape.others.choices is None else shape.others.choices:
                option = self._members(shape, mode, witnesses)
                may_be_empty = may_be_empty or not (mode.required or shape.minimum or witnesses)
                options += [] if option is None else [option]
        if options:
            return self.layout.members((alternation(*options),), may_be_empty=may_be_empty)
        return self.layout.no_members() if may_be_empty else None

    def _members(self, shape: Shape, mode: Mode, witnesses: Witnesses) -> Expression | None:
        """One member or more; None if that cannot be."""
        keys = [(key, value) for key, value in shape.members if value is not None and key not in mode.forbidden]
        maximum = shape.maximum
        if shape.others.count is not None:  # no more can be written than there are
            most = len({shape.key_of.get(name, name) for name, _ in keys}) + shape.others.count
            maximum = most if maximum is None else min(maximum, most)
        missing = shape.minimum - len(mode.required) - len(witnesses)
        spare = None if maximum is None else maximum - len(mode.required) - len(witnesses)
        if spare is not None and spare < max(missing, 0):
            return None
        if len(witnesses) > MAX_WITNESSES or (witnesses and missing > 0):
            raise error_at(
                UnsupportedSchema, shape.pointer, "minProperties (or too many conditions) on keys that are not named"
            )
        head = self.layout.head
        required, implied, excluded = mode.required, mode.implied, mode.excluded
        heads = (
            self._by_variant(shape, mode, keys) if shape.key_of else [(key, *head(key, value)) for key, value in keys]
        )
        places: dict[str, list[int]] = {}
        if required or implied or excluded:
            for place, (name, _, _) in enumerate(heads):
                places.setdefault(name, []).append(place)
        if not required <= places.keys():
            return None
        if implied or excluded:
            members = [
                Member(
                    text,
                    body,
                    name in required,
                    tuple([place for other in implied.get(name, ()) for place in places[other]]),
                    tuple([place for one in (name, *excluded.get(name, ())) for place in places[one] if place != own]),
                )
                for own, (name, text, body) in enumerate(heads)
            ]
        else:
            members = [Member(text, body, name in required) for name, text, body in heads]
        for cells in witnesses:
            members.append(Member(None, alternation(*self._cells(tuple(map(as_owed, cells)))), True))
        cells = shape.others.cells if missing < 2 else tuple(map(as_owed, shape.others.cells))
        others = self._cells(cells) if spare != 0 else ()
        if not members and not others:
            return None
        return AnyOrder(tuple(members), others, Sequence(self.layout.comma), shape.minimum, maximum)

    def _cells(self, cells: tuple[Cell, ...]) -> tuple[Expression, ...]:
        return tuple(Sequence((key, *self.layout.colon, value)) for key, value in cells)

    def _by_variant(self, shape: Shape, mode: Mode, values: list[tuple[str, Expression]]) -> list[Head]:
        """Members, no two with the same text. A variant of several constants is as many members, unless it may be owed.

        Raises:
            ConstraintTooLarge: of the variants of a key more than one would begin with the key alone.
        """
        owed = mode.required.union(*mode.implied.values())
        groups: dict[str, list[tuple[str, Expression]]] = {}
        for name, value in values:
            groups.setdefault(shape.key_of.get(name, name), []).append((name, value))
        found: list[Head] = []
        for key, variants in groups.items():
            own: list[Head] = []
            for name, value in variants:
                text, body = self.layout.head(key, value)
                constants = _constants(value) if len(variants) > 1 and body is value else None
                if constants is not None and (len(constants) == 1 or name not in owed):
                    own += [(name, text + constant, EMPTY_TEXT) for constant in constants]
                else:
                    own.append((name, text, body))
            if len({text for _, text, _ in own}) < len(own):
                message = (
                    f"conditions tell several kinds of values of {key!r} apart. If keys may come in any order, all but "
                    f"one of these must be constants, and the whitespace fixed; {REMEDY}"
                )
                raise error_at(ConstraintTooLarge, shape.pointer, message)
            found += own
        return found


def _constants(value: Expression) -> list[bytes] | None:
    """All texts of a value, each once; None if they are more than MAX_CONSTANTS, or not plainly so few."""
    if isinstance(value, Literal):
        return [value.data]
    if isinstance(value, Embed):
        return None if value.is_key or value.is_item else _texts(value.language)
    if not isinstance(value, Alternation | Sequence):
        return None
    is_choice = isinstance(value, Alternation)
    found = [] if is_choice else [b""]
    for part in value.options if isinstance(value, Alternation) else value.parts:
        own = _constants(part)
        if own is None or len(found) * len(own) > MAX_CONSTANTS:
            return None
        found = list(dict.fromkeys(found + own if is_choice else [one + other for one in found for other in own]))
    return found if len(found) <= MAX_CONSTANTS else None


def _texts(language: Language) -> list[bytes] | None:
    """All texts of a language; None if they are more than MAX_CONSTANTS, or take more than MAX_LOOKS to find."""
    found: list[bytes] = []
    pending, num_looks = [(language.start, b"")] if language.start else [], 0
    while pending:
        num_looks += 1
        state, text = pending.pop()
        if language.is_accepting(state):
            found.append(text)
        row = language.row(state)
        pending += [(int(row[byte]), text + bytes((byte,))) for byte in row.nonzero()[0].tolist()]
        if len(found) + len(pending) > MAX_CONSTANTS or num_looks > MAX_LOOKS:
            return None
    return found


def _apart(shape: Shape) -> frozenset[Clause]:
    """That of the variants of a key at most one is there."""
    if not shape.key_of:
        return frozenset()
    names = [[name for name, value in members if value is not None] for _, members in shape.groups]
    if sum(len(own) * (len(own) - 1) // 2 for own in names) > MAX_PAIRS:
        message = f"conditions tell more than {MAX_PAIRS} pairs of values apart if keys may come in any order; {REMEDY}"
        raise error_at(ConstraintTooLarge, shape.pointer, message)
    pairs = (pair for own in names for pair in combinations(own, 2))
    return frozenset([frozenset(((first, False), (second, False))) for first, second in pairs])
