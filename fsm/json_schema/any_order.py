"""Objects whose keys may come in any order, as `AnyOrder`s: one per mode of the conditions (see `conditions`).

Keys that are not named may stand anywhere. The exception are witnesses (keys that must exist among the unnamed ones,
`not: {additionalProperties: ..}`): after one of them only named keys and other witnesses may follow, so that no
repetition of its key can undo it.

Where the values of a key are distinguished (`variants`), each variant is a member, and excludes the others. They begin
with the same text, so all of them are read at once until one is left.
"""

from __future__ import annotations

from itertools import combinations

from ...errors import ConstraintTooLarge
from ..network.expression import AnyOrder, Expression, Literal, Member, Sequence, alternation
from ..record import record
from .algebra import Clause
from .conditions import REMEDY, Mode, modes
from .layout import Layout
from .others import Witnesses, unnamed_members, witness_members
from .schema_order import SchemaOrder
from .shape import Shape
from .texts import error_at

MAX_PAIRS = 4_000
"""Most pairs of variants that exclude each other, of all keys of one shape."""


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
        last = witness_members(witnesses, self.layout.colon, shape.pointer, missing)
        places = {name: place for place, (name, _) in enumerate(keys)}
        if not mode.required <= places.keys():
            return None
        head, required, relations = self.layout.head, mode.required, (mode.implied, mode.excluded)
        if not (mode.implied or mode.excluded or shape.key_of):  # nearly always
            members = [Member(*head(key, value), key in required) for key, value in keys]
        else:
            members = []
            for name, value in keys:
                key = shape.key_of.get(name)
                text, body = head(name if key is None else key, value)
                own = None if key is not None else text
                body = body if key is None else Sequence((Literal(text), body))
                implied, excluded = (
                    tuple([places[other] for other in relation.get(name, ())]) for relation in relations
                )
                members.append(Member(own, body, name in required, implied, excluded))
        members += last
        unnamed = unnamed_members(shape.others.cells, self.layout.colon, missing) if spare != 0 else ()
        if not members and not unnamed:
            return None
        return AnyOrder(tuple(members), unnamed, Sequence(self.layout.comma), shape.minimum, maximum)


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
