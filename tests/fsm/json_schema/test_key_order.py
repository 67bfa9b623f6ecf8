"""Objects with keys in any order, the judge being asked about every set of keys; and the default order."""

from __future__ import annotations

import json
import random
from itertools import chain, combinations, permutations, product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge
from phloem.fsm.json_schema.conditions import modes

from ..network.test_any_order import assert_costs_are_exact
from .walks import accepts, compiled, constraint_of, judge_of, walk, written

NAMES = ("a", "ab", "b", "c")
EXTRA = ("x", "bb")

names = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
some_names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True)
required = st.builds(lambda keys: {"required": keys}, some_names)
conditions = st.recursive(
    required | st.builds(lambda when, keys: {"dependentRequired": {when: keys}}, st.sampled_from(NAMES), some_names),
    lambda inner: (
        st.builds(
            lambda keyword, parts: {keyword: parts},
            st.sampled_from(["anyOf", "oneOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=3),
        )
        | st.builds(lambda part: {"not": part}, inner)
    ),
    max_leaves=4,
)


@st.composite
def object_schemas(draw: st.DrawFn) -> dict[str, Any]:
    """Objects whose named members are zeros or ones, with conditions on which keys are there."""
    properties = {key: draw(st.sampled_from([{"const": 0}, {"enum": [0, 10]}, True, False])) for key in draw(names)}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if draw(st.booleans()):
        schema["additionalProperties"] = draw(st.sampled_from([False, {"const": 0}]))
    if draw(st.integers(0, 3)) == 0:
        schema["patternProperties"] = {draw(st.sampled_from(["^b", "^.$"])): {"const": 0}}
    if draw(st.integers(0, 3)) == 0:
        schema["propertyNames"] = {"maxLength": draw(st.integers(0, 2))}
    if draw(st.booleans()):
        schema["required"] = draw(names)
    if draw(st.booleans()):
        schema["minProperties"] = draw(st.integers(0, 3))
    if draw(st.booleans()):
        schema["maxProperties"] = draw(st.integers(0, 4))
    if draw(st.booleans()):
        schema["dependentRequired"] = draw(st.dictionaries(st.sampled_from(NAMES), names, max_size=3))
    if draw(st.booleans()):
        schema["allOf"] = draw(st.lists(conditions, min_size=1, max_size=2))
    return schema


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(object_schemas(), st.randoms(use_true_random=False))
def test_every_order_of_every_valid_set_of_keys_can_be_written_and_no_other(schema: Any, rng: random.Random) -> None:
    automaton = compiled(schema, "any")
    if automaton is None:
        return
    judge = judge_of(schema)
    keys = (*NAMES, *EXTRA)
    for chosen in chain.from_iterable(combinations(keys, size) for size in range(5)):
        orders = list(permutations(chosen))
        for order in rng.sample(orders, min(len(orders), 4)):
            instance = dict.fromkeys(order, 0)
            valid = judge.is_valid(instance)
            assert bool(automaton and accepts(automaton, written(instance))) == valid, written(instance)
    if automaton:
        for _ in range(3):
            text = walk(automaton, rng, 50)
            assert judge.is_valid(json.loads(text)), text


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(object_schemas())
def test_the_cost_of_every_state_is_exact(schema: Any) -> None:
    schema["properties"] = {key: value and {"const": 0} for key, value in schema["properties"].items()}
    schema["additionalProperties"] = {"const": 0}
    schema["propertyNames"] = {"maxLength": 1, "pattern": "^[abcx]*$"}
    automaton = compiled(schema, "any")
    if automaton:
        assert_costs_are_exact(automaton.automaton)


clauses = st.lists(
    st.frozensets(st.tuples(st.sampled_from("abcde"), st.booleans()), min_size=1, max_size=3), max_size=7
)


@settings(max_examples=200, deadline=None)
@given(clauses, st.frozensets(st.sampled_from("abcde"), max_size=2), st.booleans())
def test_modes_are_a_partition_of_what_fulfils_the_clauses(
    found: list[frozenset[tuple[str, bool]]], impossible: frozenset[str], counted: bool
) -> None:
    all_modes = modes(frozenset([frozenset(found)]), impossible, counted, "")
    for bits in product((False, True), repeat=5):
        keys = {key for key, bit in zip("abcde", bits, strict=True) if bit}
        fits = not keys & impossible and all(any((key in keys) is has for key, has in clause) for clause in found)
        holding = [
            mode
            for mode in all_modes
            if mode.required <= keys
            and not mode.forbidden & keys
            and all(others <= keys for key, others in mode.implied.items() if key in keys)
            and not any(others & keys for key, others in mode.excluded.items() if key in keys)
        ]
        assert len(holding) == fits
    assert not counted or not any(mode.implied or mode.excluded for mode in all_modes)


DEPENDENT = {
    "type": "object",
    "properties": {f"{letter}{i}": {"type": "integer"} for i in range(20) for letter in "ab"},
    "dependentRequired": {f"a{i}": [f"b{i}"] for i in range(20)},
    "additionalProperties": False,
}


def test_twenty_dependent_pairs_are_one_mode() -> None:
    constraint = constraint_of(DEPENDENT, key_order="any")
    assert accepts(constraint, '{"a3":1,"a19":1,"b19":2,"b3":1}')
    assert not accepts(constraint, '{"a3":1,"a19":1,"b19":2}')
    automaton = constraint.automaton
    state = automaton.advance_bytes(automaton.start, b'{"a3":1')
    assert automaton.min_bytes(state) == len(',"b3":1}')


def test_named_keys_come_in_the_order_of_the_schema_unless_asked_otherwise() -> None:
    schema = {"properties": {"b": {"type": "integer"}, "a": {"type": "null"}}, "required": ["a"], "type": "object"}
    texts = ('{"b":1,"a":null,"z":1}', '{"a":null,"b":1,"z":1}', '{"z":1,"b":1,"a":null}', '{"b":1,"z":1,"a":null}')
    ordered, free = constraint_of(schema), constraint_of(schema, key_order="any")
    assert [accepts(ordered, text) for text in texts] == [True, False, False, False]
    assert all(accepts(free, text) for text in texts)
    for text in ('{"a":null,"a":null}', '{"a":null,"b":1,"b":1}', '{"b":1}', '{"z":1}', "{}"):
        assert not accepts(free, text)


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "flexible"])
def test_any_order_in_every_layout(whitespace: Any) -> None:
    schema = {
        "properties": {
            "b": {"type": "integer"},
            "a": {"properties": {"x": {}, "y": {}}, "additionalProperties": False},
        },
        "additionalProperties": False,
    }
    automaton = constraint_of(schema, whitespace, "any")
    style = "compact" if whitespace == "compact" else "spaced"
    for value in ({}, {"a": {}}, {"a": {"y": 1, "x": 2}, "b": 1}, {"b": 1, "a": {"x": 2}}):
        assert accepts(automaton, written(value, style))
    assert not accepts(automaton, written({"b": 1, "c": 2}, style))
    if whitespace == "flexible":
        assert accepts(automaton, '{\n "b" : 1 ,\n "a": { } }') and not accepts(automaton, "{  }")


