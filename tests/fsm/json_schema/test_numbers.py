"""Numbers by brute force: every short decimal text against exact arithmetic."""

from __future__ import annotations

import functools
import json
import math
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage
from phloem.fsm.json_schema.digits import compared, multiples
from phloem.fsm.json_schema.float_quotients import whole_quotients
from phloem.fsm.json_schema.residues import without_last_digits

from .walks import accepts, constraint_of, judge_of, num_judged_alike, written

TEXTS = ["".join(text) for length in range(1, 6) for text in product("-.0123", repeat=length)]


def is_plain(text: str) -> bool:
    whole, point, fraction = text.removeprefix("-").partition(".")
    return whole.isdigit() and (whole == "0" or whole[0] != "0") and (fraction.isdigit() if point else not fraction)


@functools.cache
def values_of_texts() -> dict[str, Fraction | None]:
    """What each text means, None for those that are no plain decimals."""
    return {text: Fraction(text) if is_plain(text) else None for text in TEXTS}


@pytest.mark.parametrize("bound", ["0", "1", "-1", "2.1", "-0.3", "10", "13.02", "-120", "0.001", "333"])
@pytest.mark.parametrize("wanted", [{1}, {-1}, {0}, {0, 1}, {-1, 0}, {-1, 1}])
def test_comparison_accepts_exactly_the_decimals_in_that_relation(bound: str, wanted: set[int]) -> None:
    exact = Fraction(bound)
    automata = {point: compared(exact, frozenset(wanted), with_point=point) for point in (True, False)}
    for text, value in values_of_texts().items():
        if len(text) == 5 and len(bound) <= 3:
            break
        expected = value is not None and (value > exact) - (value < exact) in wanted
        assert automata[True].accepts(text) == expected, text
        assert automata[False].accepts(text) == (expected and "." not in text), text


@pytest.mark.parametrize(("numerator", "places"), [(1, 0), (3, 0), (10, 0), (12, 0), (5, 1), (25, 2), (21, 1), (1, 2)])
def test_multiples_are_exactly_the_multiples(numerator: int, places: int) -> None:
    automaton = multiples(numerator, places)
    step = Fraction(numerator, 10**places)
    for text, value in values_of_texts().items():
        expected = value is not None and value % step == 0
        assert automaton.accepts(text) == expected, text


numbers = (
    st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.decimals(min_value=-1000, max_value=1000, places=3).map(float)
)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "type"]), numbers, min_size=1
    ),
    st.lists(numbers, min_size=10, max_size=10),
)
def test_bounds_are_those_of_the_judge(schema: dict[str, Any], instances: list[int | float]) -> None:
    schema = {**schema, "type": "integer" if "type" in schema else "number"}
    judge = judge_of(schema)
    bounds = [value for value in schema.values() if not isinstance(value, str)]
    try:
        automaton = constraint_of(schema)
    except EmptyLanguage:
        automaton = None
    for instance in [*instances, *bounds, *(bound + 1 for bound in bounds), *(bound / 3 for bound in bounds)]:
        if schema["type"] == "integer" and isinstance(instance, float):
            continue
        taken = automaton is not None and accepts(automaton, written(instance))
        valid = judge.is_valid(instance)
        assert valid or not taken, instance
        # scientific spellings near a bound that is itself very large or very small may be left out
        if valid and "e" not in written(instance):
            assert taken, instance


@settings(max_examples=200, deadline=None)
@given(numbers, st.integers(1, 40), st.sampled_from([True, False]))
def test_rounding_never_slips_over_an_exclusive_bound(bound: int | float, digits: int, above: bool) -> None:
    """Texts a hair away from the bound, with more digits than a float holds."""
    keyword = "exclusiveMinimum" if above else "exclusiveMaximum"
    schema = {"type": "number", keyword: bound}
    automaton, judge = constraint_of(schema), judge_of(schema)
    whole, point, fraction = f"{bound:.20f}".partition(".")
    for text in (
        f"{whole}{point}{fraction[:digits]}",
        f"{whole}{point}{fraction[:digits]}1",
        f"{whole}.{'0' * digits}1",
    ):
        if accepts(automaton, text):
            assert judge.is_valid(json.loads(text)), text


