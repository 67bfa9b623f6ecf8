"""Steps that are no binary fractions: `multipleOf: 0.01`, right for readers that compute in decimals and in floats.

Whoever reads 19.99 as a float and divides it by 0.01 gets 1998.9999999999998, and says that it is no multiple; whoever
reads it as a decimal says that it is one. Which decimals are multiples under both readings follows no rule that an
automaton could know, so short numbers, of up to six digits, are tried, all of them, and the result is the automaton::

    1 9 . 9 8        whole part: a node for each number     fraction: equal blocks are one node

Beyond these only floats that are exact (whole numbers, quarters) are written: these are divided without a
rounding of their own, and the quotient rounds to the whole number if the step is close enough to its float.
A number that the two readings judge differently is neither a multiple nor none: it is not written.
"""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np

from ..regex.regex import regex_to_dfa
from ..text.alphabet import Ints
from ..text.dfa import Dfa
from .digits import DIGITS, NUMERIC, POINT, SIGN, multiples
from .step_kernels import grouped, tried

MAX_DIGITS = 6
MAX_WHOLE_DIGITS = 4
MAX_PLACES = 5
CLOSE = Fraction(1, 2**54)


def is_even(step: Fraction) -> bool:
    """Whether the step is a float, so that all readers agree."""
    return Fraction(float(step)) == step


def step_problem(step: Fraction, places: int) -> str | None:
    """Why an uneven step cannot be decided; None if it can."""
    if places > MAX_PLACES:
        return f"{float(step)!r} has more than {MAX_PLACES} decimal places, and readers round its multiples differently"
    if abs(Fraction(float(step)) / step - 1) > CLOSE:
        return f"{float(step)!r} is too far from its float, so readers round its multiples differently"
    return None


def divides(step: Fraction, value: int | float) -> bool:
    """Whether a validator that computes in floats takes the value for a multiple of an uneven step."""
    try:
        return (value / float(step)).is_integer()
    except OverflowError:
        return False


@functools.lru_cache(maxsize=64)
def agreed_multiples(numerator: int, places: int) -> Dfa:
    """Decimal texts without exponent of the numbers that all readers take for multiples of numerator / 10**places."""
    width = min(MAX_WHOLE_DIGITS, MAX_DIGITS - places)
    short = _short(tried(numerator, places, 10 ** (width + places)), places)
    exact = regex_to_dfa(rf"-?[1-9][0-9]{{{width},14}}|-?[1-9][0-9]{{{width},12}}\.(?:0|[27]?5)0*", search=False)
    return short.union(exact.intersect(multiples(numerator, places)))


def _short(agreed: Ints, places: int) -> Dfa:
    """The texts of the numbers index / 10**places for which `agreed` is 0 and not -1."""
    levels, roots, num_nodes = _fractions(agreed, places)
    num_wholes = len(agreed) // 10**places
    start, minus, wholes = 1, 2, 3
    first = wholes + num_wholes
    table = np.zeros((first + num_nodes, NUMERIC.num_classes), np.int32)
    accepting = np.zeros(len(table), np.bool_)
    table[start, SIGN] = minus
    table[start, DIGITS] = table[minus, DIGITS] = wholes + np.arange(10)
    numbers = np.arange(1, num_wholes // 10)  # 0 is followed by no digit
    table[wholes + numbers[:, None], DIGITS] = wholes + 10 * numbers[:, None] + np.arange(10)
    table[wholes:first, POINT] = np.where(roots >= 0, first + roots, 0)
    accepting[wholes:first] = agreed[:: 10**places] == 0
    for nodes, children in levels:
        table[first + nodes[:, None], DIGITS] = np.where(children >= 0, first + children, 0)
    end = first + num_nodes - 1
    table[end, DIGITS[0]] = end
    accepting[end] = True
    for nodes, children in levels[:-1]:  # those with more digits come first; right behind the point nothing ends
        accepting[first + nodes] = (children[:, 0] >= 0) & accepting[first + children[:, 0]]
    return Dfa.from_table(NUMERIC, table, accepting, start)


def _fractions(agreed: Ints, places: int) -> tuple[list[tuple[Ints, Ints]], Ints, int]:
    """The nodes behind the point.

    Returns:
        For each number of digits read, most first: the nodes, and their children [num_nodes, 10] (-1: none). The root
        of each whole part. The number of nodes; the last one is behind all digits.
    """
    below = agreed  # node 0: all digits read
    levels: list[tuple[Ints, Ints]] = []
    num_nodes = 1
    for _ in range(places):
        kinds, below = grouped(below)
        nodes = np.arange(num_nodes, num_nodes + len(kinds), dtype=np.int32)
        nodes[(kinds < 0).all(axis=1)] = -1
        below = nodes[below]
        levels.append((nodes[nodes >= 0], kinds[nodes >= 0]))
        num_nodes += len(kinds)

    def turned(numbers: Ints) -> Ints:
        found: Ints = np.where(numbers >= 0, num_nodes - 1 - numbers, -1)
        return found

    return [(turned(nodes), turned(children)) for nodes, children in levels], turned(below), num_nodes
