"""Numbers on one side of a bound, as plain texts and as sets of scientific ones (see `numbers.py`).

Exact at every digit of plain texts; scientific texts come in four sets, of which each lies on one side of the bound or
is left out. Knows no schema.
"""

from __future__ import annotations

import math
from fractions import Fraction

from ..text.dfa import Dfa
from .digits import EQUAL, compared
from .listed_numbers import exact

SMALL, BIG, MINUS_SMALL, MINUS_BIG = 1, 2, 4, 8
Texts = tuple[Dfa, int]
"""Plain texts, and the sets of scientific ones."""

_LARGE = 2**53
_TINY = Fraction(1, 10**30)


def reaching(number: int | float, direction: int, whole: bool) -> Texts:
    """Numbers >= number (direction GREATER) or <= number (LESS)."""
    bound = _safe_bound(number, direction)
    plain = compared(bound, frozenset((EQUAL, direction)), with_point=not whole)
    return plain, 0 if whole else _sets_beyond(bound, direction)


def beyond(number: int | float, direction: int, whole: bool) -> Texts:
    """Numbers > number (direction GREATER) or < number (LESS), also after rounding to a float."""
    bound = _safe_bound(number, direction)
    wanted = frozenset((direction,))
    plain = compared(bound, wanted, with_point=False)
    if whole:
        return plain, 0
    scientific = _sets_beyond(bound, direction)
    if bound == 0:
        return plain.union(compared(_TINY * direction, wanted, with_point=True)), scientific
    try:
        nearest = float(number)
    except OverflowError:
        return plain, scientific
    following = math.nextafter(nearest, math.inf * direction)
    if not math.isfinite(following):
        return plain, scientific
    middle = (Fraction(nearest) + Fraction(following)) / 2
    middle = max(middle, bound) if direction > 0 else min(middle, bound)
    later = compared(middle, wanted, with_point=True)
    return (later if abs(bound) < _LARGE else plain.union(later)), scientific


def _safe_bound(number: int | float, direction: int) -> Fraction:
    """The bound read as a decimal and read as a float, where whole numbers lie between the two."""
    bound = exact(number)
    if type(number) is int or abs(bound) < _LARGE:
        return bound
    nearest = Fraction(number)
    return max(bound, nearest) if direction > 0 else min(bound, nearest)


def _sets_beyond(bound: Fraction, direction: int) -> int:
    """The sets of scientific texts that lie wholly on one side of the bound, equality aside."""
    size = abs(bound)
    sets = 0
    for bit, sign, low, high in (
        (SMALL, 1, Fraction(0), Fraction(1, 10**4)),
        (BIG, 1, Fraction(10**16), Fraction(10**308)),
        (MINUS_SMALL, -1, Fraction(0), Fraction(1, 10**4)),
        (MINUS_BIG, -1, Fraction(10**16), Fraction(10**308)),
    ):
        if bound == 0 or (bound > 0) != (sign > 0):
            side = sign  # zero, or a bound of the other sign: all lie on the side of their sign
        elif size >= high:
            side = -sign
        elif size < low:
            side = sign
        else:
            continue
        if side == direction:
            sets |= bit
    return sets
