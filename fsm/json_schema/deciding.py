"""What the constants of keys that must be there decide, so that it need not be tried.

::

    kind is one of a, b, c         of this sheet: kind = b
    if kind is a then A            it is not: nothing more is said
    if kind is b then B            it is: B
    if kind is c then C            it is not: nothing more is said

Without it every condition would split every sheet, and n of them would be n * n cases to be looked at. Here a sheet
that has chosen is done with all of them at once. Knows sheets of objects; whatever it cannot decide stays as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .algebra import NEVER, OBJECT, Conjunction, Disjunction, Goal
from .keys import goal_of_key, names_only, required_keys
from .sheet import Sheet

Constants = Callable[[Goal], "tuple[set[object], bool] | None"]
"""The strings and numbers among which all values of a goal are, and whether these are just its values; None: more."""

_IMPOSSIBLE = Conjunction("", types=0)


def decide(sheet: Sheet, conjunction: Callable[[int], Conjunction], constants: Constants) -> bool:
    """Takes from the disjunctions of a sheet of objects what cannot be, and moves those with one option left to `todo`.

    Whether there were any, so that the sheet has to absorb them.
    """
    facets = [facet for _, facet in sheet.objects]
    required = required_keys(facets)
    if not required:
        return False
    known: dict[int, bool | None] = {}
    values: dict[str, tuple[set[object], bool] | None] = {}

    def holds(atom: int) -> bool | None:
        positive = atom & ~1
        if positive not in known:
            known[positive] = _holds(conjunction(positive), required, value)
        found = known[positive]
        return found if found is None or atom == positive else not found

    def value(key: str, goal: Goal) -> tuple[set[object], tuple[set[object], bool]] | None:
        asked = constants(goal)
        if asked is None:
            return None
        if key not in values:
            values[key] = constants(goal_of_key(facets, key))
        own = values[key]
        return None if own is None else (own[0], asked)

    left: list[tuple[tuple[int, ...], Disjunction]] = []
    for rank, disjunction in sheet.disjunctions:
        options = _left(disjunction, holds)
        if len(options) > 1:
            left.append(
                (rank, disjunction if options == disjunction.options else replace(disjunction, options=options))
            )
        else:
            sheet.todo.append((rank, options[0] if options else _IMPOSSIBLE))
    is_decided = len(left) < len(sheet.disjunctions)
    sheet.disjunctions = left
    return is_decided


def _left(disjunction: Disjunction, holds: Callable[[int], bool | None]) -> tuple[Conjunction, ...]:
    """The options that may be, without the negations in them that hold anyway."""
    options: list[Conjunction] = []
    for option in disjunction.options:
        found = [holds(atom) for atom in option.atoms]
        if False in found:
            continue
        if True in found and not disjunction.exclusive:
            atoms = tuple([atom for atom, held in zip(option.atoms, found, strict=True) if not (held and atom & 1)])
            option = option if len(atoms) == len(option.atoms) else replace(option, atoms=atoms)
        options.append(option)
    return tuple(options)


def _holds(
    conjunction: Conjunction,
    required: set[str],
    value: Callable[[str, Goal], tuple[set[object], tuple[set[object], bool]] | None],
) -> bool | None:
    """Whether all objects with the required keys fulfil what is said of constants; False: none does; None: unknown."""
    if conjunction.atoms or conjunction.disjunctions or len(conjunction.objects) != 1:
        return None
    if not conjunction.types & OBJECT:
        return False
    (facet,) = conjunction.objects
    is_certain = True
    for key, goal in facet.properties.items():
        compared = value(key, goal) if key in required and goal != NEVER else None
        if compared is None:
            is_certain = False
            continue
        own, (asked, is_exact) = compared
        if own.isdisjoint(asked):
            return False
        is_certain = is_certain and is_exact and own <= asked
    if not is_certain or facet.witnesses or not names_only(facet):
        return None
    return (
        True if required_keys((facet,)) == {key for clause in facet.clauses for key, _ in clause} <= required else None
    )
