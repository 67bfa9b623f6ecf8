"""Arguments of calls: an object, as the parameters of the tool say, whatever other tools there are."""

from __future__ import annotations

from typing import Any

import pytest

from phloem.runtime.constrain.spec import ConstraintSpec
from phloem.runtime.server.protocol import ChatRequest
from phloem.runtime.server.tool_format import FORMATS
from phloem.runtime.server.tools import tool_plan

from .tool_specs import COMPILER, accepts, hermes, spec_of
from .wire import client


def tool(name: str, parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def forced(*tools: Any) -> ConstraintSpec:
    """The constraint of a required call by a model that has no format for calls."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "tools": list(tools), "tool_choice": "required"}
    plan = tool_plan(ChatRequest.model_validate(body), None)
    assert plan is not None
    return plan.spec


NAMED = {"properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}


@pytest.mark.parametrize("kind", [{}, {"type": ["object", "null"]}], ids=str)
def test_arguments_are_an_object_whether_the_schema_says_so_or_not(kind: dict[str, Any]) -> None:
    alone = COMPILER.json_schema(str(forced(tool("f", {**kind, **NAMED})).source)).cursor()
    assert not alone.advance(ord("5")) and not alone.advance(ord("n")) and alone.advance(ord("{"))
    both = forced(tool("f", {**kind, **NAMED}), tool("g", {}))
    assert accepts(both, '{"name":"f","arguments":{"a":5}}') and accepts(both, '{"name":"g","arguments":{}}')
    assert not accepts(both, '{"name":"f","arguments":5}') and not accepts(both, '{"name":"f","arguments":null}')


@pytest.mark.parametrize("others", [{}, {"additionalProperties": True}], ids=str)
def test_arguments_have_other_keys_only_where_the_parameters_speak_of_them(others: dict[str, Any]) -> None:
    described = tool("f", {"type": "object", "properties": {"a": {"type": "integer"}}, **others})
    anything = tool("g", {"type": "object"})
    alone = COMPILER.json_schema(str(forced(described).source), extra_keys=forced(described).extra_keys).cursor()
    assert all(alone.advance(byte) for byte in b'{"b":1}') == bool(others)
    both = forced(described, anything)
    assert accepts(both, '{"name":"f","arguments":{"a":1}}') and accepts(both, '{"name":"g","arguments":{"b":1}}')
    assert accepts(both, '{"name":"f","arguments":{"b":1}}') == bool(others)
    for name in ("hermes", "function_tag"):
        spec = spec_of(name, tools=[described], tool_choice="required")
        begin, end = FORMATS[name].begin("f"), FORMATS[name].end
        assert accepts(spec, f'{begin}{{"a": 1}}{end}') and accepts(spec, f'{begin}{{"b": 1}}{end}') == bool(others)


def test_a_tool_without_parameters_takes_none_however_that_is_written() -> None:
    for parameters in (None, {}, {"type": "object", "properties": {}, "required": [], "title": "clock_args"}):
        spec = spec_of(tools=[tool("clock", parameters)], tool_choice="required")
        assert accepts(spec, hermes("clock", "{}")) and not accepts(spec, hermes("clock", '{"a": 1}'))
    spec = spec_of(tools=[tool("clock", {"properties": {}, "additionalProperties": True})], tool_choice="required")
    assert accepts(spec, hermes("clock", '{"a": 1}'))


def test_parameters_that_describe_no_object_are_refused() -> None:
    refused = client().chat(tools=[tool("f", {"type": "array"})], tool_choice="required")
    assert (refused.status, refused.error["param"], refused.error["code"]) == (400, "tools", "invalid_json_schema")
    assert "the tool 'f'" in refused.error["message"] and '"array"' in refused.error["message"]


@pytest.mark.parametrize(
    "parameters",
    [
        {
            "$id": "https://tools.example/f",
            "$defs": {"z": {"type": "integer"}},
            "properties": {"a": {"$ref": "#/$defs/z"}},
        },
        {"$defs": {"z": {"$anchor": "q", "type": "integer"}}, "properties": {"a": {"$ref": "#q"}}},
        {"$defs": {"z": {"type": "integer"}}, "properties": {"default": {"$ref": "#/$defs/z"}}},
        {"properties": {"a": {"properties": {"const": {"$ref": "#"}}}}},
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "properties": {"a": {"type": "integer", "minimum": 3, "exclusiveMinimum": True}},
        },
    ],
    ids=["$id", "$anchor", "a key named default", "a key named const", "another draft"],
)
def test_references_mean_the_same_beside_other_tools(parameters: Any) -> None:
    both = forced(tool("f", parameters), tool("g", {"$defs": {"z": {"$anchor": "q", "type": "string"}}}))
    spec = forced(tool("f", parameters))
    single = COMPILER.json_schema(str(spec.source), extra_keys=spec.extra_keys)
    for arguments in (
        "{}",
        '{"a":4}',
        '{"a":3}',
        '{"a":"x"}',
        '{"default":1}',
        '{"default":"x"}',
        '{"a":{"const":{"a":5}}}',
    ):
        cursor = single.cursor()
        alone = all(cursor.advance(byte) for byte in arguments.encode()) and cursor.is_accepting
        assert accepts(both, f'{{"name":"f","arguments":{arguments}}}') == alone, arguments
