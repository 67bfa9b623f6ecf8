"""The vocabulary of the schema algebra: goals, facets, conjunctions and branches.

::

    atom    an int: 2 * site            the value is valid under the schema at that site
                    2 * site + 1        the value is not valid under it
    goal    a frozenset of atoms, all of which must hold.  ANYTHING = {} ; NEVER = {1}
    conjunction  simple constraints of one schema object, plus atoms, plus disjunctions of further conjunctions
    branch       simple constraints only: what a conjunction becomes once atoms and disjunctions are worked off

Since a goal names schemas by number and not by copy, schemas that contain themselves need no special care:
the goals of properties and items are expanded when they are compiled, and each of them once.

Pure data; immutable.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ..record import record

Goal: TypeAlias = frozenset[int]

ANYTHING: Goal = frozenset()
NEVER: Goal = frozenset((1,))

NULL, TRUE, FALSE, NUMBER, STRING, ARRAY, OBJECT = 1, 2, 4, 8, 16, 32, 64
BOOLEAN = TRUE | FALSE
ANY_TYPE = 127

TypeMask: TypeAlias = int
"""A set of JSON types, `true` and `false` apart: an or of the constants above."""

Test: TypeAlias = tuple[object, ...]
"""One condition on a string or a number, hashable, so that the automata it leads to can be cached:
`("pattern", p)`, `("length", a, b)`, `("format", f)`, `("integer",)`, `("minimum", x)`, `("among", frozenset)`,
`("not", tests)` … (see `strings` and `numbers`)."""

Clause: TypeAlias = frozenset[tuple[str, bool]]
"""A condition on which keys are there: at least one (key, is present) of these holds."""


Condition: TypeAlias = frozenset[tuple[str, int, bool]]
"""A condition on keys and their values: at least one literal (key, atom, holds) of these does. What holds, or does not:
the key is there and its value fulfils the atom (0: whatever its value is)."""


@record
class Keys:
    """A set of object keys: those not in `excluded`, not matched by `unmatched`, matched by `matched`, and valid
    (as strings) for `goal`; `unnamed`: only those among them that no schema names."""

    excluded: frozenset[str] = frozenset()
    unmatched: tuple[str, ...] = ()
    matched: tuple[str, ...] = ()
    goal: Goal = ANYTHING
    unnamed: bool = False


@record
class ObjectFacet:
    """What one schema says of an object.

    Attributes:
        properties: goal per named key, in the order of the schema.
        patterns: (pattern, goal) for all keys in which the pattern is found.
        additional: goal of every key that is neither named nor matched.
        clauses: conditions on which keys are there (a required key is a clause of one).
        names: goal that every key must fulfil as a string.
        minimum, maximum: bounds on the number of keys.
        witnesses: for each (keys, goal) there is a key of that set whose value fulfils the goal.
        evaluates: whether its keys count as evaluated for `unevaluatedProperties`.
        evaluates_rest: whether the additional ones do so too.
        conditions: on named keys and their values; only in branches (`factoring`).
    """

    pointer: str
    properties: dict[str, Goal]
    patterns: tuple[tuple[str, Goal], ...] = ()
    additional: Goal = ANYTHING
    clauses: tuple[Clause, ...] = ()
    names: Goal = ANYTHING
    minimum: int = 0
    maximum: int | None = None
    witnesses: tuple[tuple[Keys, Goal], ...] = ()
    evaluates: bool = True
    evaluates_rest: bool = False
    conditions: tuple[Condition, ...] = ()


@record
class Contains:
    """Between `minimum` and `maximum` items from position `first` on fulfil the goal."""

    goal: Goal
    minimum: int = 1
    maximum: int | None = None
    first: int = 0


@record
class ArrayFacet:
    """What one schema says of an array.

    Attributes:
        prefix, items: goals of the first items, and of all after them.
        minimum, maximum: bounds on the number of items.
        contains: conditions on how many items fulfil a goal.
        unique, repeated: no two items are equal; some two items are equal.
        evaluates, evaluates_rest: what counts as evaluated for `unevaluatedItems`.
    """

    pointer: str
    prefix: tuple[Goal, ...] = ()
    items: Goal = ANYTHING
    minimum: int = 0
    maximum: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False
    repeated: bool = False
    evaluates: bool = True
    evaluates_rest: bool = False


@record
class Disjunction:
    """At least one option holds.

    Attributes:
        inclusive: several may hold at once, and then all of them count as evaluated (`anyOf`).
        exclusive: no two may hold at once (`oneOf`); the options then consist of atoms only.
    """

    options: tuple[Conjunction, ...]
    inclusive: bool = False
    exclusive: bool = False


@record
class Conjunction:
    """A conjunction: types, tests, facets, atoms and disjunctions must all hold."""

    pointer: str
    types: TypeMask = ANY_TYPE
    numbers: tuple[Test, ...] = ()
    strings: tuple[Test, ...] = ()
    arrays: tuple[ArrayFacet, ...] = ()
    objects: tuple[ObjectFacet, ...] = ()
    atoms: tuple[int, ...] = ()
    disjunctions: tuple[Disjunction, ...] = ()
    own_first: bool = True
    """Whether its own properties are written before those that `atoms` and `disjunctions` lead to."""

    @property
    def is_simple(self) -> bool:
        """Whether nothing is left to be worked off."""
        return not self.atoms and not self.disjunctions

    @property
    def only_applies(self) -> bool:
        """Whether it says nothing by itself, but only what its atoms and disjunctions say."""
        return self.types == ANY_TYPE and not (self.numbers or self.strings or self.arrays or self.objects)

    @property
    def size(self) -> int:
        """How much it says by itself."""
        return 1 + len(self.numbers) + len(self.strings) + len(self.arrays) + len(self.objects)

    def narrowed(self) -> Conjunction:
        """The same without its disjunction, if that is the only thing to be worked off and has one simple option.

        So it is with constants that are no arrays and no objects.
        """
        if self.atoms or len(self.disjunctions) != 1 or len(self.disjunctions[0].options) != 1:
            return self
        (only,) = self.disjunctions[0].options
        if only.atoms or only.disjunctions or only.arrays or only.objects:
            return self
        numbers = self.numbers + tuple([test for test in only.numbers if test not in self.numbers])
        strings = self.strings + tuple([test for test in only.strings if test not in self.strings])
        return Conjunction(self.pointer, self.types & only.types, numbers, strings, self.arrays, self.objects)


Branch: TypeAlias = Conjunction
"""A conjunction in which nothing is left to be worked off: all values of its types that pass its tests and facets."""


def types_of(branches: Iterable[Branch]) -> TypeMask:
    """The types of all values of some branches."""
    types = 0
    for branch in branches:
        types |= branch.types
    return types
