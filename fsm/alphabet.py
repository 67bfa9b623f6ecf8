"""Alphabet: code points sorted into classes that an automaton cannot tell apart, and their UTF-8 spelling.

A text automaton reads characters, a token is bytes. The alphabet is the joint between both: it cuts the code
points 0 .. 0x10FFFF into intervals, gives every interval a class, and spells the classes as a small byte trie,
the *template*::

    starts   [0, 0x30, 0x3A, 0xD800, 0xE000]        template[node, byte] > 0   go on at that node
    classes  [1,    2,    1,      0,      1]                             < 0   a character of class -value ends here
                                                                         = 0   no character is spelt so

Class 0 holds what is never written: the surrogates. Node 0 is the root: a character boundary.

Invariants: `starts` is strictly increasing from 0; neighbours differ in class; classes are 0 .. num_classes - 1.
Cost: the template is built on first use, in time proportional to the number of intervals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, cached_property

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Interval = tuple[int, int]

MAX_CODE_POINT = 0x10FFFF
SURROGATES: Interval = (0xD800, 0xDFFF)


class Alphabet:
    """An immutable partition of the code points. Equality is identity; compare `starts` and `classes` if needed.

    Args:
        starts: int32[num_intervals], first code point of each interval.
        classes: int32[num_intervals], the class of each interval; 0 exactly for the surrogates.
        num_classes: number of classes, class 0 included.
    """

    __slots__ = ("__dict__", "classes", "num_classes", "starts")

    def __init__(self, starts: Ints, classes: Ints, num_classes: int) -> None:
        self.starts = starts
        self.classes = classes
        self.num_classes = num_classes

    @classmethod
    def from_sets(cls, sets: Sequence[Sequence[Interval]]) -> tuple[Alphabet, list[list[int]]]:
        """The coarsest alphabet in which every given set is a union of classes.

        Args:
            sets: each a list of inclusive intervals of code points (any order, may overlap).

        Returns:
            The alphabet, and for each set the list of its classes (never class 0).
        """
        cuts = {0, SURROGATES[0], SURROGATES[1] + 1}
        for intervals in sets:
            for first, last in intervals:
                cuts.add(first)
                cuts.add(last + 1)
        cuts.discard(MAX_CODE_POINT + 1)
        starts = np.array(sorted(cuts), np.int32)
        keys = [0] * len(starts)
        for index, intervals in enumerate(sets):
            bit = 1 << index
            firsts = np.searchsorted(starts, [first for first, _ in intervals])
            ends = np.searchsorted(starts, [last + 1 for _, last in intervals])
            for begin, end in zip(firsts.tolist(), ends.tolist(), strict=True):
                for position in range(begin, end):
                    keys[position] |= bit
        ids: dict[int, int] = {}
        surrogate = int(np.searchsorted(starts, SURROGATES[0]))
        classes = np.zeros(len(starts), np.int32)
        for position, key in enumerate(keys):
            if position != surrogate:
                classes[position] = ids.setdefault(key, len(ids) + 1)
        members: list[list[int]] = [[] for _ in sets]
        for key, class_id in ids.items():
            while key:
                low = key & -key
                members[low.bit_length() - 1].append(class_id)
                key ^= low
        return cls._merged(starts, classes, len(ids) + 1), members

    @classmethod
    def _merged(cls, starts: Ints, classes: Ints, num_classes: int) -> Alphabet:
        """Joins neighbouring intervals of the same class."""
        keep = np.ones(len(starts), np.bool_)
        keep[1:] = classes[1:] != classes[:-1]
        return cls(starts[keep], classes[keep], num_classes)

    def refine(self, other: Alphabet) -> tuple[Alphabet, Ints, Ints]:
        """The common refinement, and for each of its classes the class in `self` and in `other`."""
        starts = np.union1d(self.starts, other.starts).astype(np.int32)
        mine = self.classes[np.searchsorted(self.starts, starts, side="right") - 1].astype(np.int64)
        theirs = other.classes[np.searchsorted(other.starts, starts, side="right") - 1]
        codes, inverse = np.unique(mine * other.num_classes + theirs, return_inverse=True)
        refined = self._merged(starts, inverse.astype(np.int32), len(codes))
        return (
            refined,
            (codes // other.num_classes).astype(np.int32),
            (codes % other.num_classes).astype(np.int32),
        )

    def coarsen(self, new_class: Ints, num_classes: int) -> Alphabet:
        """The alphabet in which class c has become class `new_class[c]`; class 0 must stay 0."""
        return self._merged(self.starts, new_class[self.classes], num_classes)

    def class_of(self, code_point: int) -> int:
        """The class of one code point; 0 for a surrogate."""
        return int(self.classes[np.searchsorted(self.starts, code_point, side="right") - 1])

    def classes_of(self, text: str) -> list[int]:
        """The classes of all characters of a text."""
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
        found: list[int] = self.classes[np.searchsorted(self.starts, points, side="right") - 1].tolist()
        return found

    @cached_property
    def representatives(self) -> list[int]:
        """The first code point of each class, ASCII letters and digits preferred; -1 for an empty class."""
        found = [-1] * self.num_classes
        ends = [*self.starts[1:].tolist(), MAX_CODE_POINT + 1]
        for first, end, class_id in zip(self.starts.tolist(), ends, self.classes.tolist(), strict=True):
            if found[class_id] < 0x30:
                nicest = next((p for p in (0x61, 0x41, 0x30) if first <= p < end), first)
                if found[class_id] < 0 or nicest >= 0x30:
                    found[class_id] = nicest
        return found

    @cached_property
    def template(self) -> Ints:
        """int32[num_nodes, 256]: the byte trie of all characters, as drawn in the module's docstring."""
        wide = self._uniform_class
        if wide:
            template = _uniform_spelling().copy()
            template[template < 0] = -wide
            template[0, :0x80] = -self.ascii_classes
            return template
        return _Spelling(self.starts.tolist(), self.classes.tolist()).rows()

    @cached_property
    def ascii_classes(self) -> Ints:
        """int32[128]: the class of each ASCII character."""
        return self.classes[np.searchsorted(self.starts, np.arange(128), side="right") - 1]

    @property
    def _uniform_class(self) -> int:
        """The class of all characters beyond ASCII if they have the same and no ASCII character has it, else 0."""
        beyond = self.classes[int(np.searchsorted(self.starts, 0x80, side="right")) - 1 :]
        first = int(beyond[0])
        if ((beyond == first) | (beyond == 0)).all() and not (self.ascii_classes == first).any():
            return first
        return 0

    @cached_property
    def reach(self) -> npt.NDArray[np.bool_]:
        """bool[num_nodes, num_classes]: the classes that can still be completed from a node of the template."""
        template = self.template
        reach = np.zeros((len(template), self.num_classes), np.bool_)
        wide = self._uniform_class
        if wide:
            reach[:, wide] = True
            reach[0, self.ascii_classes] = True
            return reach
        for node in range(len(template) - 1, -1, -1):  # children have greater numbers than their parents
            row = template[node]
            reach[node, -row[row < 0]] = True
            for child in np.unique(row[row > 0]).tolist():
                reach[node] |= reach[child]
        return reach

    @cached_property
    def byte_costs(self) -> Ints:
        """int32[num_nodes, num_classes]: least number of bytes that complete a character of the class; 9: none."""
        template = self.template
        costs = np.full((len(template), self.num_classes), 9, np.int32)
        wide = self._uniform_class
        if wide:
            costs[:, wide] = _uniform_costs()
            costs[0, self.ascii_classes] = 1
            return costs
        for node in range(len(template) - 1, -1, -1):
            row = template[node]
            for child in np.unique(row[row > 0]).tolist():
                np.minimum(costs[node], costs[child] + 1, out=costs[node])
            costs[node, -row[row < 0]] = 1
        return np.minimum(costs, 9).astype(np.int32)


