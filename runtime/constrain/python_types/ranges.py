"""Intervals as regular expressions: of whole numbers, of decimals, and of values with several components.

A value with components (the digits of a number, the units of a duration) is at least `low` if the first component that
differs is greater. So an interval is a union of *boxes*, which give every component a range of its own:

    237 to 451     2 3 7-9    2 4-9 0-9    3 0-9 0-9    4 0-4 0-9    4 5 0-1

Knows nothing of types. Patterns are neither anchored nor captured, and fit into a larger one as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

Box = tuple[tuple[int, int], ...]
"""The least and the greatest value of every component."""


def boxes(low: Sequence[int], high: Sequence[int], most: Sequence[int]) -> list[Box]:
    """The values from `low` to `high`, both included; `most` is the greatest value of each component, 0 the least."""
    if tuple(low) > tuple(high):
        return []
    if not low:
        return [()]
    (first, *low_rest), (last, *high_rest), (_, *most_rest) = low, high, most
    if first == last:
        return [((first, first), *box) for box in boxes(low_rest, high_rest, most_rest)]
    zeros = [0] * len(most_rest)
    if tuple(low_rest) == tuple(zeros):
        found, first = [], first - 1
    else:
        found = [((first, first), *box) for box in boxes(low_rest, most_rest, most_rest)]
    to_the_end = tuple(high_rest) == tuple(most_rest)
    if first + 1 <= last - (not to_the_end):
        whole = tuple((0, greatest) for greatest in most_rest)
        found.append(((first + 1, last - (not to_the_end)), *whole))
    if not to_the_end:
        found += [((last, last), *box) for box in boxes(zeros, high_rest, most_rest)]
    return found


def digits(low: str, high: str) -> str:
    """The texts of the same length from `low` to `high`, in order of their digits; all else is as it stands in both."""
    places = [place for place, character in enumerate(low) if character.isdigit()]
    found = []
    for box in boxes([int(low[p]) for p in places], [int(high[p]) for p in places], [9] * len(places)):
        ranges = dict(zip(places, box, strict=True))
        found.append("".join([_digit(*ranges[p]) if p in ranges else _escaped(c) for p, c in enumerate(low)]))
    return _any_of(found)


def whole(low: int | None, high: int | None) -> str:
    """Whole numbers without a sign too many or a leading zero; None: no bound on this side."""
    found = []
    if low is None or low < 0:
        found.append("-" + _natural(1 if high is None or high >= 0 else -high, None if low is None else -low))
    if high is None or high >= 0:
        found.append(_natural(max(0, low or 0), high))
    return _any_of(found)


def decimals(low: Decimal | None, high: Decimal | None, *, opens: tuple[bool, bool], places: int | None) -> str:
    """Decimals such as `-0`, `12` and `0.50`.

    Args:
        opens: whether the bounds themselves are left out.
        places: digits after the point at most; None: any number.
    """
    found: list[str] = []
    if low is not None and high is not None and low > high:
        return _any_of(found)
    if low is None or low < 0:
        found.append("-" + _positive(_negated(high), _negated(low), (opens[1], opens[0]), places))
    if high is None or high >= 0:
        found.append(_positive(low, high, opens, places))
    return _any_of(found)


def _negated(bound: Decimal | None) -> Decimal | None:
    return None if bound is None else -bound


def _positive(low: Decimal | None, high: Decimal | None, opens: tuple[bool, bool], places: int | None) -> str:
    """The same, of decimals from 0 on without a sign."""
    if low is None or low < 0:
        low, opens = Decimal(0), (False, opens[1])
    first, after_first = _split(low)
    at_least = _fraction_from(after_first, opens[0], places)
    if high is None:
        return _any_of([str(first) + at_least, whole(first + 1, None) + _any_fraction(places)])
    last, after_last = _split(high)
    at_most = _fraction_to(after_last, opens[1], places)
    if first == last:
        return f"{first}(?={at_least}$){at_most}"
    between = [whole(first + 1, last - 1) + _any_fraction(places)] if last - first > 1 else []
    return _any_of([str(first) + at_least, *between, str(last) + at_most])


def _split(number: Decimal) -> tuple[int, str]:
    """The whole part, and the digits after the point without zeros at the end."""
    before, _, after = f"{number:f}".partition(".")
    return int(before), after.rstrip("0")


def _fraction_from(bound: str, is_open: bool, places: int | None) -> str:
    """`.` and digits, or nothing: at least 0.bound, or more than that."""
    found = []
    for place, character in enumerate(bound[:places]):
        if character != "9":
            digit = _digit(int(character) + 1, 9)
            found.append(rf"\.{bound[:place]}{digit}{_zero_to(None if places is None else places - place - 1)}")
    rest = None if places is None else places - len(bound)
    if not bound and not is_open:
        found.append(_any_fraction(places))
    elif is_open and (rest is None or rest > 0):
        found.append(rf"\.{bound}(?=0*[1-9])[0-9]{{1,{'' if rest is None else rest}}}")
    elif not is_open and (rest is None or rest >= 0):
        found.append(rf"\.{bound}{_zero_to(rest)}")
    return _any_of(found)


def _fraction_to(bound: str, is_open: bool, places: int | None) -> str:
    """`.` and digits, or nothing: at most 0.bound, or less than that."""
    found = [""] if bound or not is_open else []
    for place, character in enumerate(bound[:places]):
        if place:
            found.append(rf"\.{bound[:place]}")
        if character != "0":
            digit = _digit(0, int(character) - 1)
            found.append(rf"\.{bound[:place]}{digit}{_zero_to(None if places is None else places - place - 1)}")
    rest = None if places is None else places - len(bound)
    if rest is not None and rest < 0:
        found += [rf"\.{bound[:places]}"] if places else []
    elif not is_open:
        zeros = f"0{{{0 if bound else 1},{'' if rest is None else rest}}}"
        found += [rf"\.{bound}{zeros}"] if bound or rest != 0 else []
    return _any_of(found)


def _any_fraction(places: int | None) -> str:
    return "" if places == 0 else rf"(?:\.[0-9]{{1,{'' if places is None else places}}})?"


def _zero_to(count: int | None) -> str:
    return f"[0-9]{{0,{'' if count is None else count}}}"


def _natural(low: int, high: int | None) -> str:
    found = []
    if high is None:
        size = len(str(low))
        found = [digits(str(low), "9" * size), rf"[1-9][0-9]{{{size},}}"]
    else:
        for size in range(len(str(low)), len(str(high)) + 1):
            least = max(low, 10 ** (size - 1) if size > 1 else 0)
            found.append(digits(str(least), str(min(high, 10**size - 1))))
    return _any_of(found)


def _digit(low: int, high: int) -> str:
    return str(low) if low == high else f"[{low}-{high}]"


def _escaped(character: str) -> str:
    return rf"\{character}" if character in ".+" else character


def _any_of(options: list[str]) -> str:
    """Nothing at all where there are no options."""
    return options[0] if len(options) == 1 else "(?:" + "|".join(options) + ")" if options else NOTHING


NOTHING = "(?!)"
"""What no text matches."""
