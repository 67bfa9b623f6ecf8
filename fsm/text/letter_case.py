"""What characters and classes match where case is ignored, exactly as Python's `re` has it.

`re` compares the lower-case form of a character of the text with what the pattern says, also in lower case, and with
the lower-case characters that have the same upper-case form (`ſ` beside `s`, `ﬅ` beside `ﬆ`). Classes such as `\\w` are
asked about the lower-case form as it is, and a set in which no character has a case ignores nothing. So `(?i)[^a-z]`
does not match `İ`, whose lower-case form is `i`, and `(?i)\\w` takes no mark that has the upper-case form of a letter.

Tables are computed from Python's own data on first use (60 ms) and kept.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

from ..remembered import remembered
from .alphabet import Interval, complement, normalised
from .unicode_sets import SCANNED, Intervals

MAX_BMP = 0xFFFF
FEW = 64  # characters of a set, below which those that may match are looked up one by one
DOTTED_CAPITAL_I, SMALL_I = 0x130, 0x69  # the one character whose lower-case form `str.lower` gives as two


@dataclass(frozen=True, slots=True)
class _Cases:
    """Of characters by code point.

    Attributes:
        lower: the lower-case form, of those that are not in lower case.
        others: what has this character as its lower-case form.
        alike: other lower-case characters with the same upper-case form.
        cased: characters that differ from their lower-case or their upper-case form, in order.
        by_upper: these, by their upper-case form.
    """

    lower: dict[int, int]
    others: dict[int, list[int]]
    alike: dict[int, list[int]]
    cased: list[int]
    by_upper: dict[str, list[int]]


@functools.cache
def _cases() -> _Cases:
    lower: dict[int, int] = {}
    others, by_upper = defaultdict[int, list[int]](list), defaultdict[str, list[int]](list)
    cased = []
    for first, last in SCANNED:
        for point in range(first, last + 1):
            character = chr(point)
            form = SMALL_I if point == DOTTED_CAPITAL_I else ord(character.lower())
            if form != point:
                lower[point] = form
                others[form].append(point)
            if form != point or character.upper() != character:
                by_upper[character.upper()].append(point)
                cased.append(point)
    alike: dict[int, list[int]] = {}
    for group in by_upper.values():
        small = [point for point in group if point not in lower]
        alike |= {point: [other for other in small if other != point] for point in small if len(small) > 1}
    return _Cases(lower, dict(others), alike, cased, dict(by_upper))


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
    wanted, has_case = list(classes), False
    for first, last in members:
        inner = cases.cased[bisect_right(cases.cased, first - 1) : bisect_right(cases.cased, last)]
        has_case |= bool(inner) or last > MAX_BMP
        if first == last > MAX_BMP and len(members) + len(classes) > 1:
            wanted.append((first, last))  # a capital among others beyond the basic plane matches nothing in `re`
            continue
        wanted += [(first, last)] if first != last or first not in cases.lower else []
        for point in inner:
            form = cases.lower.get(point, point)
            wanted += [(one, one) for one in (form, *cases.alike.get(form, ()))]
    if not has_case:
        return tuple(normalised([*members, *classes]))
    return _with_lower_in(tuple(normalised(wanted)))


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
        for point in cases.cased[bisect_right(cases.cased, first - 1) : bisect_right(cases.cased, last)]:
            found += [(one, one) for one in cases.by_upper[chr(point).upper()]]
    return tuple(normalised(found))


def _with_lower_in(wanted: Intervals) -> Intervals:
    """The characters whose lower-case form is in a set."""
    cases = _cases()
    if sum(last - first + 1 for first, last in wanted) <= FEW:
        points = [point for first, last in wanted for point in range(first, last + 1)]
        found = [
            one
            for point in points
            for one in (point, *cases.others.get(point, ()))
            if one != point or one not in cases.lower
        ]
        return tuple(normalised([(one, one) for one in found]))
    firsts = [first for first, _ in wanted]

    def has(point: int) -> bool:
        before = bisect_right(firsts, point) - 1
        return before >= 0 and point <= wanted[before][1]

    gone = [(point, point) for point, form in cases.lower.items() if not has(form)]
    more = [(point, point) for point, form in cases.lower.items() if has(form)]
    kept = complement(normalised([*complement(wanted), *gone]))
    return tuple(normalised([*kept, *more]))


def _ignoring_ascii_case(intervals: Intervals) -> Intervals:
    members: list[Interval] = list(intervals)
    for first, last in intervals:
        for low, high, shift in ((0x41, 0x5A, 32), (0x61, 0x7A, -32)):
            if first <= high and last >= low:
                members.append((max(first, low) + shift, min(last, high) + shift))
    return tuple(normalised(members))
