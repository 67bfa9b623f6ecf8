"""Objects without the keys that their schema does not name: a part of what the schema allows, and no smaller part."""

from __future__ import annotations

import re
from itertools import chain, combinations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from phloem.errors import EmptyLanguage
from phloem.fsm import Compiler
from phloem.fsm.foresight import forced_bytes

from .test_key_order import EXTRA, NAMES, object_schemas
from .walks import BYTES, accepts, compiled, judge_of, written


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(object_schemas())
def test_what_is_left_out_are_the_objects_with_keys_that_are_not_named(schema: Any) -> None:
    automaton = compiled(schema, "any", "never")
    if automaton is None:
        return
    judge = judge_of(schema)
    patterns = schema.get("patternProperties", {})
    is_closed = bool(schema["properties"] or patterns) and "additionalProperties" not in schema
    unnamed = {key for key in EXTRA if not any(re.search(pattern, key) for pattern in patterns)}
    named = {*schema["properties"], *(key for key in (*NAMES, *EXTRA) if any(re.search(p, key) for p in patterns))}
    for chosen in chain.from_iterable(combinations((*NAMES, *EXTRA), size) for size in range(4)):
        instance = dict.fromkeys(chosen, 0)
        found = bool(automaton and accepts(automaton, written(instance)))
        if not judge.is_valid(instance) or (is_closed and not unnamed.isdisjoint(chosen)):
            assert not found, written(instance)
        elif not is_closed or named >= set(chosen):
            assert found, written(instance)


A, B = {"properties": {"a": {"const": 0}}}, {"properties": {"b": {"const": 0}}}


@pytest.mark.parametrize(
    ("schema", "can", "cannot"),
    [
        ({"type": "object"}, ['{"x":1}'], []),
        ({"type": "object", "required": ["a"]}, ['{"a":1,"x":1}'], []),
        ({"properties": {}}, ['{"x":1}'], []),
        (A, ["{}", '{"a":0}', "3"], ['{"x":1}', '{"a":0,"x":1}']),
        ({**A, "required": ["b"]}, ['{"a":0,"b":7}'], ['{"a":0,"b":7,"x":1}']),
        ({**A, "additionalProperties": True}, ['{"a":0,"x":1}'], []),
        ({**A, "patternProperties": {"^x": True}}, ['{"a":0,"x":1}'], ['{"a":0,"y":1}']),
        ({"patternProperties": {"^x": {"const": 1}}}, ["{}", '{"x":1,"xy":1}'], ['{"x":2}', '{"y":1}']),
        ({"patternProperties": {"^x": True}, "additionalProperties": {"const": 1}}, ['{"x":2,"y":1}'], ['{"y":2}']),
        ({"allOf": [A, {"patternProperties": {"^x": True}}]}, ['{"a":0,"x":1}'], ['{"a":0,"y":1}']),
        ({"patternProperties": {"^x": True}, "required": ["y"]}, ['{"y":1,"x":1}'], ['{"y":1,"z":1}']),
        ({"patternProperties": {}}, ['{"x":1}'], []),
        ({**A, "unevaluatedProperties": True}, ['{"a":0,"x":1}'], []),
        ({**A, "unevaluatedProperties": {"const": 1}}, ['{"a":0,"x":1}'], ['{"a":0,"x":2}']),
        ({"allOf": [A, B]}, ['{"a":0,"b":0}', '{"b":0}'], ['{"a":0,"x":1}']),
        ({"allOf": [A, {**B, "additionalProperties": True}]}, ['{"a":0,"b":0,"x":1}'], []),
        ({**A, "$ref": "#/$defs/b", "$defs": {"b": B}}, ['{"a":0,"b":0}'], ['{"a":0,"x":1}']),
        ({"anyOf": [A, B]}, ['{"a":0}', '{"b":0}'], ['{"a":0,"b":0}', '{"x":1}']),
        ({"if": A, "then": B, "else": False}, ['{"a":0,"b":0}'], ['{"a":0,"x":1}']),
        ({"properties": {"o": A, "p": {}}}, ['{"o":{"a":0}}', '{"p":{"x":1}}'], ['{"o":{"x":1}}']),
        ({"items": A}, ['[{"a":0},3]'], ['[{"x":1}]']),
        ({"not": A}, ['{"a":1,"x":1}'], []),
        ({"const": {"a": {"b": 1}}}, ['{"a":{"b":1}}'], ['{"a":{"b":1,"x":1}}']),
    ],
)
def test_it_is_the_object_that_is_closed_and_not_each_schema_for_itself(
    schema: Any, can: list[str], cannot: list[str]
) -> None:
    automaton = compiled(schema, extra_keys="never")
    assert [text for text in can if not accepts(automaton, text)] == []
    assert [text for text in cannot if accepts(automaton, text)] == []


def test_more_is_certain_and_the_two_readings_are_kept_apart() -> None:
    compiler = Compiler(BYTES)
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    ends = []
    for extra_keys in ("schema", "never"):
        cursor = compiler.json_schema(schema, extra_keys=extra_keys).cursor()  # type: ignore[arg-type]
        assert all(cursor.advance(byte) for byte in b'{"name":"x"')
        ends.append(forced_bytes(cursor))
    assert ends == [b"", b"}"]


def test_an_object_that_needs_more_keys_than_it_names_is_refused_with_its_place() -> None:
    inner = {"type": "object", **A, "minProperties": 2}
    outer = {"type": "object", "required": ["o"], "properties": {"o": inner}}
    with pytest.raises(EmptyLanguage) as caught:
        Compiler(BYTES).json_schema(outer, extra_keys="never")
    assert caught.value.pointer == "/properties/o"
