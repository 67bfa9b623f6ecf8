"""What a sheet rules out and what it says already, so that neither becomes a case of its own.

::

    path is a string, required                      of this sheet
    path is no string, or line is missing or none   only the second is left: it must hold
    line is missing or none, or else …              holds already: no cases

Negations of large objects (the other options of a `oneOf`) are long lists of options, nearly all of which contradict
what the sheet says of the same keys. Tried one after the other, n such lists are as many cases as there are
combinations; looked at together, mostly one. Costs a look at every option per sheet, so it is done only where there
are many sheets. Knows sheets of conjunctions that are not worked off; what it cannot decide stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .algebra import ARRAY, NEVER, NUMBER, OBJECT, STRING, Clause, Conjunction, Disjunction, Goal, Keys, ObjectFacet
from .keys import forbidden_keys, goal_of_key, is_in, names_only, required_keys
from .sheet import Rank, Sheet, is_possible

_IMPOSSIBLE = Conjunction("", types=0)


def prune(sheet: Sheet, is_impossible: Callable[[Goal], bool]) -> bool:
    """Takes from the disjunctions of a sheet what cannot be, drops those that hold, and moves those with one option
    left to `todo`. Whether there were any of the latter, so that the sheet has to absorb them."""
    said = _Said(sheet, is_impossible)
    left: list[tuple[Rank, Disjunction]] = []
    is_pruned = False
    for rank, disjunction in sheet.disjunctions:
        if disjunction.exclusive:
            left.append((rank, disjunction))
            continue
        if any(map(said.holds, disjunction.options)):
            continue
        options = tuple(option for option in disjunction.options if said.may_hold(option))
        if len(options) > 1:
            left.append((rank, replace(disjunction, options=options)))
        else:
            sheet.todo.append((rank, options[0] if options else _IMPOSSIBLE))
            is_pruned = True
    sheet.disjunctions = left
    return is_pruned


class _Said:
    """What a sheet says by now."""

    def __init__(self, sheet: Sheet, is_impossible: Callable[[Goal], bool]) -> None:
        self._sheet = sheet
        self._is_impossible = is_impossible
        self._facets = [facet for _, facet in sheet.objects]
        self._arrays = {id(facet) for _, facet in sheet.arrays}
        self._required, self._forbidden = required_keys(self._facets), forbidden_keys(self._facets)
        self._clauses = {clause for facet in self._facets for clause in facet.clauses}
        self._goals: dict[str, Goal] = {}

    def may_hold(self, option: Conjunction) -> bool:
        """False if the option certainly contradicts the sheet."""
        types = option.types & self._sheet.types
        if types != OBJECT:
            return is_possible(option, self._sheet)
        return is_possible(option, self._sheet) and all(map(self._may_be, option.objects))

    def holds(self, option: Conjunction) -> bool:
        """Whether the option certainly demands nothing that the sheet does not."""
        sheet = self._sheet
        if sheet.types & ~option.types or option.disjunctions or not sheet.seen.keys() >= set(option.atoms):
            return False
        if sheet.types & NUMBER and not sheet.numbers.keys() >= set(option.numbers):
            return False
        if sheet.types & STRING and not sheet.strings.keys() >= set(option.strings):
            return False
        if sheet.types & ARRAY and not all(id(facet) in self._arrays for facet in option.arrays):
            return False
        return not sheet.types & OBJECT or all(map(self._is_said, option.objects))

    def _goal(self, key: str) -> Goal:
        found = self._goals.get(key)
        if found is None:
            found = self._goals[key] = goal_of_key(self._facets, key)
        return found

    def _may_be(self, facet: ObjectFacet) -> bool:
        required = required_keys((facet,))
        if not required.isdisjoint(self._forbidden) or not self._required.isdisjoint(forbidden_keys((facet,))):
            return False
        required |= self._required
        keys = [key for key in facet.properties if key in required]
        return not any(self._is_impossible(goal_of_key((*self._facets, facet), key)) for key in keys)

    def _is_said(self, facet: ObjectFacet) -> bool:
        if not names_only(facet) or facet.evaluates:
            return False
        return (
            all(map(self._is_asked, facet.clauses))
            and all(goal <= self._goal(key) or self._goal(key) == NEVER for key, goal in facet.properties.items())
            and all(self._is_met(keys, goal) for keys, goal in facet.witnesses)
        )

    def _is_met(self, keys: Keys, goal: Goal) -> bool:
        """Whether a key that must be there is some key of the set with such a value."""
        return not keys.goal and any(goal <= self._goal(key) and is_in(keys, key) for key in self._required)

    def _is_asked(self, clause: Clause) -> bool:
        return clause in self._clauses or any(key in self._forbidden and not present for key, present in clause)
