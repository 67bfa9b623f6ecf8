"""Factoring: disjunctions that speak of named keys alone, as conditions that take no cases.

::

    if  kind is "a"         (kind is there, and is "a")        literals   (kind, a)  (size, present)
    then size required      implies size                       condition  not (kind, a)  or  (size, present)

n disjunctions that are worked off one after the other are 2**n cases, whatever they are about. As a conjunctive normal
form over literals "this key is there, and its value fulfils that", they are n conditions, and what a condition costs
is decided where objects are written: what lies between the first and the last of its keys (`schema_order`).

A disjunction is left as it is where it says anything else: patterns, other keys, numbers of keys, `oneOf`.
Knows conjunctions, and sheets of them; values of keys are not looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..compile_time import CompileTime
from ..record import record
from .algebra import ANY_TYPE, ARRAY, OBJECT, Condition, Conjunction, Disjunction, ObjectFacet
from .keys import names_only
from .sheet import Sheet

MAX_CONDITIONS = 64
"""Most conditions that one disjunction may become."""
MAX_NESTING = 16

_FALSE: Condition = frozenset()


@record
class Factoring:
    """Makes conditions of the disjunctions of sheets.

    Attributes:
        conjunction: what an atom demands.
        closes: whether objects that name keys have no others. Then only keys that are named anyway are spoken of.
        time: how long it may take.
        only_scalars: whether nothing else may be asked of values, so that telling these apart takes no rules.
    """

    conjunction: Callable[[int], Conjunction]
    closes: bool
    time: CompileTime
    only_scalars: bool = False

    def split(self, sheet: Sheet) -> Sheet | None:
        """Leaves to a sheet its objects, with conditions for all disjunctions that can be such; None if there is none.

        Returns:
            A sheet for the values that are no objects, with all disjunctions as they were.
        """
        if not sheet.types & OBJECT:
            return None
        left, facets = [], []
        named = {key for _, facet in sheet.objects if facet.evaluates for key in facet.properties}
        for rank, disjunction in sheet.disjunctions:
            found = self._of_disjunction(disjunction, 0)
            if found is None or not all(self._may_be_carried(named, condition) for condition in found):
                left.append((rank, disjunction))
            else:
                pointer = disjunction.options[0].pointer
                facets.append((rank, ObjectFacet(pointer, {}, conditions=tuple(found), evaluates=False)))
        if not facets:
            return None
        others = sheet.copy()
        others.types &= ANY_TYPE & ~OBJECT
        sheet.types &= OBJECT
        sheet.disjunctions = left
        sheet.objects += facets
        return others

    def _may_be_carried(self, named: set[str], condition: Condition) -> bool:
        if self.only_scalars and any(
            atom and self.conjunction(atom & ~1).types & (ARRAY | OBJECT) for _, atom, _ in condition
        ):
            return False
        return not self.closes or all(key in named for key, _, _ in condition)

    def _of_conjunction(self, conjunction: Conjunction, depth: int) -> list[Condition] | None:
        """The conditions under which an object fulfils a conjunction; None if there are others, or too many."""
        if not conjunction.types & OBJECT:
            return [_FALSE]
        if depth > MAX_NESTING:
            return None
        found: dict[Condition, None] = {}
        for facet in conjunction.objects:
            if not names_only(facet) or facet.witnesses or facet.evaluates_rest:
                return None
            for clause in facet.clauses:
                found[frozenset([(key, 0, present) for key, present in clause])] = None
            for key, goal in facet.properties.items():
                for atom in goal:
                    found[frozenset(((key, atom ^ 1, False),))] = None
        for atom in conjunction.atoms:
            inner = [_FALSE] if atom == 1 else self._of_conjunction(self.conjunction(atom), depth + 1)
            if inner is None:
                return None
            found.update(dict.fromkeys(inner))
        for disjunction in conjunction.disjunctions:
            inner = self._of_disjunction(disjunction, depth + 1)
            if inner is None:
                return None
            found.update(dict.fromkeys(inner))
        return list(found) if len(found) <= MAX_CONDITIONS else None

    def _of_disjunction(self, disjunction: Disjunction, depth: int) -> list[Condition] | None:
        """The same for a disjunction: one condition of each option, in every way."""
        if disjunction.exclusive:
            return None
        several: list[list[Condition]] = []
        only: list[Condition] = []  # of options that have one: joined at once, as there may be very many
        for option in disjunction.options:
            self.time.check(option.pointer)
            own = self._of_conjunction(option, depth)
            if own is None:
                return None
            if len(own) == 1:
                only += own
            else:
                several.append(own)
        found = _not_always([_FALSE.union(*only)])
        for own in several:
            self.time.check(disjunction.options[0].pointer)
            if len(found) * len(own) > MAX_CONDITIONS * MAX_CONDITIONS:
                return None
            found = _not_always(one | other for one in found for other in own)
            if len(found) > MAX_CONDITIONS:
                return None
        return found


def _not_always(conditions: Iterable[Condition]) -> list[Condition]:
    """Each condition once, without those that every object meets."""
    return [condition for condition in dict.fromkeys(conditions) if not _always_holds(condition)]


def _always_holds(condition: Condition) -> bool:
    """Whether the condition is met by every object, as far as two of its literals tell."""
    for key, atom, holds in condition:
        if not holds and ((key, 0, True) in condition or (key, atom, True) in condition):
            return True
        if not holds and atom and (key, atom ^ 1, False) in condition:
            return True
    return False
