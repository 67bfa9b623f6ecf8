"""Digit automata: comparison of a decimal text with a bound, and divisibility, digit by digit.

::

    bound 13.5     "1" equal so far   "13" equal so far   "13." …   "13.4" less, whatever follows
                   "2" greater, if no more than one digit follows; whether the whole part is shorter than the
                   bound's is known only where it ends, so states count digits up to the bound's, and one beyond

The automata read ASCII texts and know no JSON Schema. Tables are written out directly: about 10 rows per digit.
"""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np

from ..alphabet import Alphabet, Ints
from ..dfa import Dfa

_SYMBOLS = "-.0123456789"
NUMERIC, _members = Alphabet.from_sets([[(ord(symbol), ord(symbol))] for symbol in _SYMBOLS])
_CLASSES = {symbol: classes[0] for symbol, classes in zip(_SYMBOLS, _members, strict=True)}
DIGITS = [_CLASSES[str(digit)] for digit in range(10)]
POINT, SIGN = _CLASSES["."], _CLASSES["-"]

LESS, EQUAL, GREATER = -1, 0, 1


@functools.lru_cache(maxsize=1024)
def compared(bound: Fraction, wanted: frozenset[int], *, with_point: bool) -> Dfa:
    """Decimal texts without exponent whose value is less than (-1), equal to (0) or greater than (1) the bound.

    Args:
        bound: a finite decimal.
        wanted: the relations that are accepted.
        with_point: also texts with a fraction; else whole numbers only.
    """
    table = _Comparison(bound, wanted, with_point)
    return table.dfa()


class _Comparison:
    """The table of `compared`, in rows per sign: zero, (digits, order), beyond, and after the point."""

    def __init__(self, bound: Fraction, wanted: frozenset[int], with_point: bool) -> None:
        self.side = (bound > 0) - (bound < 0)
        self.wanted = wanted
        self.with_point = with_point
        self.whole, self.fraction = decimal_digits(abs(bound))
        self.rows_per_sign = 3 * len(self.whole) + len(self.fraction) + 9
        num_rows = 3 + 2 * self.rows_per_sign
        self.table = np.zeros((num_rows, NUMERIC.num_classes), np.int32)
        self.accepting = np.zeros(num_rows, np.bool_)

    def dfa(self) -> Dfa:
        start, minus = 1, 2
        self.table[start, SIGN] = minus
        for sign, opening in ((1, start), (-1, minus)):
            base = 3 if sign > 0 else 3 + self.rows_per_sign
            self._fill(base, sign, opening)
        return Dfa.from_table(NUMERIC, self.table, self.accepting, start).minimised()

    def _fill(self, base: int, sign: int, opening: int) -> None:
        """All rows of one sign."""
        table, whole = self.table, self.whole
        length = len(whole)
        zero, beyond = base, base + 1
        digits = base + 2  # + 3 * (number of digits - 1) + order + 1
        after = digits + 3 * length  # less, greater: just behind the point, then with digits; then the equal ones
        table[opening, DIGITS] = digits + 1 + _orders(whole[0])
        table[opening, DIGITS[0]] = zero
        for count in range(1, length):
            row = digits + 3 * (count - 1)
            table[row, DIGITS] = row + 3
            table[row + 1, DIGITS] = row + 4 + _orders(whole[count])
            table[row + 2, DIGITS] = row + 5
        last = digits + 3 * (length - 1)
        table[last : last + 3, DIGITS] = beyond
        table[beyond, DIGITS] = beyond
        self._end(zero, sign, _order("0", whole) if length == 1 else LESS, after)
        self._end(beyond, sign, GREATER, after)
        for count in range(1, length + 1):
            for order in (LESS, EQUAL, GREATER):
                row = digits + 3 * (count - 1) + order + 1
                self._end(row, sign, order if count == length else LESS, after)
        if self.with_point:
            self._fill_fraction(sign, after)

    def _end(self, row: int, sign: int, order: int, after: int) -> None:
        """A row at which the whole part may end, with this order to the bound's whole part."""
        self._accept(row, sign, LESS if order == EQUAL and self.fraction else order)
        if self.with_point:
            self.table[row, POINT] = {LESS: after, GREATER: after + 1, EQUAL: after + 4}[order]

    def _fill_fraction(self, sign: int, after: int) -> None:
        less, greater, equal = after + 2, after + 3, after + 4
        for row, target in ((after, less), (less, less), (after + 1, greater), (greater, greater)):
            self.table[row, DIGITS] = target
        self._accept(less, sign, LESS)
        self._accept(greater, sign, GREATER)
        length = len(self.fraction)
        for position in range(length + 2):  # digits read and equal; the last row stands for all further zeros
            wanted = self.fraction[position] if position < length else "0"
            row = equal + position
            following = min(row + 1, equal + length + 1)
            self.table[row, DIGITS] = np.array((less, following, greater))[_orders(wanted) + 1]
            if position:
                self._accept(row, sign, LESS if position < length else EQUAL)

    def _accept(self, row: int, sign: int, order: int) -> None:
        relation = sign * order
        if self.side == -sign:  # on different sides of zero
            relation = sign
        self.accepting[row] = relation in self.wanted


@functools.lru_cache(maxsize=256)
def multiples(numerator: int, places: int) -> Dfa:
    """Decimal texts without exponent whose value is a multiple of numerator / 10**places.

    States are remainders: `whole` after the digits before the point, then one set per decimal place.
    """
    start, minus, zero, whole = 1, 2, 3, 4
    points = whole + numerator
    table: Ints = np.zeros((points + (places + 2) * numerator, NUMERIC.num_classes), np.int32)
    accepting = np.zeros(len(table), np.bool_)
    remainders = np.arange(numerator)
    table[start, SIGN] = minus
    for digit, class_id in enumerate(DIGITS):
        table[start, class_id] = table[minus, class_id] = whole + digit % numerator if digit else zero
        following = (remainders * 10 + digit) % numerator
        table[whole + remainders, class_id] = whole + following
        for place in range(places):
            table[points + place * numerator + remainders, class_id] = points + (place + 1) * numerator + following
    last = points + places * numerator + remainders
    beyond = points + (places + 1) * numerator + remainders
    table[last, DIGITS[0]] = beyond
    table[beyond, DIGITS[0]] = beyond
    table[zero, POINT] = points
    table[whole + remainders, POINT] = points + remainders
    accepting[zero] = True
    accepting[whole + remainders] = remainders * 10**places % numerator == 0
    for place in range(1, places + 1):
        accepting[points + place * numerator + remainders] = remainders * 10 ** (places - place) % numerator == 0
    accepting[beyond] = remainders == 0
    return Dfa.from_table(NUMERIC, table, accepting, start).minimised()


def decimal_digits(value: Fraction) -> tuple[str, str]:
    """Digits before and after the point, without superfluous zeros ("0" and "" for 0)."""
    whole, rest = divmod(value.numerator, value.denominator)
    fraction: list[str] = []
    while rest:
        digit, rest = divmod(rest * 10, value.denominator)
        fraction.append(str(digit))
    return str(whole), "".join(fraction)


def _order(digit: str, other: str) -> int:
    return (digit > other) - (digit < other)


def _orders(other: str) -> Ints:
    """int32[10]: the order of each digit to this one."""
    orders: Ints = np.sign(np.arange(10, dtype=np.int32) - int(other))
    return orders
