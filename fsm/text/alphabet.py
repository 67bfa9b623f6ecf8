"""Alphabet: code points sorted into classes that an automaton does not distinguish, and their UTF-8 spelling.

A text automaton reads characters, a token is bytes. The alphabet connects the two: it cuts the code
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

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core

Ints = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]
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
        flat = np.array([point for intervals in sets for interval in intervals for point in interval], np.int32)
        ends = np.cumsum([len(intervals) for intervals in sets], dtype=np.int32)
        starts, classes, num_classes, members, member_ends = core.classes_of_sets(flat[::2], flat[1::2], ends)
        found, begin = members.tolist(), 0
        listed: list[list[int]] = []
        for end in member_ends.tolist():
            listed.append(found[begin:end])
            begin = end
        return cls._merged(starts, classes, int(num_classes)), listed

    @classmethod
    def apart(cls, characters: str) -> Alphabet:
        """Each of these characters (sorted, distinct, no surrogates) in a class of its own, all others in one more.

        The i-th has class i + 1.
        """
        points = np.frombuffer(characters.encode("utf-32-le"), np.int32)
        starts, classes = core.cut_out(points)
        return cls(starts, classes, len(points) + 2)

    @classmethod
    def _merged(cls, starts: Ints, classes: Ints, num_classes: int) -> Alphabet:
        """Joins neighbouring intervals of the same class."""
        keep = np.ones(len(starts), np.bool_)
        keep[1:] = classes[1:] != classes[:-1]
        return cls(starts[keep], classes[keep], num_classes)

    def refine(self, other: Alphabet) -> tuple[Alphabet, Ints, Ints]:
        """The common refinement, and for each of its classes the class in `self` and in `other`."""
        starts, classes, num_classes, mine, theirs = core.common_classes(
            self.starts, self.classes, other.starts, other.classes
        )
        return Alphabet(starts, classes, int(num_classes)), mine, theirs

    def coarsen(self, new_class: Ints, num_classes: int) -> Alphabet:
        """The alphabet in which class c has become class `new_class[c]`; class 0 must stay 0."""
        return self._merged(self.starts, new_class[self.classes], num_classes)

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
        """The byte trie drawn in the module's docstring: every character in UTF-8.

        Takes microseconds where all other than ASCII is one class.
        """
        template: Ints = core.spell(self.starts, self.classes, self.num_classes, _template_of_one_class())
        return template

    @cached_property
    def spelling(self) -> Spelling:
        """Every character in UTF-8."""
        return Spelling.of(self.template, self.num_classes)

    @cached_property
    def json_spelling(self) -> Spelling:
        """Every character as json.dumps(ensure_ascii=False) writes it inside a string.

        A class of its own, `num_classes`, stands for the bare quote. Six more nodes stand inside an escape:
        after the backslash, after u, u0, u00, u000 and u001.
        """
        return Spelling.of(core.with_escapes(self.template, self.num_classes), self.num_classes + 1)


@functools.cache
def _template_of_one_class() -> Ints:
    """The template if all characters are one class."""
    starts, classes = core.cut_out(np.zeros(0, np.int32))
    template: Ints = core.spell(starts, classes, 2, np.zeros((0, 256), np.int32))
    return template


@dataclass(frozen=True, slots=True, eq=False)
class Spelling:
    """The bytes of an alphabet's characters.

    Attributes:
        template: int32[num_nodes, 256], the byte trie drawn in the module's docstring.
        reach: bool[num_nodes, num_classes], the classes that can still be completed from a node.
        byte_costs: int32[num_nodes, num_classes], least number of bytes that complete one; 9: none.
    """

    template: Ints
    reach: Bools
    byte_costs: Ints

    @classmethod
    def of(cls, template: Ints, num_classes: int) -> Spelling:
        reach, byte_costs = core.completions(template, num_classes)
        return cls(template, reach, byte_costs)


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
