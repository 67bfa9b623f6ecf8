"""Every keyword that demands something is read: what breaks it alone is refused, what keeps it is allowed.

The values are the truth of jsonschema, where it knows the draft; a new row of `FIRST_DRAFT` needs a row here.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from phloem.errors import UnsupportedSchema
from phloem.fsm.automaton.automaton import Automaton
from phloem.fsm.json_schema import schema_to_grammar
from phloem.fsm.json_schema.sites import CONTENT, KEYWORDS
from phloem.fsm.network.network import build_network

from ..vocabularies import BYTES

SEVEN = "http://json-schema.org/draft-07/schema#"
OF_2019 = "https://json-schema.org/draft/2019-09/schema"
NULL = {"type": "null"}

# the rest of a schema, a value that the keyword allows, and one that it alone does not
ROWS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "$ref": ({"$ref": "#/$defs/a", "$defs": {"a": NULL}}, None, 1),
    "$dynamicRef": ({"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", **NULL}}}, None, 1),
    "$recursiveRef": (
        {"$schema": OF_2019, "type": ["array", "null"], "items": {"$recursiveRef": "#"}},
        [[None]],
        [[1]],
    ),
    "type": ({"type": "null"}, None, 1),
    "enum": ({"enum": [1, "a"]}, "a", "b"),
    "const": ({"const": [1]}, [1], [2]),
    "allOf": ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 3, 2),
    "anyOf": ({"anyOf": [NULL, {"const": 1}]}, 1, 2),
    "oneOf": ({"oneOf": [{"type": "integer"}, {"const": 1}]}, 2, 1),
    "not": ({"type": "integer", "not": {"const": 1}}, 2, 1),
    "if": ({"type": "integer", "if": {"minimum": 5}, "then": {"maximum": 7}}, 7, 8),
    "minimum": ({"type": "integer", "minimum": 3}, 3, 2),
    "maximum": ({"type": "integer", "maximum": 3}, 3, 4),
    "exclusiveMinimum": ({"type": "integer", "exclusiveMinimum": 3}, 4, 3),
    "exclusiveMaximum": ({"type": "integer", "exclusiveMaximum": 3}, 2, 3),
    "multipleOf": ({"type": "integer", "multipleOf": 3}, 9, 8),
    "minLength": ({"type": "string", "minLength": 2}, "ab", "a"),
    "maxLength": ({"type": "string", "maxLength": 2}, "ab", "abc"),
    "pattern": ({"type": "string", "pattern": "^a+$"}, "aa", "ab"),
    "format": ({"type": "string", "format": "date"}, "2024-02-29", "2023-02-29"),
    "items": ({"type": "array", "items": NULL}, [None], [1]),
    "prefixItems": ({"type": "array", "prefixItems": [NULL]}, [None, 1], [1]),
    "additionalItems": (
        {"$schema": SEVEN, "type": "array", "items": [NULL], "additionalItems": False},
        [None],
        [None, 1],
    ),
    "minItems": ({"type": "array", "minItems": 1}, [1], []),
    "maxItems": ({"type": "array", "maxItems": 1}, [1], [1, 2]),
    "uniqueItems": ({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}, ["a", "b"], ["a", "a"]),
    "contains": ({"type": "array", "contains": {"const": 1}}, [2, 1], [2]),
    "minContains": ({"type": "array", "contains": {"const": 1}, "minContains": 2}, [1, 1], [1]),
    "maxContains": ({"type": "array", "contains": {"const": 1}, "maxContains": 1}, [1, 2], [1, 1]),
    "unevaluatedItems": ({"type": "array", "prefixItems": [{}], "unevaluatedItems": False}, [1], [1, 2]),
    "properties": ({"type": "object", "properties": {"a": NULL}}, {"a": None}, {"a": 1}),
    "required": ({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]}, {"b": 1}, {"a": 1}),
    "additionalProperties": (
        {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
        {"a": 1},
        {"b": 1},
    ),
    "patternProperties": ({"type": "object", "patternProperties": {"^a": NULL}}, {"ab": None}, {"ab": 1}),
    "propertyNames": ({"type": "object", "propertyNames": {"maxLength": 1}}, {"a": 1}, {"ab": 1}),
    "minProperties": ({"type": "object", "minProperties": 1}, {"a": 1}, {}),
    "maxProperties": ({"type": "object", "maxProperties": 1}, {"a": 1}, {"a": 1, "b": 1}),
    "dependencies": ({"$schema": SEVEN, "type": "object", "dependencies": {"a": ["b"]}}, {"b": 1}, {"a": 1}),
    "dependentRequired": ({"type": "object", "dependentRequired": {"a": ["b"]}}, {"b": 1}, {"a": 1}),
    "dependentSchemas": ({"type": "object", "dependentSchemas": {"a": {"required": ["b"]}}}, {"b": 1}, {"a": 1}),
    "unevaluatedProperties": (
        {"type": "object", "properties": {"a": {}}, "unevaluatedProperties": False},
        {"a": 1},
        {"b": 1},
    ),
}


def allows(schema: dict[str, Any], value: Any) -> bool:
    automaton = Automaton(build_network(schema_to_grammar(schema)), BYTES)
    end = automaton.advance_bytes(automaton.start, json.dumps(value, separators=(",", ":")).encode())
    return bool(end) and automaton.is_accepting(end)


def without(schema: Any, keyword: str) -> Any:
    """The schema as it is when the keyword is left out wherever it stands."""
    if not isinstance(schema, dict):
        return schema
    return {key: without(value, keyword) for key, value in schema.items() if key != keyword}


def test_there_is_a_row_for_each() -> None:
    assert ROWS.keys() | CONTENT == KEYWORDS


@pytest.mark.parametrize("keyword", ROWS)
def test_what_breaks_it_alone_is_refused(keyword: str) -> None:
    schema, good, bad = ROWS[keyword]
    validator = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    checks = jsonschema.FormatChecker()
    for value, expected in ((good, True), (bad, False)):
        assert validator(schema, format_checker=checks).is_valid(value) == expected, "the row is wrong"
        assert allows(schema, value) == expected
    assert allows(without(schema, keyword), bad)


def test_what_a_text_holds_is_enforced_or_refused_where_validators_may_check_it() -> None:
    schema = {"$schema": SEVEN, "type": "string", "contentEncoding": "base64"}
    assert allows(schema, "aGk=") and not allows(schema, "a")
    with pytest.raises(UnsupportedSchema, match="contentMediaType"):
        schema_to_grammar({"$schema": SEVEN, "type": "string", "contentMediaType": "application/json"})
