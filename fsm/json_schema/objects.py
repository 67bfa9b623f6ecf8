"""Objects: the branches of one goal that are objects, as an expression.

Keys are written in a fixed order: the named ones as the schema names them, then all others. So k optional keys are
k + 1 states and not 2**k. Conditions on which keys are there (`required`, `dependentRequired`, the negation of
`required`, alternatives that differ only in these) are clauses in conjunctive normal form; what remains of them is
carried along as state, and so are the counts for `minProperties` and `maxProperties`.

Named keys are taken out of the language of the others, so no named key can be written twice. Others may be: a
reader keeps the last, which is valid by itself; where a repetition could hide a violation (two or more keys still
owed to `minProperties`), the schema is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ...errors import ConstraintTooLarge, UnsupportedSchema
from ..expression import EMPTY_TEXT, Expression, Repeat, Rule, Sequence, alternation
from .keys import goal_of_key
from .layout import Layout, Parts
from .others import MAX_LISTED, OtherKeys, Others, Witnesses
from .parts import ANYTHING, NEVER, Clause, Goal, ObjectFacet
from .texts import error_at, is_writable, string_text

MAX_STATES = 20_000
MAX_ALTERNATIVES = 500

Residue = frozenset[frozenset[Clause]]
"""Alternatives that are still possible, each with the clauses that are still open. An empty one is fulfilled."""


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """Objects that differ at most in which keys are there.

    Attributes:
        members: (key, value) in the order in which they are written; value None: the key cannot be there.
        others: keys not named.
        alternatives: clauses of each alternative.
    """

    pointer: str
    members: list[tuple[str, Expression | None]]
    others: OtherKeys
    alternatives: Residue
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True, eq=False)
class ObjectWriter:
    """What objects need from the compiler: see `ArrayWriter`. `others` works out the keys not named."""

    layout: Layout
    value: Callable[[Goal], Expression | None]
    others: Others
    reserve: Callable[[], str]
    define: Callable[[str, Expression], None]

    def objects(self, branches: list[tuple[ObjectFacet, ...]]) -> list[Expression]:
        """One expression per shape among the branches; none if no object at all is possible."""
        found: list[Expression] = []
        for shape in self._shapes(branches):
            expression = self._written(shape)
            if expression is not None:
                found.append(expression)
        return found

    # ---------------------------------------------------------------- from branches to shapes

    def _shapes(self, branches: list[tuple[ObjectFacet, ...]]) -> Iterator[_Shape]:
        groups: dict[tuple[int, ...], list[tuple[ObjectFacet, ...]]] = {}
        num_alternatives = 0
        for branch in branches:
            for facets in self.others.settled(branch):
                num_alternatives += 1
                if num_alternatives > MAX_ALTERNATIVES:
                    raise error_at(
                        ConstraintTooLarge,
                        facets[0].pointer,
                        f"more than {MAX_ALTERNATIVES} kinds of objects at one place",
                    )
                core = tuple(id(facet) for facet in facets if not _only_clauses(facet))
                groups.setdefault(core, []).append(facets)
        for alternatives in groups.values():
            shape = self._shape(alternatives)
            if shape is not None:
                yield shape

    def _shape(self, alternatives: list[tuple[ObjectFacet, ...]]) -> _Shape | None:
        first = alternatives[0]
        minimum = max((facet.minimum for facet in first), default=0)
        maximum = min((facet.maximum for facet in first if facet.maximum is not None), default=None)
        if maximum is not None and maximum < minimum:
            return None
        pointer = first[0].pointer if first else ""
        names: dict[str, None] = {}
        for facet in first:
            if facet.evaluates:
                names.update(dict.fromkeys(facet.properties))
        for facets in alternatives:
            for facet in facets:
                for clause in facet.clauses:
                    names.update(dict.fromkeys(key for key, _ in sorted(clause)))
        for facet in first:
            names.update(dict.fromkeys(facet.properties))
        others = self.others.of(first, frozenset(names), minimum)
        names.update(dict.fromkeys(others.listed))
        free_names = all(facet.names == ANYTHING for facet in first)
        only = first[0] if len(first) == 1 and not first[0].patterns else None
        members: list[tuple[str, Expression | None]] = []
        for key in names:
            goal = goal_of_key(first, key) if only is None else only.properties.get(key, only.additional)
            possible = goal != NEVER and is_writable(key) and (free_names or self.others.is_name(first, key))
            members.append((key, self.value(goal) if possible else None))
        clauses = frozenset(
            frozenset(clause for facet in facets for clause in facet.clauses) for facets in alternatives
        )
        return _Shape(pointer, members, others, clauses, minimum, maximum)

    # ---------------------------------------------------------------- from shapes to expressions

    def _written(self, shape: _Shape) -> Expression | None:
        required = _only_required(shape)
        counts = shape.maximum is not None or shape.others.choices is not None
        if required is not None and shape.minimum <= len(required) and not counts:
            return self._ordered(shape, required)
        return self._stateful(shape)

    def _ordered(self, shape: _Shape, required: set[str]) -> Expression | None:
        """The usual object: some keys required, the others optional, no counting.

        Before the first required key, optional members bring their comma behind them; after it, before them.
        """
        layout = self.layout
        comma = layout.comma
        more: Parts = ()
        if shape.others.cells:
            more = (Repeat(Sequence((*comma, self._other(shape))), 0, None),)
        parts: list[Expression] = []
        after = False
        if not required:
            return self._all_optional(shape, more)
        for key, value in shape.members:
            if value is None:
                if key in required:
                    return None
            elif key in required:
                parts += (*layout.key(string_text(key), after_comma=after), value)
                after = True
            elif after:
                parts.append(Repeat(Sequence((*layout.key(string_text(key), after_comma=True), value)), 0, 1))
            else:
                parts.append(Repeat(Sequence((*layout.key(string_text(key)), value, *comma)), 0, 1))
        return layout.bracketed(b"{", (*parts, *more), b"}", may_be_empty=False)

    def _all_optional(self, shape: _Shape, more: Parts) -> Expression:
        """No key is required: whichever comes first, the later ones follow with commas before them."""
        layout = self.layout
        members = [(key, value) for key, value in shape.members if value is not None]
        options: list[Expression] = []
        rest: Parts = more
        for index in range(len(members) - 1, -1, -1):
            key, value = members[index]
            options.append(Sequence((*layout.key(string_text(key)), value, *rest)))
            if index:
                name = self.reserve()
                member = Repeat(Sequence((*layout.key(string_text(key), after_comma=True), value)), 0, 1)
                self.define(name, Sequence((member, *rest)))
                rest = (Rule(name),)
        options.reverse()
        if more:
            options.append(Sequence((self._other(shape), *more)))
        if not options:
            return layout.empty(b"{}")
        return layout.bracketed(b"{", (alternation(*options),), b"}", may_be_empty=True)

    def _other(self, shape: _Shape) -> Expression:
        """One member with a key that is not named."""
        colon = self.layout.colon
        return alternation(*(Sequence((key, *colon, value)) for key, value in shape.others.cells))

    # ---------------------------------------------------------------- right-linear rules

    def _stateful(self, shape: _Shape) -> Expression | None:
        """One rule per state (next member, open clauses, anything written, keys owed, keys left)."""
        layout = self.layout
        start: State = (0, shape.alternatives, False, shape.minimum, shape.maximum)
        names = {start: self.reserve()}
        pending = [start]

        def rule(state: State) -> Rule:
            name = names.get(state)
            if name is None:
                if len(names) >= MAX_STATES:
                    raise error_at(
                        ConstraintTooLarge, shape.pointer, f"conditions on keys need more than {MAX_STATES} states"
                    )
                name = names[state] = self.reserve()
                pending.append(state)
            return Rule(name)

        while pending:
            state = pending.pop()
            index, residue, written, owed, left = state
            options: list[Expression] = []
            if index == len(shape.members):
                if frozenset() in residue:
                    options += self._rest(shape, written, owed, left)
            else:
                key, value = shape.members[index]
                present = _assume(residue, key, True)
                if value is not None and present and left != 0:
                    after = (index + 1, present, True, max(owed - 1, 0), None if left is None else left - 1)
                    options.append(Sequence((*layout.key(string_text(key), after_comma=written), value, rule(after))))
                absent = _assume(residue, key, False)
                if absent:
                    options.append(rule((index + 1, absent, written, owed, left)))
            self.define(names[state], alternation(*options))
        return layout.bracketed(b"{", (Rule(names[start]),), b"}", may_be_empty=False)

    def _rest(self, shape: _Shape, written: bool, owed: int, left: int | None) -> list[Expression]:
        """What may follow after the last named key."""
        comma, others = self.layout.comma, shape.others
        if left is not None and left < owed:
            return []
        if others.choices is not None:
            return [
                option
                for witnesses in others.choices
                for option in self._witnessed(shape, witnesses, written, owed, left)
            ]
        if not others.cells or left == 0:
            return [] if owed else [EMPTY_TEXT]
        if owed > 1:
            pointer = f"{shape.pointer}/minProperties"
            raise error_at(
                UnsupportedSchema,
                pointer,
                f"at least {owed} keys beyond the named ones could not be told apart; name the keys, or "
                f"bound them by a pattern with at most {MAX_LISTED} keys",
            )
        other = self._other(shape)
        if written:
            return [Repeat(Sequence((*comma, other)), owed, left)]
        listed = self.layout.listed((other,), owed, left)
        assert listed is not None
        some: Expression = Sequence(listed[0])
        return [Repeat(some, 0, 1) if listed[1] else some]

    def _witnessed(
        self, shape: _Shape, witnesses: Witnesses, written: bool, owed: int, left: int | None
    ) -> list[Expression]:
        """Other keys, and last of all the witnesses, so that no repetition can undo them; in any order."""
        comma, others, colon = self.layout.comma, shape.others, self.layout.colon
        num_witnesses = len(witnesses)
        if owed > max(num_witnesses, 1) or num_witnesses > 4:
            raise error_at(
                UnsupportedSchema, shape.pointer, "minProperties (or too many conditions) on keys that are not named"
            )
        free = None if left is None else left - num_witnesses
        if free is not None and free < 0:
            return []
        parts: Parts = ()
        if others.cells and free != 0:
            other = self._other(shape)
            if written:
                parts = (Repeat(Sequence((*comma, other)), 0, free),)
            else:
                parts = (Repeat(Sequence((other, *comma)), 0, free),)
        names: dict[tuple[frozenset[int], bool], str] = {}

        def rule(missing: frozenset[int], follows: bool) -> Rule:
            name = names.get((missing, follows))
            if name is None:
                name = names[missing, follows] = self.reserve()
                options: list[Expression] = [] if missing else [EMPTY_TEXT]
                for index in sorted(missing):
                    rest = rule(missing - {index}, True)
                    for key, value in witnesses[index]:
                        member = (key, *colon, value, rest)
                        options.append(Sequence((*comma, *member) if follows else member))
                self.define(name, alternation(*options))
            return Rule(name)

        return [Sequence((*parts, rule(frozenset(range(num_witnesses)), written)))]


State = tuple[int, Residue, bool, int, "int | None"]


def _only_clauses(facet: ObjectFacet) -> bool:
    """Whether the facet says only which keys are there."""
    return (
        not facet.properties
        and not facet.patterns
        and facet.additional == ANYTHING
        and facet.names == ANYTHING
        and not facet.witnesses
        and not facet.minimum
        and facet.maximum is None
    )


def _only_required(shape: _Shape) -> set[str] | None:
    """The required keys, if the clauses say nothing else."""
    if len(shape.alternatives) != 1:
        return None
    (clauses,) = shape.alternatives
    required: set[str] = set()
    for clause in clauses:
        if len(clause) != 1:
            return None
        ((key, present),) = clause
        if not present:
            return None
        required.add(key)
    return required


def _assume(residue: Residue, key: str, present: bool) -> Residue:
    """The alternatives that are left once it is known whether the key is there."""
    left: set[frozenset[Clause]] = set()
    for clauses in residue:
        remaining: set[Clause] = set()
        for clause in clauses:
            if (key, present) in clause:
                continue
            if (key, not present) in clause:
                clause = clause - {(key, not present)}
                if not clause:
                    break
            remaining.add(clause)
        else:
            if not remaining:
                return frozenset((frozenset(),))
            left.add(frozenset(remaining))
    return frozenset(left)
