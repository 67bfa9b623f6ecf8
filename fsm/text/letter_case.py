"""What characters and classes match where case is ignored, exactly as Python's `re` has it.

`re` compares the lower-case form of a character of the text with what the pattern says, also in lower case, and with
the lower-case characters that have the same upper-case form (`ſ` beside `s`, `ﬅ` beside `ﬆ`). Classes such as `\\w` are
asked about the lower-case form as it is, and a set in which no character has a case ignores nothing. So `(?i)[^a-z]`
does not match `İ`, whose lower-case form is `i`, and `(?i)\\w` takes no mark that has the upper-case form of a letter.

Tables are computed from Python's own data on first use (60 ms) and kept.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..remembered import remembered
from .alphabet import Interval, complement, normalised
from .unicode_sets import SCANNED, Intervals

Points = npt.NDArray[np.int64]

MAX_BMP = 0xFFFF
FEW = 64  # characters of a set, below which those that may match are looked up one by one
DOTTED_CAPITAL_I, SMALL_I = 0x130, 0x69  # the one character whose lower-case form `str.lower` gives as two


@dataclass(frozen=True, slots=True)
class _Cases:
    """Of characters by code point.

    Attributes:
        cased: those that differ from their lower-case or their upper-case form, ascending.
        forms: the lower-case form of each of them.
        others: what has this character as its lower-case form.
        alike: other lower-case characters with the same upper-case form.
        by_upper: those that are cased, by their upper-case form.
    """

    cased: Points
    forms: Points
    others: dict[int, list[int]]
    alike: dict[int, list[int]]
    by_upper: dict[str, list[int]]

    def those_with_case(self, intervals: Intervals) -> list[Interval]:
        """Those in which a character is cased."""
        firsts, lasts = np.array(intervals, np.int64).reshape(-1, 2).T
        is_cased = np.searchsorted(self.cased, firsts) < np.searchsorted(self.cased, lasts + 1)
        return [intervals[place] for place in np.flatnonzero(is_cased).tolist()]

    def has_lower(self, point: int) -> bool:
        """Whether its lower-case form is another."""
        cased, forms = self.within(point, point)
        return len(cased) > 0 and bool(cased[0] != forms[0])

    def within(self, first: int, last: int) -> tuple[Points, Points]:
        """Those of a range that are cased, and their lower-case forms."""
        place = slice(*np.searchsorted(self.cased, (first, last + 1)))
        return self.cased[place], self.forms[place]


@functools.cache
def _cases() -> _Cases:
    forms: dict[int, int] = {}
    others, by_upper = defaultdict[int, list[int]](list), defaultdict[str, list[int]](list)
    for first, last in SCANNED:
        for point in range(first, last + 1):
            character = chr(point)
            form = SMALL_I if point == DOTTED_CAPITAL_I else ord(character.lower())
            if form != point:
                others[form].append(point)
            if form != point or character.upper() != character:
                by_upper[character.upper()].append(point)
                forms[point] = form
    alike: dict[int, list[int]] = {}
    for group in by_upper.values():
        small = [point for point in group if forms[point] == point]
        alike |= {point: [other for other in small if other != point] for point in small if len(small) > 1}
    cased, lower = (np.array([*column], np.int64) for column in (forms.keys(), forms.values()))
    return _Cases(cased, lower, dict(others), alike, dict(by_upper))


@remembered(1024)
def ignoring_case(members: Intervals, *, ascii_only: bool, classes: Intervals = ()) -> Intervals:
    """All characters that a set matches.

    Args:
        members: characters and ranges, as they are written.
        ascii_only: only A-Z and a-z have case (ECMA-262 without the u flag keeps ASCII apart from the rest).
        classes: what `\\d`, `\\w`, `\\s` and their negations in the set mean.
    """
    if ascii_only:
        return _ignoring_ascii_case((*members, *classes))
    cases = _cases()
    is_single = len(members) + len(classes) == 1
    if max(members, default=(0, 0))[1] <= MAX_BMP:
        members = tuple(normalised(members))
    with_case = cases.those_with_case(members)
    if not with_case and max(members, default=(0, 0))[1] <= MAX_BMP:
        return tuple(normalised([*members, *classes]))
    wanted = [*classes, *members]
    for first, last in with_case:
        if first == last > MAX_BMP and not is_single:
            continue  # a capital among others beyond the basic plane matches nothing in `re`
        forms = cases.within(first, last)[1].tolist()
        wanted += zip(forms, forms, strict=True)
        for point in cases.alike.keys() & set(forms):
            wanted += [(one, one) for one in cases.alike[point]]
    return _with_lower_in(tuple(normalised(wanted)))


def with_capitals_in(members: Intervals) -> Intervals:
    """The members, and what `re` finds besides under `(?ai)`: it looks for the capital of any character in a range that
    ends beyond the basic plane, although none but A to Z have one there."""
    ranges = [(first, last) for first, last in members if first < last and last > MAX_BMP]
    if not ranges:
        return members
    found = [
        point
        for upper, points in _cases().by_upper.items()
        for point in points
        if any(first <= ord(upper[0]) <= last for first, last in ranges)  # of several capitals the first
    ]
    return (*members, *zip(found, found, strict=True))


@remembered(1024)
def in_all_dialects(members: Intervals, classes: Intervals = ()) -> Intervals:
    """What a set matches in Python and in ECMA-262, with its u flag and without; perhaps not all of that."""
    apart = complement(ignoring_case(members, ascii_only=False, classes=classes))
    return tuple(
        complement(normalised([*apart, *complement(ignoring_case(members, ascii_only=True, classes=classes))]))
    )


@remembered(1024)
def in_any_dialect(members: Intervals, classes: Intervals = ()) -> Intervals:
    """What a set matches in Python or in ECMA-262, with its u flag or without; perhaps more."""
    cases = _cases()
    found = [*members, *ignoring_case(members, ascii_only=False, classes=classes)]
    for first, last in members:
        for upper in {chr(point).upper() for point in cases.within(first, last)[0].tolist()}:
            found += zip(cases.by_upper[upper], cases.by_upper[upper], strict=True)
    return tuple(normalised(found))


def _with_lower_in(wanted: Intervals) -> Intervals:
    """The characters whose lower-case form is in a set."""
    cases = _cases()
    if sum(last - first + 1 for first, last in wanted) <= FEW:
        points = [point for first, last in wanted for point in range(first, last + 1)]
        small = [point for first, last in wanted for point in range(first, last + 1) if not cases.has_lower(point)]
        found = [*small, *(one for point in points for one in cases.others.get(point, ()))]
        return tuple(normalised([(one, one) for one in found]))
    matches, stands = (_are_in(wanted, points) for points in (cases.forms, cases.cased))
    gone, more = cases.cased[stands & ~matches].tolist(), cases.cased[matches & ~stands].tolist()
    if gone:
        wanted = tuple(complement(normalised([*complement(wanted), *zip(gone, gone, strict=True)])))
    return tuple(normalised([*wanted, *zip(more, more, strict=True)])) if more else wanted


def _are_in(intervals: Intervals, points: Points) -> npt.NDArray[np.bool_]:
    firsts, lasts = np.array(intervals, np.int64).T
    before = np.searchsorted(firsts, points, "right") - 1
    found: npt.NDArray[np.bool_] = (before >= 0) & (points <= lasts[np.maximum(before, 0)])
    return found


def _ignoring_ascii_case(intervals: Intervals) -> Intervals:
    members: list[Interval] = list(intervals)
    for first, last in intervals:
        for low, high, shift in ((0x41, 0x5A, 32), (0x61, 0x7A, -32)):
            if first <= high and last >= low:
                members.append((max(first, low) + shift, min(last, high) + shift))
    return tuple(normalised(members))
