"""Proofs that two goals exclude each other, so that `oneOf` need not say so.

A proof looks at types, at the languages of strings and numbers, and at members that both sides must have: a tag
with different constants, a required key that the other side forbids, a different number of items. No proof means
nothing: the caller then spells the exclusion out. Depth and effort are bounded.
"""

from __future__ import annotations

from typing import Protocol

from ...errors import ConstraintTooLarge
from ..compile_time import CompileTime
from ..record import record
from .algebra import ARRAY, NEVER, NUMBER, OBJECT, STRING, ArrayFacet, Branch, Goal, ObjectFacet, Test, TypeMask
from .keys import forbidden_keys, goal_of_key, required_keys, settled
from .listed_numbers import are_far_apart
from .numbers import is_impossible
from .strings import are_apart, asks_for_lengths
from .texts import error_at

MAX_DEPTH = 3
MAX_PAIRS = 400
MAX_EFFORT = 60_000
PRODUCT_EFFORT, WALK_EFFORT = 20, 4  # a product of automata, a walk through two, compared with a look at a pair


class Branches(Protocol):
    """What knows the branches of goals."""

    @property
    def in_doubt(self) -> bool:
        """Whether they may say less of objects to some validators."""

    def branches(self, goal: Goal) -> tuple[Branch, ...]:
        """The branches of a goal."""

    def is_expanding(self, goal: Goal) -> bool:
        """Whether they must not be asked for now, or are not all."""


class Effort:
    """What was spent on proofs for one schema text, in pairs looked at."""

    __slots__ = ("spent",)

    def __init__(self) -> None:
        self.spent = 0

    def spend(self, pointer: str) -> None:
        """Notes a pair of options of the schema at `pointer`; ConstraintTooLarge if that is one too many."""
        self.spent += 1
        if self.spent > MAX_EFFORT:
            raise error_at(
                ConstraintTooLarge,
                f"{pointer}/oneOf",
                "too many options to distinguish; give each a required key with a constant of its own, or use anyOf",
            )


