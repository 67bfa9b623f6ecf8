"""Steps that are not binary fractions: `multipleOf: 0.01`, right for readers that compute in decimals and in floats.

A validator that reads 19.99 as a float and divides it by 0.01 gets 1998.9999999999998, so it is not a multiple; one
that reads it as a decimal finds that it is. Which decimals of at most two places are multiples under both readings is
computed (`float_quotients`). Of longer ones, and where that automaton is too large, all short numbers, of up to six
digits, are tried, and the results make up the automaton::

    1 9 . 9 8        whole part: a node for each number     fraction: equal blocks are one node

Longer numbers are written only if it is known how their quotient is rounded (`exact_texts`): those that are
exact as floats (whole numbers, halves, quarters), and whole numbers so large that every quotient is whole in floats.
A number that the two readings judge differently is neither a multiple nor none: it is not written.
"""

from __future__ import annotations

import math
from collections import deque
from fractions import Fraction

import numpy as np

from ..._core import fsm as core
from ...errors import ConstraintTooLarge
from ..regex.regex import regex_to_dfa
from ..remembered import remembered
from ..text.alphabet import Ints
from ..text.dfa import Dfa, no_text
from .digits import GREATER, LESS, compared, multiples, numeric
from .float_quotients import MAX_COMPUTED_PLACES, whole_quotients

MAX_DIGITS = 6
MAX_WHOLE_DIGITS = 4
MAX_TRIED_PLACES = 5
"""Of numbers with more decimal places than this only that many digits are tried, after zeros."""
MAX_STEP_PLACES = 14
"""Most decimal places of a step that is not binary: readers round it alike."""
CLOSE = Fraction(1, 2**54)
MAX_EXACT = 15
"""Most digits of whole numbers that are all exact as floats."""
MAX_WHOLE = 18
"""Most digits of whole numbers."""
MAX_QUOTIENT = 10**20
"""From 1e21 on JavaScript writes numbers with an exponent, and validators look at the digits."""
WHOLE_FLOATS = 2**52
"""From here on every float is a whole number."""


def is_binary(step: Fraction) -> bool:
    """Whether the step is a binary fraction that a float holds, so that all readers agree."""
    try:
        return Fraction(float(step)) == step
    except OverflowError:
        return False


def divides(step: Fraction, value: int | float) -> bool:
    """Whether a validator that computes in floats takes the value for a multiple of a step that is not binary."""
    try:
        return (value / float(step)).is_integer()
    except OverflowError:
        return False


@remembered(64)
def agreed_multiples(numerator: int, places: int) -> Dfa:
    """Decimal texts without exponent of the numbers that all readers take for multiples of numerator / 10**places.

    Only numbers that are tried, of steps whose digits are too many for an automaton of all numbers. At most 15 digits
    follow the point, zeros included.
    """
    return _agreed(numerator, places).intersect(regex_to_dfa(r"-?[0-9]+(?:\.[0-9]{1,15})?", search=False)).minimised()


def _agreed(numerator: int, places: int) -> Dfa:
    """`agreed_multiples` with any number of zeros at the end."""
    if places <= MAX_COMPUTED_PLACES:
        try:
            whole = whole_quotients(numerator, places).union(exact_texts(Fraction(numerator, 10**places)))
            return multiples(numerator, places).intersect(whole)
        except ConstraintTooLarge:
            pass
    found = no_text()
    for decimals in range(min(places, MAX_DIGITS - MAX_WHOLE_DIGITS), places + 1):
        num_zeros = max(decimals - MAX_TRIED_PLACES, 0)
        num_digits = MAX_TRIED_PLACES if num_zeros else min(MAX_WHOLE_DIGITS + decimals, MAX_DIGITS)
        agreed = core.tried(numerator, places, decimals, 10**num_digits)
        short = _short(agreed, decimals - num_zeros, num_zeros)
        found = short if found.is_empty() else found.union(short)
    try:
        return found.union(multiples(numerator, places).intersect(exact_texts(Fraction(numerator, 10**places))))
    except ConstraintTooLarge:
        return found


