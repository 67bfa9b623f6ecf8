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
from typing import NamedTuple

import numpy as np

from ..._core import fsm as core
from ..text.alphabet import Alphabet, Ints
from ..text.dfa import Dfa

LESS, EQUAL, GREATER = -1, 0, 1
START = 1  # the first state of a comparison
_SYMBOLS = "-.0123456789"


class Numeric(NamedTuple):
    """The alphabet of decimal texts, and the classes of its characters; digits: of 0 to 9."""

    alphabet: Alphabet
    digits: list[int]
    point: int
    sign: int


@functools.cache
def numeric() -> Numeric:
    """That alphabet (one shared object)."""
    alphabet, members = Alphabet.from_sets([[(ord(symbol), ord(symbol))] for symbol in _SYMBOLS])
    classes = {symbol: ids[0] for symbol, ids in zip(_SYMBOLS, members, strict=True)}
    return Numeric(alphabet, [classes[str(digit)] for digit in range(10)], classes["."], classes["-"])


@functools.lru_cache(maxsize=1024)
def compared(bound: Fraction, wanted: frozenset[int], *, with_point: bool) -> Dfa:
    """Decimal texts without exponent whose value is less than (-1), equal to (0) or greater than (1) the bound.

    Args:
        bound: a finite decimal.
        wanted: the relations that are accepted.
        with_point: also texts with a fraction; else whole numbers only.
    """
    alphabet, digits, point, sign = numeric()
    whole, fraction = (np.frombuffer(text.encode(), np.uint8) - ord("0") for text in decimal_digits(abs(bound)))
    side = (bound > 0) - (bound < 0)
    accepted = np.array([relation in wanted for relation in (LESS, EQUAL, GREATER)], np.uint8)
    table, accepting = core.comparison(whole, fraction, side, accepted, with_point, sign, point, digits[0])
    return Dfa.from_table(alphabet, table, accepting, START).minimised()


@functools.lru_cache(maxsize=256)
def multiples(numerator: int, places: int) -> Dfa:
    """Decimal texts without exponent whose value is a multiple of numerator / 10**places.

    States are remainders: `whole` after the digits before the point, then one set per decimal place.
    """
    alphabet, digits, point, sign = numeric()
    start, minus, zero, whole = 1, 2, 3, 4
    points = whole + numerator
    table: Ints = np.zeros((points + (places + 2) * numerator, alphabet.num_classes), np.int32)
    accepting = np.zeros(len(table), np.bool_)
    remainders = np.arange(numerator)
    table[start, sign] = minus
    for digit, class_id in enumerate(digits):
        table[start, class_id] = table[minus, class_id] = whole + digit % numerator if digit else zero
        following = (remainders * 10 + digit) % numerator
        table[whole + remainders, class_id] = whole + following
        for place in range(places):
            table[points + place * numerator + remainders, class_id] = points + (place + 1) * numerator + following
    last = points + places * numerator + remainders
    beyond = points + (places + 1) * numerator + remainders
    table[last, digits[0]] = beyond
    table[beyond, digits[0]] = beyond
    table[zero, point] = points
    table[whole + remainders, point] = points + remainders
    accepting[zero] = True
    accepting[whole + remainders] = remainders * 10**places % numerator == 0
    for place in range(1, places + 1):
        accepting[points + place * numerator + remainders] = remainders * 10 ** (places - place) % numerator == 0
    accepting[beyond] = remainders == 0
    return Dfa.from_table(alphabet, table, accepting, start).minimised()


def decimal_digits(value: Fraction) -> tuple[str, str]:
    """Digits before and after the point, without superfluous zeros ("0" and "" for 0)."""
    whole, rest = divmod(value.numerator, value.denominator)
    fraction: list[str] = []
    while rest:
        digit, rest = divmod(rest * 10, value.denominator)
        fraction.append(str(digit))
    return str(whole), "".join(fraction)
