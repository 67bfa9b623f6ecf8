"""Constraints that a server should expect to be sent, and what it must answer, on the real engine: they depend on a
vocabulary and a compiler."""

from __future__ import annotations

import json
from typing import Any

from .bad_inputs import Case, chat, schema_format, text


def regex(pattern: str, status: int, code: str | None = None, max_tokens: int = 40) -> Case:
    return chat(f"regex {pattern[:30]}", status, "regex", code, regex=pattern, max_tokens=max_tokens)


def schema(value: Any, status: int, code: str | None = None) -> Case:
    name = f"schema {json.dumps(value)[:50]}"
    return chat(name, status, "response_format", code, response_format=schema_format(value), max_tokens=40)


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"items": found}
    return found


def forced_tools(*functions: dict[str, Any]) -> Case:
    tools = [{"type": "function", "function": function} for function in functions]
    return chat(f"tools {functions}"[:40], 400, "tools", tools=tools, tool_choice="required")


REGEXES = [
    *(regex(pattern, 200) for pattern in ("(a+)+b", "(a|a)*", "[ab]*a[ab]{12}", "", "^a$", "(?P<x>a)", "é+|\\u00e9")),
    regex("(" * 5000 + ")" * 5000, 200),
    chat("regex needs more than max_tokens", 400, "max_tokens", regex="a{1000}"),
    regex("(?=a)b", 400, "empty_language"),
    regex("a{100000000}", 400, "constraint_too_large"),
    regex("[^\\s\\S]", 400, "empty_language"),
    *(regex(pattern, 400, "invalid_regex") for pattern in ("[", "(", "*a", "a{3,1}", "(a)\\1", "(?P<", "\\")),
]
SCHEMAS = [
    *(
        schema(value, 200)
        for value in (
            True,
            {},
            {"type": ["string", "null"]},
            {"type": "object", "properties": {"child": {"$ref": "#"}}, "additionalProperties": False},
            {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(300)}},
            {"enum": list(range(10_000))},
            {"type": "string", "pattern": "(a+)+b$"},
            {"type": "object", "properties": {'a"\\\n😀': {"type": "integer"}}, "required": ['a"\\\n😀']},
            nested(50),
        )
    ),
    *(
        schema(value, 400, "empty_language")
        for value in (
            False,
            {"type": "string", "minLength": 5, "maxLength": 3},
            {"type": "integer", "minimum": 5, "maximum": 3},
            {"type": "object", "required": ["a"], "additionalProperties": False},
            {"allOf": [{"type": "string"}, {"type": "integer"}]},
            {"enum": ["a"], "type": "integer"},
        )
    ),
    *(
        schema(value, 400, "invalid_json_schema")
        for value in (
            {"type": "wizard"},
            {"type": 5},
            {"properties": 5},
            {"required": 5},
            {"minLength": -1},
            {"$ref": "#"},
            {"$ref": "#/nowhere"},
            {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        )
    ),
    *(
        schema(value, 400, "unsupported_json_schema")
        for value in (
            {"$ref": "http://example.com/schema.json"},
            {"$ref": "file:///etc/passwd"},
            {"type": "array", "not": {"uniqueItems": True}},
        )
    ),
    schema({"type": "string", "maxLength": 10**9}, 200),
    schema({"type": "array", "minItems": 10**9}, 400),
    schema({"type": "string", "pattern": "[ab]*a[ab]{40}$"}, 400, "constraint_too_large"),
    chat("schema 120 deep", 400, None, "invalid_json", response_format=schema_format(nested(120))),
    chat("5 MB schema", 413, None, "body_too_large", response_format=schema_format({"enum": ["x" * 1000] * 5000})),
]
OTHERS = [
    chat("empty choice", 200, guided_choice=[""]),
    chat("long choice", 400, "max_tokens", guided_choice=["x" * 10_000]),
    forced_tools({"name": "a", "parameters": {"type": "string", "pattern": "["}}),
    forced_tools({"name": "a", "parameters": {"type": "wizard"}}, {"name": "b"}),
    chat("empty structural tag", 400, "structured_outputs.structural_tag", structured_outputs={"structural_tag": {}}),
    chat("tag without triggers", 400, "response_format", response_format={"type": "structural_tag", "structures": []}),
    chat("tag of unknown format", 400, "structural_tag", structural_tag={"format": {"type": "wizard"}}),
    chat("grammar of nothing", 400, "ebnf", "empty_language", ebnf='root ::= root "a"'),
    chat("grammar that does not parse", 400, "ebnf", "invalid_grammar", ebnf="root ::= ("),
    text("an output of tokens that are not there", 400, "output_ids", output_ids=[10**8]),
    text("an output of several that goes on", 400, "output_ids", output_ids=[300], n=2),
    text("an output that its constraint forbids", 400, "output_ids", output_ids=[300], regex="[0-9]{9}", max_tokens=20),
]
ENGINE_CASES = [*REGEXES, *SCHEMAS, *OTHERS]
