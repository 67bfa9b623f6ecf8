"""Whole numbers by their remainder: several `multipleOf` and negations of them as one automaton.

    multipleOf 33, not multipleOf 8     264 states, a remainder modulo lcm(33, 8) each

instead of a product of automata that would also distinguish how many digits have been read.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ..text.alphabet import Bools
from ..text.dfa import Dfa, no_text
from .algebra import Test
from .digits import numeric

MAX_MODULUS = 100_000
BOUNDS = ("minimum", "maximum", "exclusive-minimum", "exclusive-maximum")


def is_about_remainders(test: Test) -> bool:
    """Whether the test asks for nothing but remainders of whole numbers."""
    if test[0] == "multiple":
        step: Any = test[1]
        return bool(step == int(step))
    if test[0] == "not":
        inner: Any = test[1]
        return all(is_about_remainders(other) for other in inner)
    return test[0] == "integer"


def modulus_of(tests: tuple[Test, ...]) -> int:
    """The least common multiple of all steps."""
    found = 1
    for test in tests:
        argument: Any = test[1] if len(test) > 1 else ()
        if test[0] == "multiple":
            found = math.lcm(found, int(argument))
        elif test[0] == "not":
            found = math.lcm(found, modulus_of(argument))
    return found


def without_last_digits(modulus: int) -> int:
    """The part of a modulus that has no factor of 10: the remainder by the other part is told by the last digits."""
    while (common := math.gcd(modulus, 10)) > 1:
        modulus //= common
    return modulus


def whole_numbers(tests: tuple[Test, ...], modulus: int) -> Dfa:
    """The decimal texts of the whole numbers whose remainder modulo `modulus_of(tests)` passes all tests."""
    remainders = np.arange(modulus)
    passing = _passing(tests, modulus)  # -n if and only if n
    if not passing.any():
        return no_text()
    alphabet, digits, _, sign = numeric()
    start, minus, zero, first = 1, 2, 3, 4
    table = np.zeros((first + modulus, alphabet.num_classes), np.int32)
    accepting = np.zeros(len(table), np.bool_)
    table[start, sign] = minus
    for row in (start, minus):
        table[row, digits] = first + np.arange(10) % modulus
        table[row, digits[0]] = zero
    for digit in range(10):
        table[first:, digits[digit]] = first + (10 * remainders + digit) % modulus
    accepting[first:] = passing
    accepting[zero] = passing[0]
    return Dfa(alphabet, table, accepting, start).minimised()  # whatever was written, every remainder can follow


def is_any_whole(tests: tuple[Test, ...], low: Fraction | None, high: Fraction | None) -> bool | None:
    """Whether some number passes tests that are about remainders, or are implied by it lying between two bounds.

    None if that is not found out without an automaton: some tests are about more, or the bounds (None: there is none)
    leave less than a whole period.
    """
    about = tuple(test for test in tests if test[0] not in BOUNDS)
    is_whole = any(test[0] in ("integer", "multiple") for test in about)
    if not is_whole or not all(map(is_about_remainders, about)):
        return None
    modulus = modulus_of(about)
    if modulus > MAX_MODULUS or (low is not None and high is not None and high - low < modulus + 2):
        return None
    return bool(_passing(about, modulus).any())


def _passing(tests: tuple[Test, ...], modulus: int) -> Bools:
    """bool[modulus]: whether each number below `modulus` passes."""
    passing = np.ones(modulus, np.bool_)
    for test in tests:
        argument: Any = test[1] if len(test) > 1 else ()
        if test[0] == "multiple":
            multiples = np.zeros(modulus, np.bool_)
            multiples[:: int(argument)] = True
            passing &= multiples
        elif test[0] == "not":
            passing &= ~_passing(argument, modulus)
    return passing
