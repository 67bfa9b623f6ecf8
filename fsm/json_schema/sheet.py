"""Sheet: a branch in the making, with what is still to be worked off; `branching` is the only user.

A sheet gathers what holds of a value (types, tests, facets) and what is open: conjunctions that wait to be taken in,
and disjunctions of which one option will be chosen on a copy of the sheet.
"""

from __future__ import annotations

from ...errors import ConstraintTooLarge
from .algebra import ANY_TYPE, ARRAY, OBJECT, ArrayFacet, Branch, Conjunction, Disjunction, ObjectFacet, Test
from .texts import error_at

Rank = tuple[int, ...]
"""Where in the text a facet stands; it decides the order of the keys. It begins with `SAID`, or with `SILENT` for
all that was reached through a negation: that comes last, and evaluates nothing, not even under `not not`."""
SAID, SILENT = 0, 1


class Sheet:
    """A branch in the making."""

    __slots__ = ("arrays", "disjunctions", "numbers", "objects", "seen", "strings", "todo", "types")

    def __init__(self) -> None:
        self.types = ANY_TYPE
        self.numbers: dict[Test, None] = {}
        self.strings: dict[Test, None] = {}
        self.arrays: list[tuple[Rank, ArrayFacet]] = []
        self.objects: list[tuple[Rank, ObjectFacet]] = []
        self.seen: dict[int, int] = {}  # atoms, with SAID or SILENT
        self.todo: list[tuple[Rank, Conjunction]] = []
        self.disjunctions: list[tuple[Rank, Disjunction]] = []

    def copy(self) -> Sheet:
        other = Sheet()
        other.types, other.numbers, other.strings = self.types, self.numbers.copy(), self.strings.copy()
        other.arrays, other.objects = self.arrays.copy(), self.objects.copy()
        other.seen, other.todo = self.seen.copy(), self.todo.copy()
        other.disjunctions = self.disjunctions.copy()
        return other

    @property
    def size(self) -> int:
        """How much there is to copy."""
        conditions = len(self.numbers) + len(self.strings) + len(self.arrays) + len(self.objects)
        return 1 + conditions + len(self.seen) + len(self.todo) + len(self.disjunctions)

    def branch(self) -> Branch:
        if len(self.objects) > 1:
            self.objects.sort(key=lambda ranked: ranked[0])
        arrays = tuple(facet for _, facet in self.arrays) if self.types & ARRAY else ()
        objects = tuple(facet for _, facet in self.objects) if self.types & OBJECT else ()
        return Branch("", self.types, tuple(self.numbers), tuple(self.strings), arrays, objects)


def is_possible(option: Conjunction, sheet: Sheet) -> bool:
    """Whether the option does not contradict the sheet at first sight."""
    if not option.types & sheet.types:
        return False
    return not any(atom ^ 1 in sheet.seen for atom in option.atoms)


def narrowest(sheet: Sheet) -> int:
    """The index of a disjunction of the sheet with the fewest possible options."""
    best, fewest = 0, -1
    for index, (_, disjunction) in enumerate(sheet.disjunctions):
        count = sum(1 for option in disjunction.options if is_possible(option, sheet))
        if count <= 1:
            return index
        if fewest < 0 or count < fewest:
            best, fewest = index, count
    return best


def combinations(options: tuple[Conjunction, ...]) -> tuple[Conjunction, ...]:
    """A conjunction for every set of options that may hold at once."""
    if len(options) > 8:
        pointer = options[0].pointer
        raise error_at(ConstraintTooLarge, f"{pointer}/anyOf", "unevaluated… over more than 8 options; use oneOf")
    sets: list[Conjunction] = []
    for bits in range(1, 1 << len(options)):
        chosen = [option for index, option in enumerate(options) if bits >> index & 1]
        atoms = tuple(dict.fromkeys(atom for option in chosen for atom in option.atoms))
        sets.append(Conjunction(chosen[0].pointer, atoms=atoms))
    return tuple(sets)