@remembered(64)
def exact_texts(step: Fraction) -> Dfa:
    """Whole numbers, halves and quarters: a multiple of the step that is among them is one in floats, too.

    The float of the step is step * (1 + error). A multiple k * step that is a float itself, 2**e <= k < 2**(e+1), has
    the quotient k / (1 + error). That is rounded to k if it is off by less than half of what lies between two floats
    there: by 2**(e-53), or for k = 2**e and a quotient below it by half as much. So it always is if the error is at
    most 2**-54; else every octave of k has a gap. Whole numbers from 2**53 on are rounded before they are divided; then
    k must be so large that the quotient is whole anyway.
    """
    most = min(MAX_WHOLE, len(str(math.floor(step * MAX_QUOTIENT))) - 1)
    exact = min(MAX_EXACT, most)
    wholes = rf"[1-9][0-9]{{0,{exact - 1}}}"
    quarters = rf"[1-9][0-9]{{0,{max(exact - 3, 0)}}}\.(?:0|[27]?5)0{{0,13}}"
    texts = regex_to_dfa(f"{wholes}|{quarters}", search=False)
    large = MAX_EXACT if step <= 1 else len(str(math.ceil(step * (WHOLE_FLOATS + 2))))
    if abs(Fraction(float(step)) / step - 1) > CLOSE:
        texts = texts.intersect(_octaves(step))
        large = max(len(str(math.ceil(step * (WHOLE_FLOATS + 2)))), MAX_EXACT)
    if large < most:
        texts = texts.union(regex_to_dfa(rf"[1-9][0-9]{{{large},{most - 1}}}", search=False))
    return regex_to_dfa("-?", search=False).concatenate(texts).minimised()


def _octaves(step: Fraction) -> Dfa:
    """Decimal texts of positive numbers: the multiples of a step among them have whole quotients (`exact_texts`)."""
    error = Fraction(float(step)) / step - 1
    above, below = frozenset((GREATER,)), frozenset((LESS,))
    found: deque[Dfa] = deque()
    for exponent in range(53):
        low, high = 2**exponent, 2 ** (exponent + 1) - 1
        allowed = Fraction(2**exponent, 2**53) * (1 + error)
        if 2 * low * error >= allowed:
            low += 1
        high = min(high, math.ceil(allowed / abs(error)) - 1)
        if low <= high:
            before, after = (low - Fraction(1, 2)) * step, (high + Fraction(1, 2)) * step
            octave = compared(before, above, with_point=True).intersect(compared(after, below, with_point=True))
            found.append(octave)
    while len(found) > 1:
        found.append(found.popleft().union(found.popleft()))
    return found.pop()


def _short(agreed: Ints, places: int, num_zeros: int) -> Dfa:
    """The texts of the numbers index / 10**(places + num_zeros) for which `agreed` is 0 and not -1.

    With zeros, which stand right after the point, the whole part is 0, and no text ends among the zeros.
    """
    alphabet, digits, point, sign = numeric()
    levels, roots, num_nodes = _fractions(agreed, places)
    num_wholes = len(agreed) // 10**places
    start, minus, wholes = 1, 2, 3
    zeros = wholes + num_wholes
    first = zeros + num_zeros
    table = np.zeros((first + num_nodes, alphabet.num_classes), np.int32)
    accepting = np.zeros(len(table), np.bool_)
    table[start, sign] = minus
    leading = np.arange(min(num_wholes, 10))
    table[start, digits[: len(leading)]] = table[minus, digits[: len(leading)]] = wholes + leading
    numbers = np.arange(1, num_wholes // 10)  # 0 is followed by no digit
    table[wholes + numbers[:, None], digits] = wholes + 10 * numbers[:, None] + np.arange(10)
    fractions = np.where(roots >= 0, first + roots, 0)
    if num_zeros:
        table[zeros:first, digits[0]] = [*range(zeros + 1, first), fractions[0]]
        fractions[0] = zeros
    table[wholes:zeros, point] = fractions
    accepting[wholes:zeros] = agreed[:: 10**places] == 0
    for nodes, children in levels:
        table[first + nodes[:, None], digits] = np.where(children >= 0, first + children, 0)
    end = first + num_nodes - 1
    table[end, digits[0]] = end
    accepting[end] = True
    for nodes, children in levels[:-1]:  # those with more digits come first; right after the point nothing ends
        accepting[first + nodes] = (children[:, 0] >= 0) & accepting[first + children[:, 0]]
    return Dfa.from_table(alphabet, table, accepting, start)


def _fractions(agreed: Ints, places: int) -> tuple[list[tuple[Ints, Ints]], Ints, int]:
    """The nodes after the point.

    Returns:
        For each number of digits read, most first: the nodes, and their children [num_nodes, 10] (-1: none). The root
        of each whole part. The number of nodes; the last one is after all digits.
    """
    below = agreed  # node 0: all digits read
    levels: list[tuple[Ints, Ints]] = []
    num_nodes = 1
    for _ in range(places):
        kinds, below = core.grouped(below)
        nodes = np.arange(num_nodes, num_nodes + len(kinds), dtype=np.int32)
        nodes[(kinds < 0).all(axis=1)] = -1
        below = nodes[below]
        levels.append((nodes[nodes >= 0], kinds[nodes >= 0]))
        num_nodes += len(kinds)

    def turned(numbers: Ints) -> Ints:
        found: Ints = np.where(numbers >= 0, num_nodes - 1 - numbers, -1)
        return found

    return [(turned(nodes), turned(children)) for nodes, children in levels], turned(below), num_nodes
