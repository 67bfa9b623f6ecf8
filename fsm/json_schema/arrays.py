"""Arrays: one branch's facets as an expression.

Plain arrays are a list of fixed items and a repetition. `uniqueItems` of a list is `AnyOrder` over its values; other
strings are remembered while a text is written (`keys`). `contains`, and `uniqueItems` of few values after fixed items,
become right-linear rules, one per state of the count (or per set of values used), which the automaton runs as states.
So does the negation of `uniqueItems` over few values: one of them comes twice, and which one is left open at first.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from math import inf

from ...errors import ConstraintError, UnsupportedSchema
from ..network.expression import (
    EMPTY_TEXT,
    AnyOrder,
    Embed,
    Expression,
    Member,
    Parts,
    Repeat,
    Sequence,
)
from ..record import record
from .algebra import ArrayFacet, Contains, Goal
from .disjointness import goal_of_item
from .item_states import ItemStates, State
from .layout import Layout
from .plain import PlainArray
from .texts import error_at

MAX_UNIQUE = 10  # values of items after fixed ones
MAX_UNIQUE_LIST = 4096
MAX_REPEATED = 128  # values of which one must come twice

Value = Callable[[Goal], "Expression | None"]
"""Compiles a goal; None if no value fulfils it."""
DistinctStrings = tuple["Embed | None", "int | None"]
"""Strings that come once in a list (None: there are none), and how many there are (None: endlessly many)."""


@record
class ArrayWriter:
    """What arrays need from the compiler.

    Attributes:
        value: compiles a goal.
        texts: all values of a goal as JSON texts, None if they are too many, or objects or arrays; constants: also of a
            plain list with objects or arrays in it, if each value has one text.
        strings: all values of a goal, each once in a list, and how many they are; None if not all of them are strings.
        constant: the goal of a value.
        is_impossible: whether a goal is certain to have no value.
        states: writes arrays whose items are counted.
    """

    layout: Layout
    value: Value
    texts: Callable[[Goal, int], list[str] | None]
    constants: Callable[[Goal, int], list[str] | None]
    strings: Callable[[Goal], DistinctStrings | None]
    constant: Callable[[object, str], Goal]
    is_impossible: Callable[[Goal], bool]
    states: ItemStates

    def array(self, facets: tuple[ArrayFacet, ...]) -> Expression | None:
        """All arrays that pass every facet; None if there are none."""
        minimum = max((facet.minimum for facet in facets), default=0)
        maximum = min((facet.maximum for facet in facets if facet.maximum is not None), default=None)
        if maximum is not None and maximum < minimum:
            return None
        num_fixed = max((len(facet.prefix) for facet in facets), default=0)
        if maximum is not None and maximum < num_fixed:
            num_fixed = maximum
        contains = [contained for facet in facets for contained in facet.contains]
        unique = [facet for facet in facets if facet.unique]
        repeated = next((facet for facet in facets if facet.repeated), None)
        if repeated is not None:
            if unique or (maximum is not None and maximum < 2):
                return None
            goals = [goal_of_item(facets, index) for index in range(num_fixed + 1)]
            twice = self._repeatable(goals, maximum, f"{repeated.pointer}/uniqueItems")
            return self.states.containing(facets, contains, max(minimum, 2), maximum, num_fixed, twice)
        if unique and (maximum is None or maximum > 1):
            return self._unique(facets, contains, minimum, maximum, num_fixed, f"{unique[0].pointer}/uniqueItems")
        if contains:
            return self.states.containing(facets, contains, minimum, maximum, num_fixed)
        return self._plain(facets, minimum, maximum, num_fixed)

    def plain(self, plain: PlainArray) -> Expression | None:
        """The arrays of a schema that says nothing else; None if there are none."""
        items = self.value(plain.items)
        return self._listing((), items, 0, None if items is not None else 0)

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
        return self._listing(tuple(fixed), rest, minimum, maximum)

    def _listing(
        self,
        fixed: tuple[Expression, ...],
        rest: Expression | None,
        minimum: int,
        maximum: int | None,
    ) -> Expression | None:
        """Some items, then any number of others; None if there cannot be enough."""
        layout, num_fixed = self.layout, len(fixed)
        if maximum is not None and maximum < minimum:
            return None
        if maximum == 0:
            return layout.empty(b"[", b"]")
        if not fixed:
            assert rest is not None
            listed = layout.listed((rest,), minimum, maximum)
            assert listed is not None
            return layout.bracketed(b"[", listed[0], b"]", may_be_empty=listed[1])
        tail: Parts = ()
        if rest is not None:
            upper = None if maximum is None else maximum - num_fixed
            tail = (Repeat(Sequence((*layout.comma, rest)), max(minimum - num_fixed, 0), upper),)
        num_certain = min(max(minimum, 1), num_fixed)
        for item in reversed(fixed[num_certain:]):
            tail = (Repeat(Sequence((*layout.comma, item, *tail)), 0, 1),)
        certain = [part for item in fixed[1:num_certain] for part in (*layout.comma, item)]
        return layout.bracketed(b"[", (fixed[0], *certain, *tail), b"]", may_be_empty=minimum == 0)

    # ---------------------------------------------------------------- uniqueItems

    def _repeatable(self, goals: list[Goal], maximum: int | None, pointer: str) -> list[Goal]:
        """The values, each as a goal, that can be items twice; the last goal is that of all items after the others."""
        rest = len(goals) - 1
        pairs = {goals[one] | goals[other]: None for other in range(rest) for one in range(other)}
        if maximum is None or maximum > rest:
            pairs.update(dict.fromkeys(goals[rest] | goal for goal in goals[:rest]))
        if maximum is None or maximum > rest + 1:
            pairs[goals[rest]] = None
        found: dict[str, None] = {}
        for goal in pairs:
            texts = self.texts(goal, MAX_REPEATED)
            if texts is None or len(found) > MAX_REPEATED:
                message = (
                    f"its negation is supported for items out of at most {MAX_REPEATED} strings, numbers and words"
                )
                raise error_at(UnsupportedSchema, pointer, f"{message}; list the values")
            found.update(dict.fromkeys(texts))
        return [self.constant(json.loads(text), pointer) for text in found]

    def _unique(
        self,
        facets: tuple[ArrayFacet, ...],
        contains: list[Contains],
        minimum: int,
        maximum: int | None,
        num_fixed: int,
        pointer: str,
    ) -> Expression | None:
        """Few values are members in any order; with fixed items before them, states that say which are used.

        Strings that are too many for that are remembered while a text is written (`keys`).
        """
        goals = [goal_of_item(facets, index) for index in range(num_fixed + 1)]
        if not num_fixed and not contains:
            constants = self.constants(goals[0], MAX_UNIQUE_LIST)
            if constants is not None:
                return self._unique_list(constants, minimum, maximum)
        listed = [self.texts(goal, MAX_UNIQUE) for goal in goals]
        values = sorted({text for texts in listed if texts is not None for text in texts})
        if None not in listed and len(values) <= MAX_UNIQUE:
            return self._unique_values(listed, values, contains, goals, minimum, maximum, pointer)
        writer = self
        if not self._differ_anyway(goals, maximum):
            strings = None if contains else self._distinct(goals, minimum, maximum)
            if strings is not None:
                return strings[0]
            if minimum > 1 or any(contained.minimum > 0 for contained in contains):
                raise not_few(pointer)
            layout = self.layout.with_edges()
            writer = replace(self, layout=layout, states=replace(self.states, layout=layout))
        if contains:
            return writer.states.containing(facets, contains, minimum, maximum, num_fixed)
        return writer._plain(facets, minimum, maximum, num_fixed)

    def _differ_anyway(self, goals: list[Goal], maximum: int | None) -> bool:
        """Whether items always differ: no value fulfils two of the goals, nor the last if that stands for several."""
        used = goals[:maximum]
        if len(used) > MAX_UNIQUE or ((maximum is None or maximum > len(goals)) and not self.is_impossible(goals[-1])):
            return False
        return all(self.is_impossible(one | other) for one, other in combinations(used, 2))

    def _unique_values(
        self,
        listed: list[list[str] | None],
        values: list[str],
        contains: list[Contains],
        goals: list[Goal],
        minimum: int,
        maximum: int | None,
        pointer: str,
    ) -> Expression | None:
        """States are (items so far, how often each `contains` was fulfilled and which values are used)."""
        matching = [
            {text for goal in goals for text in self.texts(goal.union(contained.goal), MAX_UNIQUE) or ()}
            for contained in contains
        ]
        number = {text: index for index, text in enumerate(values)}
        choices = [[(number[text], text) for text in texts or ()] for texts in listed]
        num_contains = len(contains)

        def moves(state: State) -> tuple[bool, list[tuple[str, State]]]:
            index, counts, used = state[0], state[1][:num_contains], state[1][num_contains:]
            stop = index >= minimum and all(n >= c.minimum for n, c in zip(counts, contains, strict=True))
            found: list[tuple[str, State]] = []
            if maximum is not None and index >= maximum:
                return stop, found
            for value, text in choices[min(index, len(choices) - 1)]:
                after = tuple(
                    n + (index >= c.first and text in texts)
                    for n, c, texts in zip(counts, contains, matching, strict=True)
                )
                is_fit = all(c.maximum is None or n <= c.maximum for n, c in zip(after, contains, strict=True))
                if value not in used and is_fit:
                    found.append((text, (index + 1, (*after, *sorted((*used, value))))))
            return stop, found

        return self.states.rules((0, (0,) * num_contains), moves, pointer)

    def _unique_list(self, values: list[str], minimum: int, maximum: int | None) -> Expression | None:
        """Some values, each at most once."""
        if minimum > len(values):
            return None
        if not values:
            return self.layout.empty(b"[", b"]")
        members = tuple(Member(text.encode(), EMPTY_TEXT) for text in values)
        upper = None if maximum is None or maximum >= len(values) else maximum
        items = AnyOrder(members, (), Sequence(self.layout.comma), minimum, upper)
        return self.layout.bracketed(b"[", (items,), b"]", may_be_empty=minimum == 0)

    def _distinct(self, goals: list[Goal], minimum: int, maximum: int | None) -> tuple[Expression | None] | None:
        """Strings that differ: those of the goals but the last, then any number of the last; None: not only strings.

        No list may come to a place where all strings have been used up. After i items at most i of them have been.
        """
        items: list[Embed] = []
        counts: list[float] = []
        for goal in goals[:maximum]:
            strings = self.strings(goal)
            if strings is None:
                return None
            item, count = strings
            if item is None:
                maximum = len(items)
                break
            items.append(replace(item, is_owed=minimum > 1))
            counts.append(inf if count is None else count)
        rest = items.pop() if len(items) == len(goals) else None
        if rest is not None and counts[-1] < (inf if maximum is None else maximum):
            if items:
                return None
            maximum = int(counts[-1])
        if any(counts[index] <= index for index in range(len(items))):
            return None
        return (self._listing(tuple(items), rest, minimum, maximum),)


def not_few(pointer: str) -> ConstraintError:
    return error_at(
        UnsupportedSchema,
        pointer,
        f"with minItems above 1 it is supported for strings, and with that or with contains for items "
        f"out of at most {MAX_UNIQUE_LIST} listed values ({MAX_UNIQUE} with prefixItems or contains); list the values, "
        "write them as strings, or leave one of both to a later check",
    )
