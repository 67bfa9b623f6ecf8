"""Amounts of money: which decimals of at most two places a validator that computes in floats takes for multiples.

19.99 / 0.01 is 1998.9999999999998 in floats, 12345.67 / 0.01 is 1234567.0: it depends on how both numbers and their
quotient are rounded. Let x = n / 10^p be a number and k = x / s its quotient by the step s. The float of x is
x + e, where e depends on the last digits of n alone while x lies between two powers of two (2^a x has a fraction of
fifths, or of twenty-fifths, which repeats). Divided by the float of s, which is s (1 + d), it is off from k by

    (e / s - k d) / (1 + d)

which is linear in k, and rounded to k if that is at most half of what lies between two floats there (powers of two,
below which floats are closer, are never off: x and s have the same digits then): one interval of k
for each rest of n, power of two below x and power of two below k. There are some hundreds of them up to 10^13, so the
texts are a small automaton: digits are read until all numbers that begin so agree on which fractions may follow.

Knows numbers and automata, and no JSON Schema. Cost: up to 0.1 s of CPU time, once per step.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

import numpy as np

from ..remembered import remembered
from ..text.dfa import Dfa
from .digits import numeric

MAX_COMPUTED_PLACES = 2
MAX_WHOLE_DIGITS = 13  # with two places all numbers of 10^-p are exact as floats
SMALL = 64  # bits after the point of what is compared
Span = tuple[int, int]  # both ends included


@remembered(64)
def whole_quotients(numerator: int, places: int) -> Dfa:
    """Decimal texts, of up to 13 digits before the point, of a step's multiples whose quotients are whole in floats.

    The step is numerator / 10**places. Which other numbers are accepted is of no meaning.

    Args:
        places: 1 or 2.
    """
    cuts, fractions = _by_whole_part(numerator, places)
    return _Texts(cuts, fractions, places).automaton()


def _by_whole_part(numerator: int, places: int) -> tuple[list[int], list[frozenset[int]]]:
    """From each of the whole numbers on: the fractions, in units of 10**-places, that may follow it."""
    scale, period = 10**places, 5**places
    changes: dict[int, set[int]] = {0: {0}, 1: {0}}  # by whole number: fractions that are let in or out there; 0 is in
    for rest, spans in enumerate(_spans(numerator, places)):
        for low, high in spans:
            for fraction in range(rest, scale, period):
                first, last = -((fraction - low) // scale), (high - fraction) // scale
                if first <= last:
                    changes.setdefault(first, set()).symmetric_difference_update({fraction})
                    changes.setdefault(last + 1, set()).symmetric_difference_update({fraction})
    cuts, fractions, now = list[int](), list[frozenset[int]](), frozenset[int]()
    for cut in sorted(changes):
        if changes[cut]:
            now ^= changes[cut]
            cuts.append(cut)
            fractions.append(now)
    return cuts, fractions


def _spans(numerator: int, places: int) -> list[list[Span]]:
    """By the rest of n modulo 5**places: from where to where numbers n / 10**places have whole quotients."""
    scale, period = 10**places, 5**places
    float_numerator, float_denominator = (numerator / scale).as_integer_ratio()
    slope = numerator * float_denominator - scale * float_numerator  # all in units of 1 / (scale * float_numerator)
    found: list[list[Span]] = [[] for _ in range(period)]
    for low, high, exponent, quotient in _octaves(numerator, scale, 10**MAX_WHOLE_DIGITS * scale):
        half = quotient * scale * float_numerator << SMALL - 53
        for rest in range(period):
            part = (rest << 52 - exponent) % scale  # of what lies between two floats at x, in units of 1 / scale
            rounded = -part if 2 * part < scale else scale - part
            error = rounded * float_denominator << SMALL + exponent - 52
            first, last = low, high
            if slope:
                most, least = sorted((half - error, -half - error), reverse=slope > 0)
                first = max(low, -(-least // (slope << SMALL)) * numerator)
                last = min(high, most // (slope << SMALL) * numerator)
            elif abs(error) > half:
                continue
            first += (rest - first) % period
            last -= (last - rest) % period
            if first <= last:
                found[rest].append((first, last))
    return found


def _octaves(numerator: int, scale: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Where x = n / scale and its quotient lie between two powers of two each, from n = 1 to `end`.

    Yields the first and the last n, the logarithm of the power of two at x, and the power of two at the quotient.
    """
    low = 1
    while low < end:
        exponent = low.bit_length() - scale.bit_length()
        exponent += (low << SMALL) >= (scale << SMALL + exponent + 1)
        exponent -= (low << SMALL) < (scale << SMALL + exponent)
        high = min(end, -(-(scale << SMALL + exponent + 1) >> SMALL)) - 1
        quotient = 1 << max(low // numerator, 1).bit_length() - 1
        high = min(high, 2 * quotient * numerator - 1)
        yield low, high, exponent, quotient
        low = high + 1


class _Texts:
    """The automaton that reads a whole number, and then one of the fractions that may follow it."""

    def __init__(self, cuts: list[int], fractions: list[frozenset[int]], places: int) -> None:
        self._cuts = cuts
        self._fractions = fractions
        self._places = places
        self._alphabet, self._digits, self._point, self._sign = numeric()
        self._rows: list[list[int]] = []
        self._accepting: list[bool] = []
        self._known: dict[object, int] = {}

    def automaton(self) -> Dfa:
        dead, start, minus = (self._new(False) for _ in range(3))
        self._rows[start][self._sign] = minus
        for digit, class_id in enumerate(self._digits):
            known = [None] * (MAX_WHOLE_DIGITS if digit else 1)
            self._rows[start][class_id] = self._rows[minus][class_id] = self._whole(digit, known)
        assert dead == 0
        return Dfa.from_table(
            self._alphabet, np.array(self._rows, np.int32), np.array(self._accepting), start
        ).minimised()

    def _new(self, is_accepting: bool) -> int:
        self._rows.append([0] * self._alphabet.num_classes)
        self._accepting.append(is_accepting)
        return len(self._rows) - 1

    def _whole(self, begun: int, known: Sequence[int | None]) -> int:
        """The state after the digits of `begun`.

        known: by the number of digits to come, which fractions follow all numbers that begin so; None: look for it.
        """
        alike = tuple(
            self._alike(begun * 10**number, (begun + 1) * 10**number - 1) if one is None else one
            for number, one in enumerate(known)
        )
        key = (begun, len(alike)) if None in alike else alike
        state = self._known.get(key)
        if state is None:
            fractions = self._fractions[bisect_right(self._cuts, begun) - 1]
            state = self._known[key] = self._new(0 in fractions)
            if fractions:
                self._rows[state][self._point] = self._fraction(fractions, 0)
            if key is alike and len(alike) > 1:
                following = self._whole(10 * begun, alike[1:])
                for class_id in self._digits:
                    self._rows[state][class_id] = following
            elif len(alike) > 1:
                for digit, class_id in enumerate(self._digits):
                    self._rows[state][class_id] = self._whole(10 * begun + digit, alike[1:])
        return state

    def _alike(self, first: int, last: int) -> int | None:
        """Which fractions follow all whole numbers from the first to the last; None: it depends on the number."""
        index = bisect_right(self._cuts, first)
        return index if index == bisect_right(self._cuts, last) else None

    def _fraction(self, fractions: frozenset[int], num_read: int) -> int:
        """The state after some digits of a fraction; fractions: in units of 10**-places, without the digits read."""
        state = self._known.get((fractions, num_read))
        if state is None:
            state = self._known[fractions, num_read] = self._new(num_read > 0 and 0 in fractions)
            row = self._rows[state]
            if num_read == self._places:
                row[self._digits[0]] = state
                return state
            unit = 10 ** (self._places - num_read - 1)
            following: dict[int, list[int]] = {}
            for fraction in fractions:
                following.setdefault(fraction // unit, []).append(fraction % unit)
            for digit, rest in following.items():
                row[self._digits[digit]] = self._fraction(frozenset(rest), num_read + 1)
        return state