@pytest.mark.parametrize(("step", "whole_digits"), [(0.01, 4), (0.1, 4), (0.05, 4), (0.001, 3), (0.3, 4), (0.0001, 2)])
def test_other_steps_are_what_floats_and_decimals_both_take_for_multiples(step: float, whole_digits: int) -> None:
    schema = {"multipleOf": step}
    automaton, judge = constraint_of(schema), judge_of(schema)
    exact = Fraction(str(step))
    places = len(str(step).partition(".")[2]) if "e" not in str(step) else 4
    texts = [f"{index / 10**places:.{places}f}" for index in range(0, 10 ** (whole_digits + places), 97)]
    texts += [f"{index / 1000:.3f}" for index in range(0, 10**6, 997)] + [str(index) for index in range(0, 10**6, 991)]
    texts += ["-0.5", "0.50", "0.010", "123456789.25", "99999999999999", "19.98", "19.99", "0.07", "1.", "-0.00"]
    for text in texts:
        agreed = is_plain(text) and judge.is_valid(json.loads(text)) and Fraction(text) % exact == 0
        accepted = accepts(automaton, text)
        assert accepted <= agreed, text
        if agreed and abs(Fraction(text)) < 10**whole_digits:
            assert accepted, text


def test_amounts_of_money_are_written() -> None:
    cents = [json.loads(f"{index // 100}.{index % 100:02}") for index in range(1_000_000, 2_000_000, 37)]
    num_written = num_judged_alike({"multipleOf": 0.01}, cents)
    assert num_written is not None and num_written > 0.8 * len(cents)


MONEY = st.sampled_from(["0.01", "0.05", "0.1", "0.25", "0.02", "0.5", "0.07", "0.3"])
AMOUNTS = st.integers(0, 15).flatmap(lambda digits: st.integers(0, 10**digits - 1))


@settings(max_examples=300, deadline=None)
@given(MONEY, AMOUNTS, st.integers(0, 50), st.sampled_from(["", "0", "000"]), st.booleans())
def test_which_amounts_have_whole_quotients_in_floats_is_computed(
    step: str, index: int, exponent: int, zeros: str, is_negative: bool
) -> None:
    """Against the division itself, next to powers of two of the quotient, too."""
    places = len(step) - 2
    units = int(step.replace(".", ""))
    automaton = whole_quotients(units, places)
    for number in (index * units, (units << exponent) - units, units << exponent, (units << exponent) + units):
        if number >= 10 ** (13 + places):
            continue
        whole, fraction = divmod(number, 10**places)
        text = f"{'-' * is_negative}{whole}.{fraction:0{places}}{zeros}"
        assert automaton.accepts(text) == (float(text) / float(step)).is_integer(), text
        assert not automaton.accepts(f"{text}1")


STEPS = [0.7, 0.07, 0.35, 1.1, 33.3, 1e-6, 1e-8, 2e-6, 0.00501, 12.5, 0.125]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(STEPS), st.integers(0, 10**19), st.sampled_from([1, 2, 4, 1000]), st.booleans())
def test_large_numbers_are_multiples_only_if_floats_and_decimals_say_so(
    step: float, index: int, parts: int, is_negative: bool
) -> None:
    exact = Fraction(str(Decimal(repr(step))))
    automaton, judge = constraint_of({"multipleOf": step}), judge_of({"multipleOf": step})
    refusing = constraint_of({"type": "number", "not": {"multipleOf": step}})
    for value in (Fraction(index, parts), Fraction(index * exact.numerator, parts), index * exact / 10**6):
        text = ("-" if is_negative else "") + format(Decimal(value.numerator) / value.denominator, "f")
        number = json.loads(text)
        readings = {Fraction(text) % exact == 0, judge.is_valid(number), judge.is_valid(float(text))}
        assert not accepts(automaton, text) or readings == {True}, text
        assert not accepts(refusing, text) or readings == {False}, text


def test_large_whole_numbers_are_multiples_of_fractions() -> None:
    for step, text in (
        (1e-8, "12391239123"), (1e-8, "0.00001234"), (0.001, str(2**53)), (0.001, "1234.56"), (0.5, str(2**59 + 1)),
        (0.7, "14"), (0.7, "700000000000000000"), (1e-6, "0.000001"), (1e-6, "59.327"),
    ):  # fmt: skip
        assert accepts(constraint_of({"multipleOf": step}), text), (step, text)
    assert accepts(constraint_of({"multipleOf": 0.001, "minimum": 2**53}), str(2**53 + 1))
    assert not accepts(constraint_of({"multipleOf": 0.7}), "21")  # 30.000000000000004 in floats


