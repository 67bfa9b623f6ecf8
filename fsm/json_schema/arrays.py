"""Arrays: one branch's facets as an expression.

Plain arrays are a list of fixed items and a repetition. `uniqueItems` of a list is `AnyOrder` over its values.
`contains`, and `uniqueItems` behind fixed items, become right-linear rules, one per state of the count (or per set of
values used), which the automaton runs as states.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

from ...errors import ConstraintError, ConstraintTooLarge, UnsupportedSchema
from ..network.expression import EMPTY_TEXT, AnyOrder, Expression, Literal, Member, Repeat, Rule, Sequence, alternation
from ..record import record
from .disjointness import goal_of_item
from .layout import Layout, Parts
from .negation import refusals
from .parts import ANYTHING, ArrayFacet, Contains, Goal
from .plain import PlainArray
from .texts import error_at

MAX_STATES = 4_000
MAX_UNIQUE = 10  # values of items behind fixed ones
MAX_UNIQUE_LIST = 4096

Value = Callable[[Goal], "Expression | None"]
"""Compiles a goal; None if no value fulfils it."""


@record
class ArrayWriter:
    """What arrays need from the compiler.

    Attributes:
        value: compiles a goal.
        texts: all values of a goal as JSON texts, None if they are too many.
        rule: gives a body a name of its own.
    """

    layout: Layout
    value: Value
    texts: Callable[[Goal, int], list[str] | None]
    reserve: Callable[[], str]
    define: Callable[[str, Expression], None]

    def array(self, facets: tuple[ArrayFacet, ...]) -> Expression | None:
        """All arrays that pass every facet; None if there are none."""
        if len(facets) == 1:
            (only,) = facets
            minimum, maximum, num_fixed = only.minimum, only.maximum, len(only.prefix)
            if not (num_fixed or only.contains or only.unique or only.repeated):  # nearly always
                is_possible = maximum is None or maximum >= minimum
                return self._list(goal_of_item(facets, 0), minimum, maximum) if is_possible else None
        minimum = max((facet.minimum for facet in facets), default=0)
        maximum = min((facet.maximum for facet in facets if facet.maximum is not None), default=None)
        if maximum is not None and maximum < minimum:
            return None
        num_fixed = max((len(facet.prefix) for facet in facets), default=0)
        if maximum is not None and maximum < num_fixed:
            num_fixed = maximum
        for facet in facets:
            if facet.repeated:
                raise error_at(UnsupportedSchema, f"{facet.pointer}/uniqueItems", "its negation is not supported")
        contains = [contained for facet in facets for contained in facet.contains]
        unique = [facet for facet in facets if facet.unique]
        if unique and (maximum is None or maximum > 1):
            if contains:
                pointer = f"{unique[0].pointer}/uniqueItems"
                raise error_at(UnsupportedSchema, pointer, "not supported together with contains")
            return self._unique(facets, minimum, maximum, num_fixed, f"{unique[0].pointer}/uniqueItems")
        if contains:
            return self._containing(facets, contains, minimum, maximum, num_fixed)
        return self._plain(facets, minimum, maximum, num_fixed)

    def plain(self, plain: PlainArray) -> Expression | None:
        """The arrays of a schema that says nothing else; None if there are none."""
        return self._list(plain.items, 0, None)

    def _list(self, items: Goal, minimum: int, maximum: int | None) -> Expression | None:
        """Items of one kind."""
        item = self.value(items) if maximum != 0 else None
        if item is None:
            return None if minimum else self.layout.empty(b"[]")
        listed = self.layout.listed((item,), minimum, maximum)
        assert listed is not None
        return self.layout.bracketed(b"[", listed[0], b"]", may_be_empty=listed[1])

    def _plain(
        self, facets: tuple[ArrayFacet, ...], minimum: int, maximum: int | None, num_fixed: int
    ) -> Expression | None:
        fixed: list[Expression] = []
        for index in range(num_fixed):
            item = self.value(goal_of_item(facets, index))
            if item is None:
                maximum = index
                break
            fixed.append(item)
        num_fixed = len(fixed)
        rest = None
        if maximum is None or maximum > num_fixed:
            rest = self.value(goal_of_item(facets, num_fixed))
            if rest is None:
                maximum = num_fixed
        if maximum is not None and maximum < minimum:
            return None
        layout = self.layout
        if maximum == 0:
            return layout.empty(b"[]")
        if not fixed:
            assert rest is not None
            return self._list(goal_of_item(facets, 0), minimum, maximum)
        tail: Parts = ()
        if rest is not None:
            upper = None if maximum is None else maximum - num_fixed
            tail = (Repeat(Sequence((*layout.comma, rest)), max(minimum - num_fixed, 0), upper),)
        for index in range(num_fixed - 1, 0, -1):
            tail = (*layout.comma, fixed[index], *tail)
            if index >= minimum:
                tail = (Repeat(Sequence(tail), 0, 1),)
        return layout.bracketed(b"[", (fixed[0], *tail), b"]", may_be_empty=minimum == 0)

    # ---------------------------------------------------------------- contains

    def _containing(
        self,
        facets: tuple[ArrayFacet, ...],
        contains: list[Contains],
        minimum: int,
        maximum: int | None,
        num_fixed: int,
    ) -> Expression | None:
        """States are (items so far, how often each `contains` was fulfilled), as far as they still matter.

        Only the first state has no items: the number of items is never capped below 1.
        """
        last = max([1, num_fixed, minimum, *(c.first for c in contains)]) if maximum is None else max(maximum, 1)
        caps = [c.minimum if c.maximum is None else c.maximum for c in contains]
        if any(c.maximum is not None and c.maximum < c.minimum for c in contains):
            return None

        def moves(state: State) -> tuple[bool, list[tuple[Goal, State]]]:
            index, counts = state
            stop = index >= minimum and all(n >= c.minimum for n, c in zip(counts, contains, strict=True))
            if maximum is not None and index >= maximum:
                return stop, []
            base = goal_of_item(facets, index)
            found: list[tuple[Goal, State]] = []
            for goal, hits in self._cells(base, contains, counts, index):
                after = tuple(
                    min(n + hit, cap) if c.maximum is None else n + hit
                    for n, hit, cap, c in zip(counts, hits, caps, contains, strict=True)
                )
                if all(c.maximum is None or n <= c.maximum for n, c in zip(after, contains, strict=True)):
                    found.append((goal, (min(index + 1, last), after)))
            return stop, found

        return self._states((0, (0,) * len(contains)), moves, facets[0].pointer)

    def _cells(
        self, base: Goal, contains: list[Contains], counts: tuple[int, ...], index: int
    ) -> list[tuple[Goal, tuple[int, ...]]]:
        """Ways in which an item may count: its goal, and 1 or 0 for each `contains`."""
        ways: list[list[tuple[Goal, int]]] = []
        for contained, count in zip(contains, counts, strict=True):
            if index < contained.first or (contained.maximum is None and count >= contained.minimum):
                ways.append([(ANYTHING, 0)])
            elif contained.maximum is None:
                ways.append([(contained.goal, 1), (ANYTHING, 0)])
            else:
                ways.append([(contained.goal, 1), *((refusal, 0) for refusal in refusals(contained.goal))])
        cells: list[tuple[Goal, tuple[int, ...]]] = []
        for choice in product(*ways):
            goal = base.union(*(part for part, _ in choice))
            cells.append((goal, tuple(hit for _, hit in choice)))
        return cells

    # ---------------------------------------------------------------- uniqueItems

    def _unique(
        self, facets: tuple[ArrayFacet, ...], minimum: int, maximum: int | None, num_fixed: int, pointer: str
    ) -> Expression | None:
        """Values of a list are members in any order; with fixed items before them, states that say which are used."""
        if num_fixed == 0:
            return self._unique_list(goal_of_item(facets, 0), minimum, maximum, pointer)
        goals = [goal_of_item(facets, index) for index in range(num_fixed + 1)]
        listed = [self.texts(goal, MAX_UNIQUE) for goal in goals]
        values = sorted({text for texts in listed if texts is not None for text in texts})
        if any(texts is None for texts in listed) or len(values) > MAX_UNIQUE:
            raise _too_many_values(pointer, f"behind fixed ones, at most {MAX_UNIQUE} values")
        number = {text: index for index, text in enumerate(values)}
        choices = [[(number[text], text) for text in texts or ()] for texts in listed]

        def moves(state: State) -> tuple[bool, list[tuple[str, State]]]:
            index, used = state
            if maximum is not None and index >= maximum:
                return index >= minimum, []
            found = [
                (text, (index + 1, tuple(sorted((*used, value)))))
                for value, text in choices[min(index, num_fixed)]
                if value not in used
            ]
            return index >= minimum, found

        return self._states((0, ()), moves, pointer)

    def _unique_list(self, goal: Goal, minimum: int, maximum: int | None, pointer: str) -> Expression | None:
        """Some of the values of a goal, each at most once."""
        values = self.texts(goal, MAX_UNIQUE_LIST)
        if values is None:
            raise _too_many_values(pointer, f"at most {MAX_UNIQUE_LIST} values")
        if minimum > len(values):
            return None
        if not values:
            return self.layout.empty(b"[]")
        members = tuple(Member(text.encode(), EMPTY_TEXT) for text in values)
        upper = None if maximum is None or maximum >= len(values) else maximum
        items = AnyOrder(members, (), Sequence(self.layout.comma), minimum, upper)
        return self.layout.bracketed(b"[", (items,), b"]", may_be_empty=minimum == 0)

    # ---------------------------------------------------------------- right-linear rules

    def _states(
        self,
        start: State,
        moves: Callable[[State], tuple[bool, list[tuple[Goal, State]]]]
        | Callable[[State], tuple[bool, list[tuple[str, State]]]],
        pointer: str,
    ) -> Expression | None:
        """One rule per state: stop, or write an item and go on in the next state."""
        layout = self.layout
        names = {start: self.reserve()}
        pending = [start]
        while pending:
            state = pending.pop()
            stop, found = moves(state)
            options: list[Expression] = [EMPTY_TEXT] if stop else []
            comma = layout.comma if state[0] else ()
            by_target: dict[State, list[Expression]] = {}
            for what, target in found:
                item = Literal(what.encode()) if isinstance(what, str) else self.value(what)
                if item is not None:
                    by_target.setdefault(target, []).append(item)
            for target, items in by_target.items():
                if target not in names:
                    if len(names) >= MAX_STATES:
                        raise error_at(
                            ConstraintTooLarge,
                            pointer,
                            f"counting items needs more than {MAX_STATES} states; lower the bounds",
                        )
                    names[target] = self.reserve()
                    pending.append(target)
                options.append(Sequence((*comma, alternation(*items), Rule(names[target]))))
            self.define(names[state], alternation(*options))
        return layout.bracketed(b"[", (Rule(names[start]),), b"]", may_be_empty=False)


State = tuple[int, tuple[int, ...]]


def _too_many_values(pointer: str, bound: str) -> ConstraintError:
    return error_at(
        UnsupportedSchema,
        pointer,
        f"unique items need an item schema with {bound} (enum, const, boolean, null), since which were written is kept "
        "as a set, a bit for each; list the values, or leave uniqueItems to a check afterwards",
    )
