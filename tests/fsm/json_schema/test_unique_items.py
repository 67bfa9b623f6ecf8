"""Arrays without repetitions over lists of values, short and long, against the judge."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import EmptyLanguage, UnsupportedSchema

from ..network.test_any_order import assert_costs_are_exact
from .walks import accepts, compiled, constraint_of, judge_of, written

VALUES = (1, 12, 123, 2, "a", "ab", "", None, True, False, "1", -1, 1.5)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(VALUES), min_size=1, max_size=4, unique_by=repr),
    st.integers(0, 4),
    st.none() | st.integers(0, 4),
    st.booleans(),
)
def test_every_list_of_few_values_is_judged_right(
    values: list[Any], least: int, most: int | None, is_fixed: bool
) -> None:
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True, "minItems": least}
    if most is not None:
        schema["maxItems"] = most
    if is_fixed:
        schema["prefixItems"] = [{"enum": values}]
    judge = judge_of(schema)
    try:
        automaton = constraint_of(schema)
    except EmptyLanguage:
        automaton = None
    for length in range(4):
        for instance in product(values, repeat=length):
            valid = judge.is_valid(list(instance))
            assert bool(automaton and accepts(automaton, written(list(instance)))) == valid, instance
    if automaton:
        assert_costs_are_exact(automaton.automaton)


few_values = st.sampled_from(
    [{"type": "boolean"}, {"enum": [1, "a", None]}, {"const": "a"}, {"type": "integer", "minimum": 0, "maximum": 1}, {}]
)


@settings(max_examples=40, deadline=None)
@given(
    few_values,
    st.lists(few_values, max_size=2),
    st.fixed_dictionaries(
        {}, optional={"minItems": st.integers(0, 3), "maxItems": st.integers(0, 3), "maxContains": st.integers(0, 2)}
    ),
    st.none() | few_values,
)
def test_lists_in_which_something_must_come_twice_are_judged_right(
    items: Any, fixed: list[Any], bounds: dict[str, int], contained: Any
) -> None:
    schema = {"type": "array", "items": items, **bounds, "not": {"uniqueItems": True}}
    if fixed:
        schema["prefixItems"] = fixed
    if contained is not None:
        schema["contains"] = contained
    judge, automaton = judge_of(schema), compiled(schema)
    if automaton is None:  # refused
        assert {} in (items, *fixed)
        return
    for length in range(4):
        for instance in product((1, 0, "a", None, True), repeat=length):
            valid = judge.is_valid(list(instance))
            assert bool(automaton and accepts(automaton, written(list(instance)))) == valid, instance


def test_without_an_end_of_values_none_can_be_asked_for_twice() -> None:
    schema = {"properties": {"a": {"type": "array", "items": {"type": "string"}, "not": {"uniqueItems": True}}}}
    with pytest.raises(UnsupportedSchema, match="list the values") as caught:
        constraint_of(schema)
    assert caught.value.pointer == "/properties/a/not/uniqueItems"


def test_constants_of_different_types_do_not_run_out() -> None:
    for constant in (["ab", [6]], [{}, []], ["a", 1, {"x": 1}, [2]]):
        automaton = constraint_of({"const": constant, "uniqueItems": True, "minItems": len(constant)})
        assert accepts(automaton, written(constant))


@pytest.mark.parametrize("count", [11, 31, 32, 200, 4096])
def test_lists_of_many_values(count: int) -> None:
    values = [f"value {i}" if i % 2 else i * 7 for i in range(count)]
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True, "minItems": 2, "maxItems": count - 1}
    automaton, rng = constraint_of(schema), random.Random(count)
    for length in (2, 9, min(count - 1, 40)):
        chosen = rng.sample(values, length)
        assert accepts(automaton, written(chosen))
        assert not accepts(automaton, written([*chosen, rng.choice(chosen)]))
        assert not accepts(automaton, written([*chosen[1:], "value"]))
    assert not accepts(automaton, written(values[:1])) and not accepts(automaton, "[]")
    if count < 100:
        assert accepts(automaton, written(values[1:])) and not accepts(automaton, written(values))


def test_values_that_may_run_out_are_refused() -> None:
    few: Any = {"type": "object", "properties": {"a": {"type": "boolean"}}, "additionalProperties": False}
    for items, count in ((few, 3), ({"type": "array", "items": few, "maxItems": 1}, 4)):
        unique = {"type": "array", "items": items, "uniqueItems": True}
        constraint_of({"properties": {"here": unique | {"minItems": count}}})
        with pytest.raises(UnsupportedSchema, match="uniqueItems"):
            constraint_of({"properties": {"here": unique | {"minItems": count + 1}}})


def test_values_that_are_none_themselves_are_not_counted_as_items() -> None:
    """Three different lists are asked for, each of three different ones: only the empty list has an end."""
    inner = {"type": "array", "items": {"$ref": "#"}, "uniqueItems": True, "minItems": 3, "maxItems": 3}
    with pytest.raises(UnsupportedSchema, match="fewer unique items than minItems"):
        constraint_of({"type": "array", "items": inner, "uniqueItems": True, "maxItems": 4})