def test_few_multiples_between_bounds_are_all_tried() -> None:
    schema = {"multipleOf": 0.01, "minimum": 99999.5, "maximum": 100000.25}
    assert num_judged_alike(schema, [index / 100 for index in range(9999940, 10000040)])
    with pytest.raises(EmptyLanguage):  # in floats 999999.19 / 0.01 is 99999918.99999999
        constraint_of({"type": "number", "multipleOf": 0.01, "minimum": 999999.19, "maximum": 999999.19})


@pytest.mark.parametrize(
    ("step", "bounds"),
    [
        (28672, {}), (123456789, {"minimum": 700}), (0.123456789, {"type": "integer"}),
        (0.123456789, {"maximum": -123}),
        (20000.5, {"type": "integer", "minimum": 3}), (1e-15, {}), (10**40, {"maximum": -123}), (1e300, {}),
        (2.0**-20, {"minimum": 700}),
    ],
    ids=str,
)  # fmt: skip
def test_of_a_large_step_the_nearest_multiples_are_written(step: float, bounds: dict[str, Any]) -> None:
    schema = {"multipleOf": step, **bounds}
    automaton, judge = constraint_of(schema), judge_of({"type": "number", **bounds})
    exact_step = Fraction(Decimal(repr(step)))
    whole = exact_step.numerator if "type" in bounds else exact_step
    side = -1 if "maximum" in bounds else 1
    first = math.ceil(Fraction(abs(bounds.get("minimum", bounds.get("maximum", 0)))) / whole)
    for index in [*range(first, first + 40), first + 600]:
        number = side * index * whole
        if abs(number) >= 10**308:
            continue
        text = str(number) if number.denominator == 1 else repr(float(number))
        is_multiple = Fraction(Decimal(text)) % exact_step == 0
        is_one_in_floats = Fraction(float(step)) == exact_step or (float(text) / step).is_integer()
        is_written = is_multiple and is_one_in_floats and judge.is_valid(json.loads(text))
        assert accepts(automaton, text) == is_written, text
        assert not accepts(automaton, str(number + 1) if whole > 1 else "0.7"), text


@pytest.mark.parametrize("step", [28672, 0.123456789, 20000.5, 1e300, 999999937])
@pytest.mark.parametrize("kind", ["number", "integer"])
def test_what_is_no_multiple_of_a_large_step_is_written_near_zero(step: float, kind: str) -> None:
    automaton = constraint_of({"type": kind, "not": {"multipleOf": step}})
    exact_step = Fraction(Decimal(repr(step)))
    for number in (*range(-30, 30), *(Fraction(index, 1000) for index in range(-30, 30)), 28671, 28672, 40001, 123456):
        text = repr(float(number)) if number.denominator > 1 else str(number)
        is_none = Fraction(Decimal(text)) % exact_step != 0 and not (float(text) / step).is_integer()
        is_near = number.denominator == 1 if kind == "integer" else abs(number) * 2 < exact_step
        is_near = is_near and abs(number) < 10_000
        assert accepts(automaton, text) == is_none or not is_near, text
        assert is_none or not accepts(automaton, text), text


def test_what_the_readings_judge_differently_is_neither_a_multiple_nor_none() -> None:
    for schema in ({"multipleOf": 0.01}, {"not": {"multipleOf": 0.01}}, {"enum": [0.07], "multipleOf": 0.01}):
        if "enum" in schema:
            with pytest.raises(EmptyLanguage):
                constraint_of(schema)
        else:
            assert not accepts(constraint_of(schema), "0.07")


def test_many_steps_go_by_the_remainder() -> None:
    schema = {"multipleOf": 33, "not": {"anyOf": [{"multipleOf": step} for step in (8, 7, 5, 12)]}}
    assert num_judged_alike(schema, [*range(-3000, 3000), *range(10**9, 10**9 + 500)])


STEPS_AND_BOUNDS = st.fixed_dictionaries(
    {"multipleOf": st.integers(1, 60)},
    optional={"minimum": st.integers(-300, 300), "exclusiveMaximum": st.integers(-300, 300).map(lambda n: n + 0.5)},
)


