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
from .steps import MAX_DIGITS, MAX_EXACT, divides, is_binary

MAX_LISTED = 10_000
"""Most multiples within bounds that are listed one by one."""
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
    candidates = (index * step for index in range(math.ceil(low / step), math.floor(high / step) + 1))
    is_whole = INTEGER in tests or is_binary(step) or max(high, -low) >= 10**MAX_EXACT
    values = [int(value) if is_whole and value.denominator == 1 else float(value) for value in candidates]
    return _texts(values, tests, compile_time)


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
            if not is_binary(step):
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