NESTED = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "left": {"$ref": "#/$defs/node"},
                "right": {"$ref": "#/$defs/node"},
            },
            "required": ["value"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}


def shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict):
        keys = list(value)
        rng.shuffle(keys)
        return {key: shuffled(value[key], rng) for key in keys}
    return value


def test_orders_are_free_at_every_depth_of_a_recursive_schema() -> None:
    def tree(depth: int) -> dict[str, Any]:
        return {"value": depth} | ({"left": tree(depth - 1), "right": tree(depth - 2)} if depth > 1 else {})

    automaton, rng = constraint_of(NESTED, key_order="any"), random.Random(3)
    for _ in range(30):
        value = shuffled(tree(5), rng)
        assert accepts(automaton, written(value))
        broken = written(value).replace('"value":1', '"valve":1', 1)
        assert not accepts(automaton, broken)


def test_three_hundred_keys_in_random_orders() -> None:
    rng = random.Random(1)
    keys = ["".join(rng.choice("aeinrst") for _ in range(rng.randint(2, 9))) + str(i) for i in range(300)]
    schema = {
        "properties": {key: {"type": "boolean"} for key in keys},
        "required": keys[::7],
        "additionalProperties": False,
    }
    automaton = constraint_of(schema, key_order="any")
    for _ in range(5):
        chosen = {*rng.sample(keys, 100), *keys[::7]}
        text = written(shuffled(dict.fromkeys(chosen, True), rng))
        assert accepts(automaton, text)
        assert not accepts(automaton, text[:-1] + f',"{rng.choice(sorted(chosen))}":true}}')


def test_too_many_cases_of_conditions_are_refused_with_their_place() -> None:
    schema = {
        "type": "object",
        "maxProperties": 12,
        "dependentRequired": {f"a{i}": [f"b{i}"] for i in range(9)},
        "properties": {f"{letter}{i}": {} for i in range(9) for letter in "ab"},
    }
    with pytest.raises(ConstraintTooLarge, match="any order"):
        constraint_of({"properties": {"here": schema}, "required": ["here"]}, key_order="any")


def test_no_unnamed_key_follows_the_one_that_a_condition_demands() -> None:
    schema = {
        "properties": {"a": {"const": "s"}},
        "not": {"additionalProperties": {"type": "string"}},
        "type": "object",
    }
    automaton, judge = constraint_of(schema, key_order="any"), judge_of(schema)
    for keys in permutations(("a", "x", "y")):
        instance = {key: "s" if key != "x" else 0 for key in keys}
        assert judge.is_valid(instance)
        assert accepts(automaton, written(instance)) == (keys.index("x") > keys.index("y"))
