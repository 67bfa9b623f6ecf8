"""Numbers: bounds, steps and constants as automata over the decimal text, exact at every digit.

Texts come in two kinds. *Plain*: `-12.50`. *Scientific*: `1.5e-07`, one digit before the point and a signed exponent
of two or three digits, as Python and JavaScript write very large and small numbers. A number without tests may be
written in any JSON spelling; a tested one in those two, as far as the tests can be decided for them: with
`multipleOf` or `integer` only plain texts are written. Leaving a spelling out is sound, taking a wrong value is not.

Readers turn fractions and exponents into binary floats. Rounding keeps the order, so `minimum` needs no care; for
`exclusiveMinimum: b` a text like b + 1e-40 would be read as b, so fractions start at the middle between b and the
next float. Whole texts are read as integers and compared exactly.
"""

from __future__ import annotations

import functools
import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ..dfa import Dfa
from ..expression import Embed
from ..regex import regex_to_dfa
from .digits import compared_plain, compared_scientific, multiples
from .parts import Test

ANY_NUMBER = Embed(
    regex_to_dfa(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?", search=False, dialect="json-schema")
)
ANY_INTEGER = Embed(regex_to_dfa(r"-?(?:0|[1-9][0-9]*)", search=False, dialect="json-schema"))

_INTEGERS = regex_to_dfa(r"-?(?:0|[1-9][0-9]*)", search=False)
_WITH_POINT = regex_to_dfa(r"-?(?:0|[1-9][0-9]*)\.[0-9]+", search=False)
_FRACTIONS = regex_to_dfa(
    r"-?(?:0|[1-9][0-9]*)\.[0-9]*[1-9][0-9]*|-?[1-9](?:\.[0-9]+)?e-(?:0[1-9]|[1-9][0-9]|[12][0-9]{2}|30[0-7])", search=False
)
_SHORT = regex_to_dfa(r"-?[0-9.]{1,16}", search=False)
"""At most 15 digits and a point: every such decimal is a different float."""

_LARGE = 2**53
_TINY = Fraction(1, 10**30)


@functools.lru_cache(maxsize=1024)
def number_language(tests: tuple[Test, ...]) -> Dfa:
    """The texts of numbers that pass every test (at least one)."""
    language: Dfa | None = None
    for test in tests:
        other = _passing(test)
        language = other if language is None else language.intersect(other)
    assert language is not None
    return language


@functools.lru_cache(maxsize=1024)
def number_expression(tests: tuple[Test, ...]) -> Embed | None:
    """The same texts as an expression; None if there are none."""
    if not tests:
        return ANY_NUMBER
    if tests == (("integer",),):
        return ANY_INTEGER
    language = number_language(tests)
    return None if language.is_empty() else Embed(language)


def step_problem(step: int | float) -> str | None:
    """Why `multipleOf: step` cannot be decided; None if it can."""
    numerator, places = _scaled(step)
    if numerator * (places + 1) > 20_000:
        return f"{step!r} needs an automaton with more than 20000 states"
    if Fraction(step) != Fraction(Decimal(repr(step))):
        return f"{step!r} is no exact binary fraction, and readers round differently; use whole numbers or halves"
    return None


@functools.lru_cache(maxsize=1024)
def _passing(test: Test) -> Dfa:
    kind: Any = test[0]
    argument: Any = test[1] if len(test) > 1 else None
    if kind == "integer":
        return _INTEGERS
    if kind == "minimum":
        return _at_least(_exact(argument), 1)
    if kind == "maximum":
        return _at_least(_exact(argument), -1)
    if kind == "exclusive-minimum":
        return _beyond(argument, 1)
    if kind == "exclusive-maximum":
        return _beyond(argument, -1)
    if kind == "multiple":
        return _multiples(argument, True)
    if kind == "among":
        return Dfa.from_literals(text.encode() for number in argument for text in _spellings(number))
    assert kind == "not", kind
    return functools.reduce(Dfa.union, map(_failing, argument))


@functools.lru_cache(maxsize=1024)
def _failing(test: Test) -> Dfa:
    kind: Any = test[0]
    argument: Any = test[1] if len(test) > 1 else None
    if kind == "integer":
        return _FRACTIONS
    if kind == "minimum":
        return _beyond(argument, -1)
    if kind == "maximum":
        return _beyond(argument, 1)
    if kind == "exclusive-minimum":
        return _at_least(_exact(argument), -1)
    if kind == "exclusive-maximum":
        return _at_least(_exact(argument), 1)
    if kind == "multiple":
        return _multiples(argument, False)
    if kind == "among":
        sides = (_beyond(number, -1).union(_beyond(number, 1)) for number in sorted(argument))
        return functools.reduce(Dfa.intersect, sides)
    assert kind == "not", kind
    return number_language(argument)


def _at_least(bound: Fraction, direction: int) -> Dfa:
    """Texts of numbers >= bound (direction 1) or <= bound (direction -1)."""
    wanted = frozenset((0, direction))
    return compared_plain(bound, wanted).union(compared_scientific(bound, wanted))


def _beyond(number: int | float, direction: int) -> Dfa:
    """Texts of numbers > number (direction 1) or < number (direction -1), also after rounding to a float."""
    bound = _exact(number)
    wanted = frozenset((direction,))
    if bound == 0:
        point = compared_plain(_TINY * direction, wanted).intersect(_WITH_POINT)
        exact = compared_plain(bound, wanted).intersect(_INTEGERS)
        return exact.union(point).union(compared_scientific(bound, wanted))
    nearest = float(number)
    limit = Fraction(nearest)
    following = Fraction(math.nextafter(nearest, math.inf * direction)) if math.isfinite(nearest) else limit
    middle = (limit + following) / 2
    middle = max(middle, bound) if direction > 0 else min(middle, bound)
    if abs(bound) < _LARGE:
        return compared_plain(middle, wanted).union(compared_scientific(middle, wanted))
    exact = compared_plain(bound, wanted).intersect(_INTEGERS)
    point = compared_plain(middle, wanted).intersect(_WITH_POINT)
    return exact.union(point).union(compared_scientific(middle, wanted))


def _multiples(step: int | float, wanted: bool) -> Dfa:
    """Plain texts of numbers that are (or are not) multiples of `step`; fractions of up to 15 digits."""
    numerator, places = _scaled(step)
    found = multiples(numerator, places)
    if not wanted:
        found = _INTEGERS.union(_WITH_POINT).difference(found)
    if places or not wanted:
        return found.intersect(_SHORT)
    return found.intersect(_INTEGERS).union(found.intersect(_SHORT))


def _scaled(step: int | float) -> tuple[int, int]:
    """step = numerator / 10**places in lowest places."""
    exact = _exact(step)
    places = 0
    while (exact * 10**places).denominator != 1:
        places += 1
    return int(exact * 10**places), places


def _exact(number: int | float) -> Fraction:
    """The value as it was written: 0.1 is one tenth."""
    return Fraction(number) if type(number) is int else Fraction(Decimal(repr(number)))


def _spellings(number: int | float) -> list[str]:
    """How a constant is written: as json.dumps does, and whole floats also without their point."""
    texts = [json.dumps(number)]
    if type(number) is float and number.is_integer() and abs(number) < 1e16:
        texts.append(str(int(number)))
    return texts
