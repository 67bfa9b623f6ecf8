"""Numbers: bounds, steps and constants as automata over the decimal text, exact at every digit.

Texts come in two kinds. *Plain*: `-12.50`. *Scientific*: `1.5e-07`, as Python and JavaScript write numbers below
1e-4 and from 1e16 on. A number without tests may be written in any JSON spelling; a tested one in these two, as far
as the tests can be decided for them. For plain texts the tests are automata; scientific texts come in four sets,
small and big of either sign, which a test takes as a whole or not at all. Leaving a spelling out is sound, accepting a
wrong value is not. No text is written that a reader would take for infinity.

Readers turn fractions and exponents into binary floats. Rounding keeps the order, so `minimum` needs no care; for
`exclusiveMinimum: b` a text like b + 1e-40 would be read as b, so numbers start at the middle between b and the
next float. Whole numbers are read as integers and compared exactly.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, cast

from ...errors import ConstraintTooLarge
from ..any_json import any_number
from ..compile_time import NO_LIMIT, CompileTime
from ..network.expression import Embed, Expression, Literal
from ..regex.regex import regex_to_dfa
from ..remembered import remembered
from ..text.dfa import Dfa, no_text
from ..text.extent import all_texts
from ..text.literals import literal_dfa
from .algebra import Test
from .digits import EQUAL, GREATER, LESS, compared, multiples
from .listed_numbers import (
    INTEGER,
    MAX_LISTED,
    bounds,
    common_step,
    constant_texts,
    exact,
    few_multiples,
    has_large_step,
    is_large_step,
    nearest_multiples,
    scaled,
)
from .number_bounds import BIG, MINUS_BIG, MINUS_SMALL, SMALL, Texts, beyond, reaching
from .residues import (
    BOUNDS,
    MAX_MODULUS,
    is_about_remainders,
    is_any_whole,
    modulus_of,
    whole_numbers,
    without_last_digits,
)
from .steps import agreed_multiples, exact_texts, is_binary

MANY_REMAINDERS = 2_000
"""Of several whole steps: a product would tell as many apart for each of 16 numbers of digits."""

MAX_EXCLUDED = 64
"""Most constants that are taken out of the numbers (whole numbers: any number of them)."""

MAX_LITERALS = 16
"""Most constants that are written out; more are an automaton, which is smaller and shared."""


@functools.cache
def _integers() -> Dfa:
    return regex_to_dfa(r"-?(?:0|[1-9][0-9]*)", search=False)


@functools.cache
def _plain() -> Dfa:
    return regex_to_dfa(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?", search=False)


@functools.cache
def _short() -> Dfa:
    """At most 15 digits and a point: every such decimal is a different float, and a fraction stays one."""
    return regex_to_dfa(r"-?[0-9.]{1,16}", search=False).intersect(
        regex_to_dfa(r"-?(?:[0-9]{1,15}|[0-9]+\.[0-9]+)", search=False)
    )


@functools.cache
def _fractions() -> Dfa:
    return regex_to_dfa(r"-?(?:0|[1-9][0-9]*)\.[0-9]*[1-9][0-9]*", search=False).intersect(_short())


@functools.cache
def number_expression() -> Embed:
    """Any number (one shared object)."""
    return Embed(any_number())


@functools.cache
def integer_expression() -> Embed:
    """Any whole number (one shared object)."""
    return Embed(_integers())


def number_expressions(tests: tuple[Test, ...], compile_time: CompileTime = NO_LIMIT) -> Sequence[Expression]:
    """The texts of numbers that pass every test, as options; none if there are no such numbers."""
    if not tests:
        return [number_expression()]
    if tests == (INTEGER,):
        return [integer_expression()]
    return _expressions(tests, compile_time)


@remembered(1024)
def number_language(tests: tuple[Test, ...], compile_time: CompileTime = NO_LIMIT) -> Texts:
    """The texts of numbers that pass every test (at least one)."""
    texts = constant_texts(tests, compile_time)
    if texts is None:
        texts = few_multiples(tests, compile_time, untried=True)
    if texts is None and has_large_step(tests):
        texts, is_all = nearest_multiples(tests, compile_time)
        if not texts and not is_all:
            raise ConstraintTooLarge(
                f"the step of multipleOf has too many remainders, so up to {MAX_LISTED} multiples are tried, those "
                "nearest to 0 within the bounds, and none of them passes; list the values"
            )
    if texts is not None:
        return literal_dfa(texts), 0
    if is_any_whole(tests, None, None) is False:
        return no_text(), 0
    if (found := _by_remainder(tests, compile_time, MANY_REMAINDERS)) is not None:
        return found, 0
    try:
        return _product(tests, INTEGER in tests, compile_time)
    except ConstraintTooLarge:
        compile_time.check_here()
        texts = few_multiples(tests, compile_time)
        found = _by_remainder(tests, compile_time) if texts is None else literal_dfa(texts)
        if found is None:
            raise
        return found, 0


def _by_remainder(tests: tuple[Test, ...], compile_time: CompileTime, least: int = 1) -> Dfa | None:
    """The same for whole steps that are too much for a product, without a point in the texts.

    None if there are other steps, too large ones, or of several fewer than `least` remainders that all digits tell.
    """
    step = common_step(tests)
    about = tuple(test for test in tests if is_about_remainders(test))
    modulus = modulus_of(about)
    if step is None or step.denominator > 1 or modulus > MAX_MODULUS:
        return None
    if least > 1 and (len(about) == 1 or without_last_digits(modulus) < least):
        return None
    rest = tuple(test for test in tests if test not in about)
    texts, _ = _product((INTEGER, *rest), True, compile_time)
    return texts.intersect(whole_numbers(about, modulus))


def _product(tests: tuple[Test, ...], whole: bool, compile_time: CompileTime) -> Texts:
    found: Texts | None = None
    for test in _strictest(tests):
        if test == INTEGER:
            continue
        compile_time.check_here()
        other = _passing(test, whole)
        if found is None:
            found = other
            continue
        joint = _joint(found, other)
        if isinstance(joint, str):
            raise ConstraintTooLarge(joint)
        found = joint
    return found or (_integers(), 0)


@remembered(16)
def _joint(one: Texts, other: Texts) -> Texts | str:
    """The texts of both, or the error that they are too many to compute.

    Kept, failures too: alternatives that are expanded into each other begin with the same tests.
    """
    try:
        return _both(one, other)
    except ConstraintTooLarge as error:
        return str(error)


def _strictest(tests: tuple[Test, ...]) -> list[Test]:
    """The tests without those bounds that others of the same kind imply."""
    found: list[Test] = []
    strictest: dict[object, Test] = {}
    for test in dict.fromkeys(tests):
        kind: Any = test[0]
        if kind not in BOUNDS:
            found.append(test)
            continue
        known = strictest.get(kind)
        is_stricter = max if kind.endswith("minimum") else min
        strictest[kind] = (
            test if known is None else is_stricter(known, test, key=lambda bound: exact(cast(Any, bound[1])))
        )
    return [*strictest.values(), *found]


def is_impossible(tests: tuple[Test, ...], compile_time: CompileTime = NO_LIMIT) -> bool:
    """Whether it is certain that no number passes, however it is written and read."""
    low, high = bounds(tests)
    if low is not None and high is not None and low > high:
        return True
    is_any = is_any_whole(tests, low, high)
    if is_any is not None:
        return not is_any
    is_whole = INTEGER in tests
    certain = tuple(test for test in tests if not _is_about_multiples(test, is_whole))
    if not certain:
        return False
    plain, scientific = number_language(certain, compile_time)
    return plain.is_empty() and not scientific


def _is_about_multiples(test: Test, is_whole: bool) -> bool:
    """Whether a test is about multiples, of which not all are written.

    Args:
        is_whole: only whole numbers are asked; multiples of a whole step among them are all written.
    """
    argument: Any = test[1] if len(test) > 1 else None
    if test[0] == "not":
        return any(_is_about_multiples(other, is_whole) for other in argument)
    if test[0] != "multiple":
        return False
    return not is_whole or argument != int(argument) or is_large_step(cast(Any, argument))


def number_texts(tests: tuple[Test, ...], limit: int, compile_time: CompileTime = NO_LIMIT) -> list[str] | None:
    """One text per number that passes, the shortest, None if they are more than `limit`."""
    if not tests or tests == (INTEGER,):
        return None
    if has_large_step(tests) and not nearest_multiples(tests, compile_time)[1]:
        return None
    plain, scientific = number_language(tests, compile_time)
    texts = None if scientific else all_texts(plain, limit)
    if texts is None:
        return None
    shortest_last = sorted(texts, key=len, reverse=True)  # 0, not -0
    return list({Fraction(Decimal(text)): text for text in shortest_last}.values())


@remembered(1024)
def _expressions(tests: tuple[Test, ...], compile_time: CompileTime) -> Sequence[Expression]:
    if any(test[0] == "among" and len(cast(Any, test[2])) <= MAX_LITERALS for test in tests):
        return [Literal(text.encode()) for text in sorted(constant_texts(tests, compile_time) or ())]
    plain, scientific = number_language(tests, compile_time)
    found = [] if plain.is_empty() else [Embed(plain)]
    return found if not scientific else [*found, _scientific(scientific)]


@functools.cache
def _scientific(sets: int) -> Embed:
    small, big = r"e-(?:0[5-9]|[1-9][0-9]|[12][0-9]{2}|30[0-7])", r"e\+(?:1[6-9]|[2-9][0-9]|[12][0-9]{2}|30[0-7])"
    options = [
        rf"{sign}[1-9](?:\.[0-9]+)?{exponent}"
        for bit, sign, exponent in (
            (SMALL, "", small),
            (BIG, "", big),
            (MINUS_SMALL, "-", small),
            (MINUS_BIG, "-", big),
        )
        if sets & bit
    ]
    return Embed(regex_to_dfa("|".join(options), search=False))


# -------------------------------------------------------------------- tests as texts


@remembered(1024)
def _passing(test: Test, whole: bool) -> Texts:
    """The texts that pass; `whole`: whole numbers without point and exponent only."""
    kind: Any = test[0]
    argument: Any = test[1] if len(test) > 1 else None
    if kind == "integer":
        return _integers(), 0
    if kind in ("minimum", "maximum"):
        return reaching(argument, GREATER if kind == "minimum" else LESS, whole)
    if kind in ("exclusive-minimum", "exclusive-maximum"):
        return beyond(argument, GREATER if kind == "exclusive-minimum" else LESS, whole)
    if kind == "multiple":
        return _multiples(argument, True, whole), 0
    if kind == "among":
        return literal_dfa(constant_texts((test, INTEGER) if whole else (test,), NO_LIMIT) or ()), 0
    assert kind == "not", kind
    return _union(_failing(other, whole) for other in argument)


@remembered(1024)
def _failing(test: Test, whole: bool) -> Texts:
    kind: Any = test[0]
    argument: Any = test[1] if len(test) > 1 else None
    if kind == "integer":
        return (no_text(), 0) if whole else (_fractions(), SMALL | MINUS_SMALL)
    if kind in ("minimum", "maximum"):
        return beyond(argument, LESS if kind == "minimum" else GREATER, whole)
    if kind in ("exclusive-minimum", "exclusive-maximum"):
        return reaching(argument, LESS if kind == "exclusive-minimum" else GREATER, whole)
    if kind == "multiple":
        return _multiples(argument, False, whole), 0
    if kind == "not":  # it fails where every test in it holds
        return functools.reduce(_both, (_passing(other, whole) for other in argument))
    assert kind == "among", kind
    if whole:
        texts = {text for n in argument if n == int(n) for text in (str(int(n)), "-0" if n == 0 else str(int(n)))}
        return _integers().difference(literal_dfa(texts)), 0
    if len(argument) > MAX_EXCLUDED:
        raise ConstraintTooLarge(f"more than {MAX_EXCLUDED} numbers are excluded; say what is allowed")
    sides = [_union((beyond(n, LESS, whole), beyond(n, GREATER, whole))) for n in sorted(argument)]
    return functools.reduce(_both, sides)


def _both(one: Texts, other: Texts) -> Texts:
    return one[0].intersect(other[0]), one[1] & other[1]


def _union(found: Iterable[Texts]) -> Texts:
    plain, scientific = no_text(), 0
    for other in found:
        plain, scientific = plain.union(other[0]), scientific | other[1]
    return plain, scientific


def _large_multiples(step: int | float, wanted: bool, whole: bool) -> Dfa:
    """`_multiples` of a step that has too many remainders: the nearest to 0, or numbers between them that are none."""
    tests: tuple[Test, ...] = (("multiple", step), *((INTEGER,) if whole else ()))
    if wanted:
        return literal_dfa(nearest_multiples(tests, NO_LIMIT)[0])
    nearest = exact(step) if not whole else Fraction(exact(step).numerator)
    # of whole numbers the quotient must be so small that what is left over is not rounded away
    bound = nearest / 2 if not whole else min(nearest / 2, Fraction(int(exact(step) * 2**51 / nearest)))
    small = (compared(bound * side, frozenset((-side,)), with_point=not whole) for side in (LESS, GREATER))
    zero = compared(Fraction(0), frozenset((EQUAL,)), with_point=True)
    found = functools.reduce(Dfa.intersect, small, _short()).difference(zero)
    if found.is_empty():
        raise ConstraintTooLarge(f"no multiple of {step!r}: it has too many remainders for an automaton")
    return found


def _multiples(step: int | float, wanted: bool, whole: bool) -> Dfa:
    """Plain texts of numbers that are (or are not) multiples of `step`; fractions of up to 15 digits."""
    exact_step = exact(step)
    numerator, places = scaled(exact_step)
    if is_large_step(step):
        return _large_multiples(step, wanted, whole)
    if wanted and not is_binary(exact_step):
        found = agreed_multiples(numerator, places)
        return found.intersect(_integers()) if whole else found
    found = multiples(numerator, places)
    if whole and places == 0:
        return found.intersect(_integers()) if wanted else _integers().difference(found)
    if not wanted:
        found = _plain().difference(found)
        if places:  # dividing must not round what is left over away
            found = found.intersect(regex_to_dfa(rf"-?[0-9]{{1,{max(15 - places, 1)}}}(?:\.[0-9]+)?", search=False))
    short = found.intersect(_short())
    if wanted:
        short = short.union(found.intersect(exact_texts(exact_step) if places else _integers()))
    return short.intersect(_integers()) if whole else short
