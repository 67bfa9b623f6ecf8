"""Arrays without repetitions over lists of values, short and long, against the judge."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import EmptyLanguage, UnsupportedSchema
from phloem.fsm.json_schema import KeyOrder

from ..network.test_any_order import assert_costs_are_exact
from .walks import accepts, compiled, constraint_of, num_judged_alike, written


def lists(values: Sequence[Any], most: int) -> Iterator[list[Any]]:
    """All lists of so many of the values."""
    return (list(items) for length in range(most + 1) for items in product(values, repeat=length))


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
    assert num_judged_alike(schema, lists(values, 3)) is not None
    if automaton := compiled(schema):
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
    assert num_judged_alike(schema, lists((1, 0, "a", None, True), 3)) is not None or {} in (items, *fixed)


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


@pytest.mark.parametrize("key_order", ["schema", "any"])
def test_lists_of_constants_of_every_kind(key_order: KeyOrder) -> None:
    values: list[Any] = [[1, 2], [1], {"a": [True]}, {}, "a", 1, None, [], [[]]]
    schema = {"type": "array", "items": {"enum": values}, "uniqueItems": True, "maxItems": 3}
    assert num_judged_alike(schema, lists(values, 3), key_order) is not None
    with pytest.raises(EmptyLanguage):
        constraint_of(schema | {"maxItems": 10, "minItems": 10}, key_order=key_order)


OF_ANY_KIND: list[Any] = [
    {}, {"type": "object"}, {"type": "array"}, {"type": "integer"}, {"type": ["string", "null"]}, {"minLength": 2},
    {"enum": [{"a": 1, "b": 2}, {"b": 2, "a": 1}]}, {"enum": [[1.0], [1]]},
]  # fmt: skip


@pytest.mark.parametrize("items", OF_ANY_KIND, ids=repr)
def test_items_of_any_kind_are_judged_right(items: Any) -> None:
    schema = {"type": "array", "items": items, "uniqueItems": True}
    values: list[Any] = [[], [1], {}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, 1, 12, "ab", "", None]
    assert num_judged_alike(schema, lists(values, 2), "any")


@pytest.mark.parametrize("asked", [{"minItems": 2}, {"contains": {"type": "array"}}, {"contains": {"const": 10}}])
def test_items_of_any_kind_cannot_be_asked_for(asked: Any) -> None:
    here = {"type": "array", "items": {"type": ["object", "array", "integer"]}, "uniqueItems": True, **asked}
    for key_order in ("schema", "any"):
        with pytest.raises(UnsupportedSchema, match="list the values, write them as strings") as caught:
            constraint_of({"properties": {"here": here}}, key_order=key_order)
        assert caught.value.pointer == "/properties/here/uniqueItems"


def test_items_that_differ_anyway_may_be_of_any_kind() -> None:
    fixed: list[Any] = [{"type": "object"}, {"type": "integer", "minimum": 5}, {"type": "integer", "maximum": 4}]
    schema = {"type": "array", "prefixItems": fixed, "items": False, "uniqueItems": True}
    assert accepts(constraint_of(schema), '[{"a":1},7,2]')
    assert not accepts(constraint_of(schema | {"prefixItems": [*fixed, {"type": "integer"}]}), '[{"a":1},7,2,2]')
    assert not accepts(constraint_of(schema | {"items": {"type": "array"}}), '[{"a":1},7,2,[],[]]')
    assert accepts(constraint_of(schema | {"items": {"type": "array"}, "maxItems": 4}), '[{"a":1},7,2,[]]')