@record
class Disjointness:
    """Proofs between the goals of one schema text.

    Attributes:
        of: knows the branches; since it makes this object when it needs a proof, it keeps the others.
        known, impossible: what was found out about pairs of goals and about goals.
        time: how long it may take.
    """

    of: Branches
    known: dict[tuple[Goal, Goal], bool]
    impossible: dict[Goal, bool]
    effort: Effort
    time: CompileTime

    def goals(self, first: Goal, second: Goal, depth: int = 0) -> bool:
        """Whether no value fulfils both, as far as can be proved."""
        if first == NEVER or second == NEVER or any(atom ^ 1 in second for atom in first):
            return True
        if first == second or depth > MAX_DEPTH or not first or not second:
            return False
        key = (first, second)
        known = self.known.get(key)
        if known is None:
            known = self.known.get((second, first))
        if known is None:
            lefts, rights = self._branches_of(first), self._branches_of(second)
            if lefts is None or rights is None or len(lefts) * len(rights) > MAX_PAIRS:
                return False
            known = all(self._branches(left, right, depth) for left in lefts for right in rights)
            self.known[key] = known
        return known

    def within(self, context: Branch, first: Goal, second: Goal) -> bool:
        """Whether no value of the branch `context` fulfils both goals."""
        if self.goals(first, second):
            return True
        lefts, rights = self._branches_of(first), self._branches_of(second)
        if lefts is None or rights is None or len(lefts) * len(rights) > MAX_PAIRS:
            return False
        is_bare = not context.types & ~(OBJECT | ARRAY) and not context.objects and not context.arrays
        if is_bare and not any(branch.types & ~context.types for branch in lefts):
            return False  # the context adds nothing
        return all(self._branches(_joined(context, left), right, 0) for left in lefts for right in rights)

    def free_twice(self, goals: list[Goal]) -> TypeMask:
        """The types of which two or more goals take every value."""
        once = twice = 0
        for goal in self.time.over(goals, name="oneOf"):
            free = _free_types(self._branches_of(goal) or ())
            twice |= once & free
            once |= free
        return twice

    def are_tagged(self, context: Branch, goals: list[Goal]) -> bool:
        """Whether within the context one key distinguishes all goals, having other constants under each of them.

        What `within` would prove of every two of them, in time proportional to their number.
        """
        options = self._facets(context, goals)
        if options is None:
            return False
        required = [required_keys(facets) for option in options for facets in option]
        keys = set.intersection(*required) if required else set()
        return any(self._is_tag(options, key) for key in sorted(keys))

    def tag(self, context: Branch, goals: list[Goal]) -> str | None:
        """A key that distinguishes all goals within the context in objects that have it; None if there is none."""
        options = self._facets(context, goals)
        if options is None:
            return None
        named = [{key for facet in facets for key in facet.properties} for option in options for facets in option]
        keys = set.intersection(*named) if named else set()
        return next((key for key in sorted(keys) if self._is_tag(options, key)), None)

    def _facets(self, context: Branch, goals: list[Goal]) -> list[list[tuple[ObjectFacet, ...]]] | None:
        """For each goal, what its branches say of the objects of the context; None if there are other values."""
        options: list[list[tuple[ObjectFacet, ...]]] = []
        for goal in self.time.over(goals, name="oneOf"):
            branches = self._branches_of(goal)
            if branches is None or any(branch.types & context.types & ~OBJECT for branch in branches):
                return None
            options.append([context.objects + branch.objects for branch in branches])
        return None if self.of.in_doubt else options

    def _is_tag(self, options: list[list[tuple[ObjectFacet, ...]]], key: str) -> bool:
        """Whether the values of a key are constants under each option, and others under each."""
        seen: set[object] = set()
        for option in options:
            own: set[object] = set()
            for facets in option:
                constants = self.constants(goal_of_key(facets, key))
                if constants is None:
                    return False
                own |= constants[0]
            if not seen.isdisjoint(own):
                return False
            seen |= own
        return True

    def constants(self, goal: Goal) -> tuple[set[object], bool] | None:
        """Strings and numbers, listed one by one, among which are all values that fulfil a goal; None if there is no
        such list. And whether these are just the values."""
        branches = None if goal == NEVER or not goal else self._branches_of(goal)
        if branches is None:
            return None
        found: set[object] = set()
        is_exact = True
        for branch in branches:
            if branch.types & ~(NUMBER | STRING):
                return None
            for bit, tests in ((NUMBER, branch.numbers), (STRING, branch.strings)):
                if branch.types & bit:
                    listed = _among(tests)
                    if listed is None:
                        return None
                    found |= listed
                    is_exact = is_exact and len(tests) == 1
        return found, is_exact

    def is_impossible(self, goal: Goal) -> bool:
        """Whether it is proved that no value fulfils a goal of several schemas."""
        if goal == NEVER:
            return True
        if len(goal) < 2 or self.of.is_expanding(goal):
            return False
        known = self.impossible.get(goal)
        if known is None:
            branches = self._branches_of(goal)
            known = branches is not None and all(_is_void(branch, self.time) for branch in branches)
            self.impossible[goal] = known
        return known

    def _branches_of(self, goal: Goal) -> tuple[Branch, ...] | None:
        """All branches of a goal; None if proofs must do without them, which may turn out as they are worked out."""
        if self.of.is_expanding(goal):
            return None
        found = self.of.branches(goal)
        return None if self.of.is_expanding(goal) else found

    def _branches(self, left: Branch, right: Branch, depth: int) -> bool:
        common = left.types & right.types
        if common & ~(NUMBER | STRING | ARRAY | OBJECT):
            return False
        if common & NUMBER:
            if _takes_product(left.numbers, right.numbers):
                self.effort.spent += PRODUCT_EFFORT
            if not _numbers(left.numbers, right.numbers, self.time):
                return False
        if common & STRING:
            are_products = asks_for_lengths(left.strings) or asks_for_lengths(right.strings)
            self.effort.spent += PRODUCT_EFFORT if are_products else WALK_EFFORT
            if not _strings(left.strings, right.strings, self.time):
                return False
        if common & ARRAY and not self._arrays(left.arrays, right.arrays, depth):
            return False
        return not common & OBJECT or (not self.of.in_doubt and self._objects(left.objects, right.objects, depth))

    def _objects(self, left: tuple[ObjectFacet, ...], right: tuple[ObjectFacet, ...], depth: int) -> bool:
        if not left or not right:
            return False
        required = required_keys(left), required_keys(right)
        if not required[0].isdisjoint(forbidden_keys(right)) or not required[1].isdisjoint(forbidden_keys(left)):
            return True
        for key in sorted(required[0] | required[1]):
            self.time.check(left[0].pointer)  # a key is looked for in every facet, and there may be many of both
            if self.goals(goal_of_key(left, key), goal_of_key(right, key), depth + 1):
                return True
        return False

    def _arrays(self, left: tuple[ArrayFacet, ...], right: tuple[ArrayFacet, ...], depth: int) -> bool:
        facets = left + right
        minimum = max((facet.minimum for facet in facets), default=0)
        if any(facet.maximum is not None and facet.maximum < minimum for facet in facets):
            return True
        return any(
            self.goals(goal_of_item(left, index), goal_of_item(right, index), depth + 1)
            for index in range(min(minimum, 8))
        )


