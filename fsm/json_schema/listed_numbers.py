"""Numbers that are listed: constants, and the multiples of a step between two bounds if there are few of them.

Each is tried against all tests, by the rules of validators that read decimals and of those that read floats.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

from ..compile_time import CompileTime
from ..remembered import remembered
from .algebra import Test
from .steps import MAX_DIGITS, MAX_EXACT, MAX_STEP_PLACES, divides, is_binary

MAX_LISTED = 10_000
"""Most multiples within bounds that are listed one by one."""
MAX_CHARACTERS = 500_000
"""Most of all multiples that are listed since their step is large."""
MAX_STEP_STATES = 20_000
"""Most states of an automaton of multiples: one for each remainder at each decimal place."""
BEYOND = 10**308
"""Numbers of this size are not written as multiples: readers take some of them for infinite."""
INTEGER: Test = ("integer",)


def constant_texts(tests: tuple[Test, ...], compile_time: CompileTime) -> set[str] | None:
    """The texts of the constants that pass every test; None if no test lists constants."""
    listed = next((test for test in tests if test[0] == "among"), None)
    if listed is None:
        return None
    rest = [test for test in tests if test is not listed]
    texts = compile_time.over(cast("frozenset[str]", listed[2]))
    values: Any = [int(text) if text.lstrip("-").isdigit() else float(text) for text in texts]
    return _texts(values, rest, compile_time)


def few_multiples(tests: tuple[Test, ...], compile_time: CompileTime, *, untried: bool = False) -> set[str] | None:
    """The texts of the multiples between two bounds that pass; None if there are no steps, or too many multiples.

    Args:
        untried: only if they have more digits than those that are tried beforehand (`steps`).
    """
    step = common_step(tests)
    low, high = bounds(tests)
    if step is None or low is None or high is None or (high - low) / step > MAX_LISTED:
        return None
    if untried and (is_binary(step) or max(high, -low) * 10 ** scaled(step)[1] < 10**MAX_DIGITS):
        return None
    is_whole = INTEGER in tests or is_binary(step) or max(high, -low) >= 10**MAX_EXACT
    return _texts(_multiples(step, math.ceil(low / step), math.floor(high / step), is_whole), tests, compile_time)


def has_large_step(tests: Iterable[Test]) -> bool:
    """Whether numbers have to be multiples of a step whose remainders are too many for an automaton."""
    return any(test[0] == "multiple" and is_large_step(cast(Any, test[1])) for test in tests)


def is_large_step(step: int | float) -> bool:
    """Whether a step has too many remainders for an automaton, at each of its decimal places, or too many places."""
    numerator, places = scaled(exact(step))
    return numerator > MAX_STEP_STATES // (places + 1) or (places > MAX_STEP_PLACES and not is_binary(exact(step)))


def nearest_multiples(tests: tuple[Test, ...], compile_time: CompileTime) -> tuple[set[str], bool]:
    """Of the multiples within the bounds that are nearest to zero the texts that pass; whether these are all.

    They are MAX_LISTED, or fewer where each has many digits. tests: some of them ask for multiples.
    """
    step = common_step((*tests, ("multiple", 1)) if INTEGER in tests else tests)
    assert step is not None
    low, high = bounds(tests)
    lowest = -math.inf if low is None else math.ceil(low / step)
    highest = math.inf if high is None else math.floor(high / step)
    nearest = max(low or Fraction(0), -(high or Fraction(0)), Fraction(0)) + step
    count = min(MAX_LISTED, MAX_CHARACTERS // (len(str(int(nearest))) + scaled(step)[1]))
    first = max(lowest, min(-(count // 2), highest - count))
    last = min(highest, first + count)
    first = max(lowest, last - count)
    texts = _texts(_multiples(step, int(first), int(last), True), tests, compile_time)
    return texts, (first, last) == (lowest, highest)


def _multiples(step: Fraction, first: int, last: int, is_whole: bool) -> list[int | float]:
    """Those with the indices from first to last; whole ones are whole numbers if `is_whole`."""
    values = (index * step for index in range(first, last + 1))
    return [
        int(value) if is_whole and value.denominator == 1 else float(value) for value in values if abs(value) < BEYOND
    ]


def _texts(values: Iterable[int | float], tests: Sequence[Test], compile_time: CompileTime) -> set[str]:
    """How those that pass are written."""
    found: set[str] = set()
    for value in values:
        compile_time.check_here()
        if passes(value, tests):
            found.update(spellings(value, tests))
    return found


def common_step(tests: tuple[Test, ...]) -> Fraction | None:
    """What all multiples that pass are multiples of; None if no test asks for multiples."""
    steps = [exact(cast(Any, test[1])) for test in tests if test[0] == "multiple"]
    return functools.reduce(_common_multiple, steps) if steps else None


def _common_multiple(one: Fraction, other: Fraction) -> Fraction:
    return Fraction(math.lcm(one.numerator, other.numerator), math.gcd(one.denominator, other.denominator))


@remembered(4096)
def bounds(tests: tuple[Test, ...]) -> tuple[Fraction | None, Fraction | None]:
    """Numbers that pass lie between these."""
    low: Fraction | None = None
    high: Fraction | None = None
    for test in tests:
        if test[0] in ("minimum", "exclusive-minimum"):
            bound = exact(cast(Any, test[1]))
            low = bound if low is None else max(low, bound)
        elif test[0] in ("maximum", "exclusive-maximum"):
            bound = exact(cast(Any, test[1]))
            high = bound if high is None else min(high, bound)
    return low, high


def are_far_apart(left: tuple[Test, ...], right: tuple[Test, ...]) -> bool:
    """Whether the bounds alone leave no number that passes both: sure, and found out without an automaton."""
    (low, high), (other_low, other_high) = bounds(left), bounds(right)
    return (
        (low is not None and other_high is not None and low > other_high)
        or (other_low is not None and high is not None and other_low > high)
        or (low is not None and high is not None and low > high)
        or (other_low is not None and other_high is not None and other_low > other_high)
    )


def passes(value: int | float, tests: Iterable[Test], *, for_all: bool = True) -> bool:
    """Whether a constant passes, by the rules of all validators (or, if not `for_all`, of some)."""
    for test in tests:
        kind: Any = test[0]
        argument: Any = test[1] if len(test) > 1 else None
        if kind == "integer":
            is_so = value == int(value)
        elif kind == "minimum":
            is_so = value >= argument
        elif kind == "maximum":
            is_so = value <= argument
        elif kind == "exclusive-minimum":
            is_so = value > argument
        elif kind == "exclusive-maximum":
            is_so = value < argument
        elif kind == "multiple":
            step = exact(argument)
            is_so = exact(value) % step == 0
            if not (is_binary(step) and is_binary(exact(value)) and abs(value) < 2**53):  # or floats are rounded
                in_floats = divides(step, value)
                is_so = is_so and in_floats if for_all else is_so or in_floats
        elif kind == "among":
            is_so = value in argument
        else:
            is_so = not passes(value, argument, for_all=not for_all)
        if not is_so:
            return False
    return True


def spellings(value: int | float, tests: Iterable[Test]) -> list[str]:
    """How a constant is written: as json.dumps does, and whole floats also without their point."""
    whole = [str(int(value))] if type(value) is float and value.is_integer() and abs(value) < 1e16 else []
    if whole and INTEGER in tests:
        return whole
    return [repr(value), *whole]


def scaled(step: Fraction) -> tuple[int, int]:
    """step = numerator / 10**places with as few places as possible, for a decimal."""
    places = 0
    while (step * 10**places).denominator != 1:
        places += 1
    return int(step * 10**places), places


def exact(number: int | float) -> Fraction:
    """The value as it was written: 0.1 is one tenth."""
    return Fraction(number) if type(number) is int else Fraction(Decimal(repr(number)))