@settings(max_examples=150, deadline=None)
@given(STEPS_AND_BOUNDS, st.lists(STEPS_AND_BOUNDS, max_size=5), st.lists(STEPS_AND_BOUNDS, max_size=2))
def test_steps_and_negated_steps_are_those_of_exact_arithmetic(
    step: dict[str, Any], refused: list[dict[str, Any]], also: list[dict[str, Any]]
) -> None:
    def passes(number: Fraction, tests: dict[str, Any]) -> bool:
        return (
            number % tests["multipleOf"] == 0
            and number >= tests.get("minimum", number)
            and ("exclusiveMaximum" not in tests or number < Fraction(tests["exclusiveMaximum"]))
        )

    def is_valid(number: Fraction) -> bool:
        return all(passes(number, tests) for tests in (step, *also)) and not any(
            passes(number, tests) for tests in refused
        )

    try:
        automaton = constraint_of({"type": "number", "allOf": [step, *also, *({"not": tests} for tests in refused)]})
    except ConstraintTooLarge:
        assume(False)
    except EmptyLanguage:
        automaton = None
    for number in [*range(-500, 500), *range(360_360 * 11, 360_360 * 11 + 200)]:
        assert (automaton is not None and accepts(automaton, str(number))) == is_valid(Fraction(number)), number
        for text in (f"{number}.0", f"{number}.5"):
            assert automaton is None or not accepts(automaton, text) or is_valid(Fraction(text)), text


@pytest.mark.parametrize("bounds", [{}, {"minimum": -20}, {"exclusiveMaximum": 35}, {"minimum": -40, "maximum": 40}])
def test_which_multiples_exclude_each_other_goes_by_the_remainder(bounds: dict[str, int]) -> None:
    options = [{"multipleOf": 6}, {"multipleOf": 4}, {"multipleOf": 3, "not": {"multipleOf": 2}}, {"multipleOf": 26}]
    schema = {"type": "integer", "oneOf": [{**option, **bounds} for option in options], "not": {"multipleOf": 5}}
    assert num_judged_alike(schema, range(-400, 400))


def test_a_constant_is_written_as_the_schema_has_it_whatever_was_compiled_before() -> None:
    for value in (1, 1.0, 0, 0.0):
        automaton = constraint_of({"allOf": [{"const": value}, {"type": "number"}]})
        assert accepts(automaton, json.dumps(value))
        assert accepts(automaton, "1.0" if value else "0.0") == (type(value) is float)


def test_no_number_is_written_that_reads_as_infinity() -> None:
    for schema in ({}, {"type": "number"}, {"type": "array", "items": {}}):
        automaton = constraint_of(schema)
        opening, closing = ("[", "]") if "items" in schema else ("", "")
        assert accepts(automaton, f"{opening}1e307{closing}")
        assert not accepts(automaton, f"{opening}1e999{closing}")


@given(st.integers(1, 10**7))
def test_a_modulus_without_its_last_digits_has_no_factor_of_ten(modulus: int) -> None:
    rest = without_last_digits(modulus)
    assert math.gcd(rest, 10) == 1 and modulus % rest == 0 and 10**24 % (modulus // rest) == 0


@pytest.mark.parametrize(
    ("schema", "text", "is_taken"),
    [
        ({"multipleOf": 1e22}, "9870000000000000000000000", False),  # 986.9999999999999 in floats
        ({"multipleOf": 1e22}, "20000000000000000000000", True),
        ({"not": {"multipleOf": 20042.0}, "multipleOf": 2**58}, "288230376151711744000", False),
        ({"minimum": 1e300}, str(10**300), False),  # the float lies above it
        ({"exclusiveMinimum": 1e300}, str(10**300 + 1), False),
        ({"minimum": 1e17}, str(10**17), True),
        ({"maximum": 1e23}, str(10**23), False),  # and this one below
    ],
)
def test_large_steps_and_bounds_are_those_of_all_readers(schema: Any, text: str, is_taken: bool) -> None:
    assert accepts(constraint_of({"type": "number", **schema}), text) is is_taken


@pytest.mark.parametrize("how", ["allOf", "anyOf"])
def test_a_step_that_is_infinite_in_floats_is_refused_beside_another(how: str) -> None:
    with pytest.raises(ConstraintTooLarge, match="the step of multipleOf has too many remainders"):
        constraint_of({how: [{"type": "number", "multipleOf": 10**310}, {"type": "number", "multipleOf": 4.5}]})
