"""Objects whose keys come in the order of the schema: the named ones as it names them, then all others.

So k optional keys are k + 1 states and not 2**k. Conditions on which keys are there are worked off key by key: what
remains of them is carried along as state, and so are the counts for `minProperties` and `maxProperties`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...errors import ConstraintTooLarge
from ..network.expression import EMPTY_TEXT, AnyOrder, Expression, Parts, Repeat, Rule, Sequence, alternation
from ..record import record
from .algebra import Clause
from .conditions import Residue
from .layout import Layout
from .others import Witnesses, unnamed_members, witness_members
from .shape import Members, Shape
from .texts import error_at

MAX_STATES = 20_000
MAX_CARRIED = 500_000  # open clauses in all states together

MIN_RUN = 8
"""Runs of this many keys or more that no open clause mentions have no states of their own."""

State = tuple[int, Residue, bool, int, "int | None"]


@record
class SchemaOrder:
    """Writes shapes. `reserve` gives a name for a rule, `define` its body; `check` ends what takes too long."""

    layout: Layout
    reserve: Callable[[], str]
    define: Callable[[str, Expression], None]
    check: Callable[[str], None]

    def written(self, shape: Shape) -> Expression | None:
        """The objects of a shape; None if there are none."""
        required = shape.required
        counts = shape.maximum is not None or shape.others.choices is not None
        if required is not None and shape.minimum <= len(required) and not counts:
            return self.ordered(shape, required)
        return self._stateful(shape)

    def ordered(self, shape: Shape, required: set[str]) -> Expression | None:
        """The usual object: some keys required, the others optional, no counting.

        Before the first required key, optional members bring their comma after them; after it, before them.
        """
        layout = self.layout
        comma = layout.comma
        if not required:
            return self._all_optional(shape)
        more: Parts = ()
        if shape.others.cells:
            more = (Repeat(Sequence((*comma, self._other(shape))), 0, shape.others.count),)
        parts: list[Expression] = []
        after = False
        for key, value in shape.members:
            self.check(shape.pointer)
            if value is None:
                if key in required:
                    return None
            elif key in required:
                parts += (*layout.key(key, after_comma=after), value)
                after = True
            elif after:
                parts.append(Repeat(Sequence((*layout.key(key, after_comma=True), value)), 0, 1))
            else:
                parts.append(Repeat(Sequence((*layout.key(key), value, *comma)), 0, 1))
        return layout.members((*parts, *more), may_be_empty=False)

    def _all_optional(self, shape: Shape) -> Expression:
        """No key is required: whichever comes first, the later ones follow with commas before them."""
        layout = self.layout
        more: Parts = ()
        only_others: Parts = ()
        if shape.others.cells:
            other, count = self._other(shape), shape.others.count
            following = Sequence((*layout.comma, other))
            more = (Repeat(following, 0, count),)
            only_others = (other, Repeat(following, 0, count - 1) if count else more[0])
        members = [(key, value) for key, value in shape.members if value is not None]
        options: list[Expression] = []
        rest: Parts = more
        for index in range(len(members) - 1, -1, -1):
            key, value = members[index]
            self.check(shape.pointer)
            options.append(Sequence((*layout.key(key), value, *rest)))
            if index:
                name = self.reserve()
                member = Repeat(Sequence((*layout.key(key, after_comma=True), value)), 0, 1)
                self.define(name, Sequence((member, *rest)))
                rest = (Rule(name),)
        options.reverse()
        if only_others and shape.others.count != 0:
            options.append(Sequence(only_others))
        if not options:
            return layout.no_members()
        return layout.members((alternation(*options),), may_be_empty=True)

    def _other(self, shape: Shape, num_owed: int = 0) -> Expression:
        """One member with a key that is not named, of `num_owed` ones that must be written."""
        return alternation(*unnamed_members(shape.others.cells, self.layout.colon, num_owed))

    # ---------------------------------------------------------------- right-linear rules

    def _stateful(self, shape: Shape) -> Expression | None:
        """One rule per state (next key, open clauses, anything written, keys owed, keys left)."""
        layout = self.layout
        groups = shape.groups
        places = {name: index for index, (_, members) in enumerate(groups) for name, _ in members}
        first, waking = _asleep(shape, places)
        start: State = (0, first, False, shape.minimum, shape.maximum)
        names = {start: self.reserve()}
        pending = [start]
        num_carried = 0
        known: dict[tuple[int, Residue], tuple[list[tuple[Expression, Residue]], Residue]] = {}
        runs: dict[tuple[int, int], Expression] = {}

        def assumed(state: State) -> tuple[list[tuple[Expression, Residue]], Residue]:
            """The values of the next key, each with what is left open if it is there, and what is if the key is not."""
            index, residue, _, _, left = state
            found = known.get((index, residue))
            if found is None:
                clauses = waking.get(index)
                woken = frozenset([open_ones | clauses for open_ones in residue]) if clauses else residue
                found = known[index, residue] = _assume(woken, groups[index][1])
            return ([] if left == 0 else found[0]), found[1]

        def rule(state: State) -> Rule:
            self.check(shape.pointer)
            while state[0] < len(groups):  # keys that cannot be there take no rules of their own
                present, absent = assumed(state)
                if present or not absent:
                    break
                state = (state[0] + 1, absent, *state[2:])
            name = names.get(state)
            if name is None:
                nonlocal num_carried
                num_carried += sum(map(len, state[1]))
                if len(names) >= MAX_STATES or num_carried > MAX_CARRIED:
                    raise error_at(
                        ConstraintTooLarge,
                        shape.pointer,
                        f"conditions on keys need more than {MAX_STATES} states, or {MAX_CARRIED} conditions in all of "
                        "them; let fewer keys depend on one another",
                    )
                name = names[state] = self.reserve()
                pending.append(state)
            return Rule(name)

        def free_end(index: int, residue: Residue) -> int:
            """The index of the next key that an open clause speaks of, or with which one comes up."""
            asked = {places[name] for clauses in residue for clause in clauses for name, _ in clause}
            end = min((place for place in asked if place >= index), default=len(groups))
            while index < end and index not in waking:
                index += 1
            return index

        while pending:
            state = pending.pop()
            index, residue, written, owed, left = state
            options: list[Expression] = []
            end = free_end(index, residue) if written and not owed and left is None else index
            if end - index >= MIN_RUN:
                options.append(Sequence((*self._run(groups, runs, index, end), rule((end, residue, True, 0, None)))))
            elif index == len(groups):
                if frozenset() in residue:
                    options += self._rest(shape, written, owed, left)
            else:
                present, absent = assumed(state)
                key = layout.key(groups[index][0], after_comma=written)
                for value, residue in present:
                    after = (index + 1, residue, True, max(owed - 1, 0), None if left is None else left - 1)
                    options.append(Sequence((*key, value, rule(after))))
                if absent:
                    options.append(rule((index + 1, absent, written, owed, left)))
            self.define(names[state], alternation(*options))
        return layout.members((Rule(names[start]),), may_be_empty=False)

    def _run(
        self, groups: list[tuple[str, Members]], runs: dict[tuple[int, int], Expression], low: int, high: int
    ) -> Iterator[Expression]:
        """Members low .. high - 1 after others, each optional: rules for runs of 1, 2, 4 … of them, shared by all."""
        while low < high:
            size = 1
            while low % (2 * size) == 0 and low + 2 * size <= high:
                size *= 2
            found = runs.get((low, size))
            if found is None and size == 1:
                key, members = groups[low]
                value = alternation(*[value for _, value in members if value is not None])
                found = Repeat(Sequence((*self.layout.key(key, after_comma=True), value)), 0, 1)
            elif found is None:
                middle = low + size // 2
                halves = (*self._run(groups, runs, low, middle), *self._run(groups, runs, middle, low + size))
                found = Rule(self.reserve())
                self.define(found.name, Sequence(halves))
            runs[low, size] = found
            yield found
            low += size

    def _rest(self, shape: Shape, written: bool, num_owed: int, left: int | None) -> list[Expression]:
        """What may follow after the last named key."""
        comma, others = self.layout.comma, shape.others
        if others.count is not None:
            left = others.count if left is None else min(left, others.count)
        if left is not None and left < num_owed:
            return []
        if others.choices is not None:
            return [
                option
                for witnesses in others.choices
                for option in self._witnessed(shape, witnesses, written, num_owed, left)
            ]
        if not others.cells or left == 0:
            return [] if num_owed else [EMPTY_TEXT]
        other = self._other(shape, num_owed)
        if written:
            return [Repeat(Sequence((*comma, other)), num_owed, left)]
        listed = self.layout.listed((other,), num_owed, left)
        assert listed is not None
        some: Expression = Sequence(listed[0])
        return [Repeat(some, 0, 1) if listed[1] else some]

    def _witnessed(
        self, shape: Shape, witnesses: Witnesses, written: bool, num_owed: int, left: int | None
    ) -> list[Expression]:
        """Other keys, and last of all the witnesses, so that no repetition can undo them; in any order."""
        comma = self.layout.comma
        num_witnesses = len(witnesses)
        last = witness_members(witnesses, self.layout.colon, shape.pointer, num_owed - max(num_witnesses, 1))
        free = None if left is None else left - num_witnesses
        if free is not None and free < 0:
            return []
        parts: Parts = comma if written else ()
        if shape.others.cells and free != 0:
            parts = (*parts, Repeat(Sequence((self._other(shape), *comma)), 0, free))
        return [Sequence((*parts, AnyOrder(tuple(last), (), Sequence(comma))))]


def _asleep(shape: Shape, places: dict[str, int]) -> tuple[Residue, dict[int, frozenset[Clause]]]:
    """What is open before the first key, and the clauses that come up with each key, by its place.

    Of a single alternative a clause need not be carried along before the first of its keys. Several are distinguished
    by their clauses all the way.
    """
    residue = shape.clauses
    if len(residue) != 1:
        return residue, {}
    waking: dict[int, set[Clause]] = {}
    (clauses,) = residue
    for clause in clauses:
        waking.setdefault(min((places[key] for key, _ in clause), default=0), set()).add(clause)
    return frozenset((frozenset(),)), {index: frozenset(found) for index, found in waking.items()}


def _assume(residue: Residue, members: Members) -> tuple[list[tuple[Expression, Residue]], Residue]:
    """The alternatives that are left with each of the members of a key, if there are any, and without the key."""
    names = [name for name, _ in members]
    found: list[tuple[Expression, Residue]] = []
    for name, value in members:
        left = frozenset() if value is None else _after(residue, names, name)
        if value is not None and left:
            found.append((value, left))
    return found, _after(residue, names, None)


def _after(residue: Residue, names: list[str], chosen: str | None) -> Residue:
    """The alternatives that are left once one of the names, or none of them, is chosen to be there."""
    true = frozenset([(name, name == chosen) for name in names])
    false = frozenset([(name, name != chosen) for name in names])
    left: set[frozenset[Clause]] = set()
    for clauses in residue:
        remaining = frozenset([clause - false for clause in clauses if clause.isdisjoint(true)])
        if not remaining:
            return frozenset((frozenset(),))
        if frozenset() not in remaining:
            left.add(remaining)
    return frozenset(left)