def _joined(left: Branch, right: Branch) -> Branch:
    """The values that belong to both branches."""
    return Branch(
        left.pointer,
        left.types & right.types,
        left.numbers + right.numbers,
        left.strings + right.strings,
        left.arrays + right.arrays,
        left.objects + right.objects,
    )


def _free_types(branches: tuple[Branch, ...]) -> TypeMask:
    """The types of which some branch takes every value."""
    found = 0
    for branch in branches:
        said = (NUMBER, branch.numbers), (STRING, branch.strings), (ARRAY, branch.arrays), (OBJECT, branch.objects)
        found |= branch.types & ~sum(bit for bit, conditions in said if conditions)
    return found


def _is_void(branch: Branch, time: CompileTime) -> bool:
    """Whether a branch of strings or numbers has none."""
    if branch.types == STRING and len(branch.strings) > 1:
        return _strings(branch.strings[:1], branch.strings[1:], time)
    if branch.types == NUMBER and len(branch.numbers) > 1:
        return _numbers(branch.numbers[:1], branch.numbers[1:], time)
    return False


def goal_of_item(facets: tuple[ArrayFacet, ...], index: int) -> Goal:
    """The goal of the item at an index, `contains` aside."""
    goal: Goal = frozenset()
    for facet in facets:
        goal |= facet.prefix[index] if index < len(facet.prefix) else facet.items
    return settled(goal)


def _strings(left: tuple[Test, ...], right: tuple[Test, ...], time: CompileTime) -> bool:
    if not left or not right:
        return False
    constants = _among(left), _among(right)
    if constants[0] is not None and constants[1] is not None and constants[0].isdisjoint(constants[1]):
        return True
    try:
        return are_apart(left, right, time)
    except ConstraintTooLarge:
        return False


def _takes_product(left: tuple[Test, ...], right: tuple[Test, ...]) -> bool:
    """Whether only an automaton can distinguish the numbers."""
    is_listed = _among(left) is not None or _among(right) is not None
    return bool(left and right) and not is_listed and not are_far_apart(left, right)


def _numbers(left: tuple[Test, ...], right: tuple[Test, ...], time: CompileTime) -> bool:
    if not left or not right:
        return False
    constants = _among(left), _among(right)
    if constants[0] is not None and constants[1] is not None:
        return constants[0].isdisjoint(constants[1])
    try:
        return are_far_apart(left, right) or is_impossible(left + right, time)
    except ConstraintTooLarge:
        return False


def _among(tests: tuple[Test, ...]) -> frozenset[object] | None:
    for test in tests:
        if test[0] == "among":
            assert isinstance(test[1], frozenset)
            return test[1]
    return None
