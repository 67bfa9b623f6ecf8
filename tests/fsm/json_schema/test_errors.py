"""Bad schemas: whatever a keyword is given, the answer is a constraint or an error that says where and what to do.

The first table is exhaustive: every keyword with every kind of value, in four places. The others are contradictions,
which are refused as such however deep they lie, and references and patterns that cannot work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from phloem.errors import ConstraintError, ConstraintTooLarge, EmptyLanguage, InvalidSchema, UnsupportedSchema
from phloem.fsm import Compiler, Limits
from phloem.fsm.json_schema import KeyOrder, schema_to_grammar
from phloem.fsm.json_schema.sites import KEYWORDS
from phloem.fsm.network.network import build_network

from .walks import BYTES

OTHERS = ("$id", "$anchor", "$schema", "$defs", "$dynamicAnchor", "$recursiveAnchor", "then", "else", "id", "title")
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.5, 10**500, 2**32, 1e308, float("nan"), "", "x", "(", "#/nowhere", "http://a/b",
    "\ud800", [], [1], ["a"], ["a", "a"], [None], [{}], [[]], {}, {"a": 1}, {"a": {}}, {"a": ["b"]}, {"(": {}},
    {"a": None}, {"\ud800": {}},
)  # fmt: skip
PLACES: dict[str, Callable[[Any], Any]] = {
    "": lambda schema: schema,
    "/properties/a~1b": lambda schema: {"properties": {"a/b": schema}, "required": ["a/b"]},
    "/not": lambda schema: {"not": schema},
    "/anyOf/1": lambda schema: {"anyOf": [{"type": "null"}, schema]},
}


def compile_(schema: Any) -> None:
    build_network(schema_to_grammar(schema))


def standing_at(schema: Any, pointer: str) -> Any:
    """What the pointer points at."""
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        schema = schema[int(token)] if isinstance(schema, list) else schema[token]
    return schema


@pytest.mark.parametrize("keyword", sorted({*KEYWORDS, *OTHERS}))
def test_any_value_of_a_keyword_is_read_or_refused_at_its_place(keyword: str) -> None:
    for value in VALUES:
        for place, put in PLACES.items():
            body = {"if": True, keyword: value} if keyword in ("then", "else") else {keyword: value}
            schema = put(body)
            try:
                compile_(schema)
            except EmptyLanguage:
                continue
            except ConstraintError as error:
                assert error.pointer.startswith(place) or "itself" in str(error), (schema, error)
                assert str(error).startswith(f"{error.pointer or '/'}: ") and len(str(error)) > len(error.pointer) + 15
                standing_at(schema, error.pointer.rpartition("/")[0])
                if isinstance(error, InvalidSchema) and "itself" not in str(error):
                    assert error.pointer.startswith(f"{place}/{keyword}"), (schema, error)


DRAFT_3 = "http://json-schema.org/draft-03/schema#"
INVALID: list[tuple[str, Any, str, str]] = [
    ("a pattern that does not parse", {"pattern": "a("}, "/pattern", "never closed at offset 1"),
    ("type", {"type": "int"}, "/type", "the types are"),
    ("a type in a list", {"type": ["string", "int"]}, "/type/1", "the types are"),
    ("required", {"properties": {"a": {"required": "b"}}}, "/properties/a/required", "list of property names"),
    ("draft 3's required", {"properties": {"a": {"required": True}}}, "/properties/a/required", "property names"),
    ("items", {"items": 3}, "/items", "must be an object or a boolean"),
    ("a list of items in 2020-12", {"$schema": "https://json-schema.org/draft/2020-12/schema", "items": [{}]},
     "/items", "must be an object or a boolean"),
    ("properties", {"properties": ["a"]}, "/properties", "an object of schemas"),
    ("a property", {"properties": {"a~b/c": "string"}}, "/properties/a~0b~1c", "must be an object or a boolean"),
    *(
        (f"of a plain object: {faulty}", {"type": "object", "properties": {"a": True}, **faulty}, pointer, "must be")
        for faulty, pointer in (
            ({"properties": {"a": 1}}, "/properties/a"),
            ({"properties": {"a": {"type": "array", "items": {"items": 3}}}}, "/properties/a/items/items"),
            ({"required": ["a", 1]}, "/required"),
            ({"additionalProperties": []}, "/additionalProperties"),
            ({"properties": []}, "/properties"),
        )
    ),
    ("minLength", {"minLength": -1}, "/minLength", "non-negative"),
    ("minimum", {"minimum": "0"}, "/minimum", "number"),
    ("multipleOf", {"multipleOf": 0}, "/multipleOf", "greater than 0"),
    ("pattern", {"pattern": 5}, "/pattern", "must be a string"),
    ("enum", {"enum": "a"}, "/enum", "list of values"),
    ("anyOf", {"anyOf": []}, "/anyOf", "at least one schema"),
    ("a reference to nowhere", {"$ref": "#/$defs/a"}, "/$ref", "leads nowhere: there is no"),
    *(
        (f"no index: {ascii(index)[:20]}", {"$ref": f"#/allOf/{index}", "allOf": [{}]}, "/$ref", "leads nowhere")
        for index in ("²", "٠", "00", "-", "-1", "1", "9" * 5000)
    ),
    ("a reference to no schema", {"items": {"$ref": "#/title"}, "title": "a"}, "/items/$ref", "no schema"),
    ("a reference to no anchor", {"$ref": "#a"}, "/$ref", "no anchor"),
    ("a reference to itself", {"$ref": "#"}, "/$ref", "itself"),
    ("a cycle of references", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
     "/$defs/a/$ref", "itself"),
    ("a schema that applies itself", {"$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}, {"type": "object"}]}},
     "$ref": "#/$defs/a"}, "/$defs/a", "itself"),
]  # fmt: skip


UNSUPPORTED: list[tuple[str, Any, str, str]] = [
    (
        "a reference out of the text",
        {"items": {"$ref": "https://example.com/a"}},
        "/items/$ref",
        r"put .* under \$defs",
    ),
    ("a pattern that is not regular", {"patternProperties": {r"(a)\1": {}}}, r"/patternProperties/(a)\1", "\\\\1"),
    (
        "unique items that are objects",
        {"items": {"uniqueItems": True, "contains": {"enum": [1, 2]}, "minContains": 3}},
        "/items/uniqueItems",
        "list the values, write them as strings",
    ),
    ("draft 3 within another draft", {"$defs": {"a": {"$id": "http://a.b/c", "$schema": DRAFT_3, "divisibleBy": 2}},
                                      "$ref": "#/$defs/a"}, "/$defs/a/$schema", "give it in `resources`"),
    *(
        (f"two readings: {pattern}", {"properties": {"a": {"pattern": pattern}}}, "/properties/a/pattern",
         "one thing in ECMA-262 and another in Python")
        for pattern in ("^a{,2}$", "^[^]a]$", "^[]a]+$", "^x{,}$")
    ),
    ("a number of too many digits", {"minimum": 10**500}, "/minimum", "400 digits"),
    ("a key of many", {"not": {"patternProperties": {"^[a-z]{2}$": False}}}, "/not", "name the keys"),
    (
        "keys to be counted, and one",
        {"type": "object", "not": {"additionalProperties": {"type": "null"}}, "minProperties": 3},
        "",
        "minProperties",
    ),
]  # fmt: skip


ERRORS = [(InvalidSchema, *case) for case in INVALID] + [(UnsupportedSchema, *case) for case in UNSUPPORTED]


@pytest.mark.parametrize(("error", "name", "schema", "pointer", "words"), ERRORS, ids=[case[1] for case in ERRORS])
def test_what_is_no_schema_or_cannot_be_enforced_is_said_with_its_place(
    error: type[ConstraintError], name: str, schema: Any, pointer: str, words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        compile_(schema)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize("keyword", ["minLength", "minItems", "minProperties", "minContains"])
def test_counts_that_no_text_reaches_are_refused(keyword: str) -> None:
    with pytest.raises(ConstraintTooLarge, match="no text can be so long") as caught:
        compile_({"contains": {}, keyword: 2**40})
    assert caught.value.pointer == f"/{keyword}"


@pytest.mark.parametrize("key_order", ["schema", "any"])
def test_texts_that_are_too_long_together_are_named_by_the_place_of_most_of_them(key_order: KeyOrder) -> None:
    long = ["x" * 600_000, "y" * 600_000]
    too_large = (
        ({"enum": long}, "", "the constraint unfolds to more"),
        ({"properties": dict.fromkeys(long, True)}, "/items", "the keys that are named need more than"),
    )
    for part, place, message in too_large:
        schema = {"properties": {"a": {"type": "string"}, "b": {"items": part}}}
        with pytest.raises(ConstraintTooLarge, match=f"^/properties/b.*: {message}") as caught:
            Compiler(BYTES).json_schema(schema, key_order=key_order)
        assert caught.value.pointer == f"/properties/b{place}"


@pytest.mark.parametrize("keyword", ["maxLength", "maxItems", "maxProperties"])
@pytest.mark.parametrize("count", [2**31, 2**32 - 1, 2**63, 1e300])
def test_counts_that_no_text_exceeds_are_no_bounds(keyword: str, count: float) -> None:
    compile_({"type": ["string", "array", "object"], keyword: count})


CONTRADICTIONS: dict[str, Any] = {
    "false": False,
    "not anything": {"not": {}},
    "two types": {"allOf": [{"type": "string"}, {"type": "integer"}]},
    "two constants": {"const": 1, "enum": ["1", True]},
    "disjoint enums": {"allOf": [{"enum": ["a", "b"]}, {"enum": ["c"]}]},
    "an empty enum": {"enum": []},
    "bounds": {"type": "number", "minimum": 2, "exclusiveMaximum": 2},
    "no whole number between": {"type": "integer", "exclusiveMinimum": 1, "exclusiveMaximum": 2},
    "no multiple between": {"type": "integer", "multipleOf": 7, "minimum": 8, "maximum": 13},
    "lengths": {"type": "string", "minLength": 3, "maxLength": 2},
    "a pattern and a length": {"type": "string", "pattern": "^a{3}$", "maxLength": 2},
    "two patterns": {"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "^b"}]},
    "a pattern and a format": {"type": "string", "format": "date", "pattern": "^[a-z]*$"},
    "a constant and its negation": {"const": {"a": [1]}, "not": {"const": {"a": [1.0]}}},
    "a required key that may not be": {"type": "object", "required": ["a"], "properties": {"a": False}},
    "a required key that is not named": {"type": "object", "required": ["a"], "additionalProperties": False},
    "one of a plain object": {"type": "object", "properties": {"a": True}, "required": ["b"],
                              "additionalProperties": False},
    "a required key of a wrong name": {"type": "object", "required": ["a"], "propertyNames": {"minLength": 2}},
    "a required key and too few keys": {"type": "object", "required": ["a", "b"], "maxProperties": 1},
    "keys": {"type": "object", "minProperties": 2, "properties": {"a": {}}, "additionalProperties": False},
    "items": {"type": "array", "minItems": 3, "maxItems": 2},
    "items that cannot be": {"type": "array", "minItems": 1, "items": False},
    "a third item that cannot be": {"type": "array", "minItems": 3, "prefixItems": [{}, {}, False]},
    "contained and forbidden": {"type": "array", "contains": {"type": "string"}, "items": {"type": "integer"}},
    "more contained than items": {"type": "array", "contains": {"const": 1}, "minContains": 3, "maxItems": 2},
    "unique items of two values": {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 3},
    "no value of oneOf alone": {"oneOf": [{"type": "integer"}, {"type": "number", "multipleOf": 1}], "type": "integer"},
    "a condition": {"type": "integer", "if": {"minimum": 0}, "then": {"maximum": -1}, "else": {"minimum": 5}},
    "dependent keys": {"type": "object", "required": ["a"], "dependentRequired": {"a": ["b"]},
                       "properties": {"b": False}},
    "far below": {
        "type": "object",
        "required": ["a"],
        "properties": {
            "a": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/b"}},
        },
        "$defs": {"b": {"type": "object", "required": ["c"], "properties": {"c": {"minItems": 2, "maxItems": 1,
                                                                                  "type": "array"}}}},
    },
    "endless": {"$defs": {"n": {"type": "object", "required": ["n"], "properties": {"n": {"$ref": "#/$defs/n"}}}},
                "$ref": "#/$defs/n"},
    "endless in turn": {"$defs": {"a": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/b"}},
                                   "b": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/a"}}},
                         "$ref": "#/$defs/a"},
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_are_refused_as_such(name: str) -> None:
    with pytest.raises(EmptyLanguage):
        compile_(CONTRADICTIONS[name])


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictions_that_may_be_avoided_are(name: str) -> None:
    for schema in (
        {"anyOf": [CONTRADICTIONS[name], {"const": "x"}], **definitions(name)},
        {"type": "object", "properties": {"a": CONTRADICTIONS[name]}, **definitions(name)},
        {"not": CONTRADICTIONS[name], **definitions(name)},
    ):
        try:
            compile_(schema)
        except UnsupportedSchema as error:
            assert error.pointer.startswith("/not")


PLACES_OF_CONTRADICTION = {
    "disjoint enums": "",
    "bounds": "",
    "a required key that may not be": "/properties/a",
    "a third item that cannot be": "/prefixItems/2",
    "far below": "/$defs/b/properties/c",
    "endless": "/$defs/n",
}


@pytest.mark.parametrize("name", PLACES_OF_CONTRADICTION)
def test_the_place_of_a_contradiction_is_named(name: str) -> None:
    with pytest.raises(EmptyLanguage, match="contradict each other") as caught:
        Compiler(BYTES).json_schema(CONTRADICTIONS[name])
    assert caught.value.pointer == PLACES_OF_CONTRADICTION[name]


KEYS = {f"key number {index}": {"type": "string"} for index in range(1000)}


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("place", PLACES)
def test_what_takes_too_much_memory_is_named_by_its_largest_part(place: str, key_order: KeyOrder) -> None:
    large = {"type": "object", "properties": {"few": {"type": "integer"}, "many": {"properties": KEYS}}}
    schema = PLACES[place](large)
    compiler = Compiler(BYTES, limits=Limits(max_automaton_bytes=1 << 16, max_compile_seconds=None))
    with pytest.raises(ConstraintTooLarge, match=r"KiB.* raise max_constraint_bytes") as caught:
        compiler.json_schema(schema, key_order=key_order)
    if place != "/not":
        assert caught.value.pointer == f"{place}/properties/many"
    assert str(caught.value).startswith(f"{caught.value.pointer or '/'}: the constraint takes")


def test_what_is_nested_too_deeply_is_named() -> None:
    schema: Any = {"properties": {"a": {}}}
    for index in range(3000):
        schema = {"items": schema, "enum": [[[]]]} if index % 2 else {"anyOf": [{}, schema]}
    with pytest.raises(ConstraintTooLarge, match="deeper than 4000 levels") as caught:
        Compiler(BYTES).json_schema({"$defs": {"a/b": schema}})
    assert caught.value.pointer.startswith("/$defs/a~1b/items/anyOf/1/items")
    assert caught.value.pointer.count("/") == 4000
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("counts", [(10_000, 10_000), (10_000, 50_000), (60_000, 60_000)])
def test_what_is_too_long_is_named_by_its_innermost_part(counts: tuple[int, int]) -> None:
    outer, inner = counts
    lists = {"type": "array", "minItems": outer, "items": {"type": "array", "minItems": inner, "items": {"const": 10}}}
    schema = {"type": "object", "properties": {"a": True, "b": {"$ref": "#/$defs/lists"}}, "required": ["b"]}
    with pytest.raises(ConstraintTooLarge, match="more than 128 MiB; use smaller counts") as caught:
        Compiler(BYTES).json_schema({**schema, "$defs": {"lists": lists}})
    assert caught.value.pointer == "/$defs/lists"


def definitions(name: str) -> dict[str, Any]:
    """What references of the contradiction mean, lifted to the root."""
    schema = CONTRADICTIONS[name]
    return {"$defs": schema["$defs"]} if isinstance(schema, dict) and "$defs" in schema else {}