@cache
def _uniform_spelling() -> Ints:
    """The template in which all characters beyond ASCII have class 1 and ASCII class 2."""
    return _Spelling([0, 0x80, SURROGATES[0], SURROGATES[1] + 1], [2, 1, 0, 1]).rows()


@cache
def _uniform_costs() -> Ints:
    """For each node of that template: least number of bytes that complete a character beyond ASCII."""
    alphabet = Alphabet(
        np.array([0, 0x80, SURROGATES[0], SURROGATES[1] + 1], np.int32), np.array([2, 1, 0, 3], np.int32), 4
    )
    return np.minimum(alphabet.byte_costs[:, 1], alphabet.byte_costs[:, 3])


class _Spelling:
    """Builds the template: one node per distinct continuation, children numbered after their parents."""

    def __init__(self, starts: list[int], classes: list[int]) -> None:
        self.starts = starts
        self.classes = classes
        self.shared: dict[bytes, int] = {}
        self.uniform: dict[tuple[int, int], int] = {}
        self.nodes: list[Ints] = []

    def rows(self) -> Ints:
        root = np.zeros(256, np.int32)
        self._fill_leaves(root, 0, 0, 0x80)
        for lead in range(0xC2, 0xE0):
            root[lead] = self._node((lead - 0xC0) << 6, 1)
        for lead in range(0xE0, 0xF0):
            root[lead] = self._node((lead - 0xE0) << 12, 2)
        for lead in range(0xF0, 0xF5):
            root[lead] = self._node((lead - 0xF0) << 18, 3)
        # nodes were numbered children first (1, 2, ...): turn them round, so that parents come first
        num_nodes = len(self.nodes)
        table = np.stack([root, *self.nodes[::-1]])
        inner = table > 0
        table[inner] = num_nodes + 1 - table[inner]
        return np.ascontiguousarray(table, np.int32)

    def _fill_leaves(self, row: Ints, offset: int, first: int, count: int) -> None:
        """Sets row[offset + i] for the code points first + i."""
        position = _last_at_most(self.starts, first)
        end = first + count
        while first < end:
            next_start = self.starts[position + 1] if position + 1 < len(self.starts) else MAX_CODE_POINT + 1
            stop = min(next_start, end)
            row[offset : offset + stop - first] = -self.classes[position]
            offset += stop - first
            first = stop
            position += 1

    def _node(self, first: int, levels: int) -> int:
        """The node that spells the code points first .. first + 64**levels - 1 with `levels` more bytes."""
        size = 64**levels
        low = {2: 0x800, 3: 0x10000}.get(levels, 0x80)  # shorter spellings are not UTF-8
        if first + size <= low or first > MAX_CODE_POINT:
            return 0
        position = _last_at_most(self.starts, first)
        next_start = self.starts[position + 1] if position + 1 < len(self.starts) else MAX_CODE_POINT + 1
        if first >= low and first + size <= next_start:
            return self._uniform(self.classes[position], levels)
        row = np.zeros(256, np.int32)
        if levels == 1:
            self._fill_leaves(row, 0x80, first, 64)
        else:
            step = size // 64
            for index in range(64):
                row[0x80 + index] = self._child(first + index * step, levels, low)
        return self._share(row)

    def _uniform(self, class_id: int, levels: int) -> int:
        """The node below which every character has the same class."""
        found = self.uniform.get((class_id, levels))
        if found is None:
            row = np.zeros(256, np.int32)
            row[0x80:0xC0] = -class_id if levels == 1 else self._uniform(class_id, levels - 1)
            found = self.uniform[class_id, levels] = self._share(row)
        return found

    def _share(self, row: Ints) -> int:
        if not row.any():
            return 0
        key = row.tobytes()
        found = self.shared.get(key)
        if found is None:
            self.nodes.append(row)
            found = self.shared[key] = len(self.nodes)
        return found

    def _child(self, first: int, levels: int, low: int) -> int:
        if first < low or first > MAX_CODE_POINT:
            return 0
        return self._node(first, levels - 1)


def _last_at_most(starts: Sequence[int], value: int) -> int:
    low, high = 0, len(starts)
    while high - low > 1:
        middle = (low + high) // 2
        if starts[middle] <= value:
            low = middle
        else:
            high = middle
    return low


def normalised(intervals: Iterable[Interval]) -> list[Interval]:
    """The same set as sorted, disjoint, non-touching inclusive intervals."""
    merged: list[Interval] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            if last > merged[-1][1]:
                merged[-1] = (merged[-1][0], last)
        elif first <= last:
            merged.append((first, last))
    return merged


def complement(intervals: Iterable[Interval]) -> list[Interval]:
    """All code points that are not in the set (surrogates included)."""
    gaps: list[Interval] = []
    position = 0
    for first, last in normalised(intervals):
        if first > position:
            gaps.append((position, first - 1))
        position = last + 1
    if position <= MAX_CODE_POINT:
        gaps.append((position, MAX_CODE_POINT))
    return gaps
