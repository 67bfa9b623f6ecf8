"""Variants: the values of a key, split by which atoms of conditions they fulfil, each part as a member of its own.

::

    kind: string    conditions on kind = "a", kind = "b"    variants  "a" | "b" | any other string

So a condition on keys and their values (`factoring`) becomes one on the presence of members: clauses, like `required`.
At most one member of a key is present; the writer of shapes ensures it (`Shape.key_of`). A key whose values no
condition asks about is its own only variant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product

from ...errors import ConstraintError, ConstraintTooLarge
from ..compile_time import CompileTime
from ..record import record
from .algebra import NEVER, Clause, Condition, Goal, ObjectFacet
from .keys import settled
from .texts import error_at

MAX_VARIANTS = 2_000
"""Most variants of one key."""
MAX_CLAUSES = 20_000
"""Most clauses that the conditions on one object become."""

Constants = Callable[[Goal], "tuple[set[object], bool] | None"]
"""See `deciding.Constants`."""


@record
class Variant:
    """Some of the values of a key.

    Attributes:
        name: of its member; the key itself if it is the only variant.
        fulfilled: the atoms, of those that are asked about, that its values fulfil; all of them even.
    """

    name: str
    goal: Goal
    fulfilled: frozenset[int]

    def fulfils(self, atom: int) -> bool:
        """Whether its values fulfil one of the atoms that are asked about, or the opposite of one."""
        return atom == 0 or (atom & ~1 in self.fulfilled) != bool(atom & 1)


def asked_atoms(facets: Iterable[ObjectFacet]) -> dict[str, list[int]]:
    """For every key in conditions, the atoms (even ones) that are asked of its values, in a fixed order."""
    found: dict[str, set[int]] = {}
    for facet in facets:
        for condition in facet.conditions:
            for key, atom, _ in condition:
                found.setdefault(key, set()).update((atom & ~1,) if atom else ())
    return {key: sorted(atoms) for key, atoms in sorted(found.items())}


def variants(
    key: str,
    goal: Goal,
    atoms: list[int],
    constants: Constants,
    is_impossible: Callable[[Goal], bool],
    pointer: str,
    time: CompileTime,
) -> list[Variant]:
    """All variants of a key; none is certainly empty, and each value belongs to one.

    Args:
        goal: of its values.
        atoms: what is asked of them.
        constants, is_impossible: see `Disjointness`.

    Raises:
        ConstraintTooLarge: there are more than `MAX_VARIANTS`.
    """
    time.check(pointer)
    listing, others = _listing(atoms, constants)
    if len(listing) >= MAX_VARIANTS:
        raise _too_many(key, pointer)
    refused = [atom ^ 1 for group in listing for atom in group[:1]]
    found = [(settled(goal | frozenset(refused)), frozenset[int]())]
    found += [(settled(goal | {group[0]}), frozenset(group)) for group in listing]
    for atom in others:
        time.check(pointer)
        split = [(settled(one | {atom}), held | {atom}) for one, held in found]
        split += [(settled(one | {atom ^ 1}), held) for one, held in found]
        found = [pair for pair in split if _may_be(pair[0], is_impossible)]
        if len(found) > MAX_VARIANTS:
            raise _too_many(key, pointer)
    found = [pair for pair in found if _may_be(pair[0], is_impossible)]
    if len(found) == 1:
        return [Variant(key, *found[0])]
    return [Variant(f"{key}\ud800{number}", *pair) for number, pair in enumerate(found)]  # no key can be written so


def _listing(atoms: list[int], constants: Constants) -> tuple[list[list[int]], list[int]]:
    """The atoms that list constants, no two of them the same (equal ones together), and all others."""
    groups: dict[frozenset[object], list[int]] = {}
    others: list[int] = []
    seen: set[object] = set()
    for atom in atoms:
        listed = constants(frozenset((atom,)))
        values = frozenset(listed[0]) if listed is not None else frozenset()
        if listed is not None and listed[1] and values in groups:
            groups[values].append(atom)
        elif listed is not None and listed[1] and seen.isdisjoint(values):
            groups[values] = [atom]
            seen |= values
        else:
            others.append(atom)
    return list(groups.values()), others


def _too_many(key: str, pointer: str) -> ConstraintError:
    message = f"conditions tell more than {MAX_VARIANTS} kinds of values of {key!r} apart; say fewer"
    return error_at(ConstraintTooLarge, pointer, message)


def _may_be(goal: Goal, is_impossible: Callable[[Goal], bool]) -> bool:
    return goal != NEVER and not is_impossible(goal)


def clauses_of_variants(
    conditions: Iterable[Condition], variants_of: dict[str, list[Variant]], pointer: str, time: CompileTime
) -> tuple[Clause, ...]:
    """Conditions as clauses on which members are there, of which at most one of each key is.

    Args:
        variants_of: of each key that the conditions speak of.

    Raises:
        ConstraintTooLarge: they are more than `MAX_CLAUSES`.
    """
    found: dict[Clause, None] = {}
    for condition in conditions:
        time.check(pointer)
        for clause in _clauses(condition, variants_of):
            found[clause] = None
            if len(found) > MAX_CLAUSES:
                message = f"conditions on keys and their values come to more than {MAX_CLAUSES}; say fewer"
                raise error_at(ConstraintTooLarge, pointer, message)
    return tuple(found)


def _clauses(condition: Condition, variants_of: dict[str, list[Variant]]) -> Iterable[Clause]:
    """A condition as clauses: of each key some members may be there, or also none of them."""
    allowed: set[tuple[str, bool]] = set()
    refused: list[list[tuple[str, bool]]] = []  # of each key that may be missing: the members that may not be there
    literals_of: dict[str, list[tuple[int, bool]]] = {}
    for key, atom, holds in condition:
        literals_of.setdefault(key, []).append((atom, holds))
    for key, literals in sorted(literals_of.items()):
        own = [
            variant for variant in variants_of[key] if any(variant.fulfils(atom) == holds for atom, holds in literals)
        ]
        if all(holds for _, holds in literals):
            allowed.update((variant.name, True) for variant in own)
        elif len(own) == len(variants_of[key]):
            return
        else:
            names = {variant.name for variant in own}
            refused.append([(variant.name, False) for variant in variants_of[key] if variant.name not in names])
    for choice in product(*refused):
        yield frozenset((*allowed, *choice))
