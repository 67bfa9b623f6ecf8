"""Keywords that validators may check or not: `dependencies` after draft 7 is obeyed, `content…` in draft 7."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema
import pytest

from phloem.errors import EmptyLanguage, UnsupportedSchema
from phloem.fsm import Compiler
from phloem.fsm.json_schema.demands import demands

from ..vocabularies import BYTES

DRAFTS = (
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)


@pytest.mark.parametrize("draft", DRAFTS)
def test_dependencies_hold_under_every_draft(draft: str) -> None:
    schema = {
        "$schema": draft,
        "type": "object",
        "properties": {"a": {}, "b": {}, "c": {}},
        "dependencies": {"a": ["b"], "b": {"properties": {"c": {"type": "integer"}}}},
    }
    constraint = Compiler(BYTES).json_schema(schema)
    taken = [{}, {"c": "x"}, {"a": 1, "b": 1}, {"b": 1, "c": 1}]
    refused = [{"a": 1}, {"b": 1, "c": "x"}, {"a": 1, "c": 1}]
    assert all(constraint.accepts(json.dumps(value, separators=(",", ":")).encode()) for value in taken)
    assert not any(constraint.accepts(json.dumps(value, separators=(",", ":")).encode()) for value in refused)
    assert [demand.pointer for demand in demands(schema)[0]].count("/dependencies") == 1


@pytest.mark.parametrize("draft", [None, *DRAFTS[2:]])
def test_what_is_written_is_valid_whether_dependencies_hold_or_not(draft: str | None) -> None:
    rng, compiler = random.Random(3), Compiler(BYTES)
    obeying = jsonschema.validators.extend(
        jsonschema.Draft202012Validator, {"dependencies": jsonschema.Draft7Validator.VALIDATORS["dependencies"]}
    )
    instances = [
        dict(zip(keys, values, strict=True))
        for count in range(4)
        for keys in itertools.combinations("abc", count)
        for values in itertools.product((0, "x"), repeat=count)
    ]
    num_taken = 0
    for _ in range(60):
        inner = {"dependencies": {rng.choice("ab"): rng.choice((["c"], ["b", "c"], {"required": ["c"]}, False))}}
        inner |= rng.choice(({}, {"required": ["a"]}, {"properties": {"a": {"type": "integer"}}}))
        schema: dict[str, Any] = rng.choice(
            (
                inner,
                {"not": inner},
                {"not": {"anyOf": [inner, {"required": ["b"]}]}},
                {"if": inner, "then": {"required": ["b"]}, "else": {"properties": {"b": False}}},
                {"oneOf": [inner, {"required": ["b"]}]},
            )
        )
        schema = {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, **schema}
        if draft is not None:
            schema["$schema"] = draft
        judges = jsonschema.Draft202012Validator(schema), obeying(schema)
        try:
            constraint = compiler.json_schema(schema)
        except EmptyLanguage:
            continue
        for instance in instances:
            taken = constraint.accepts(json.dumps(instance, separators=(",", ":")).encode())
            num_taken += taken
            assert not taken or all(judge.is_valid(instance) for judge in judges), (schema, instance)
    assert num_taken > 200


@pytest.mark.parametrize("draft", [DRAFTS[0], "", *DRAFTS[2:]])
@pytest.mark.parametrize("keyword", ["contentEncoding", "contentMediaType", "contentSchema"])
def test_what_a_text_holds_is_not_enforced_and_it_is_said_so(draft: str, keyword: str) -> None:
    schema = {"$schema": draft, "type": "string", keyword: "base64"}
    assert Compiler(BYTES).json_schema(schema).accepts(b'"no base64!"')
    (annotation,) = demands(schema)[1]
    assert annotation.pointer == f"/{keyword}"
    assert "not enforced" in annotation.reason
    assert "format: base64" in annotation.reason


def test_what_draft_7_lets_validators_check_holds_for_those_that_do_and_those_that_do_not() -> None:
    schema: dict[str, Any] = {"$schema": DRAFTS[1], "contentEncoding": "base64", "contentMediaType": "image/png"}
    constraint = Compiler(BYTES).json_schema(schema)
    assert constraint.accepts(b'"YWI="') and constraint.accepts(b"7") and not constraint.accepts(b'"no base64!"')
    found, annotations = demands(schema)
    assert [demand.pointer for demand in found] == ["/contentEncoding"]
    assert [annotation.pointer for annotation in annotations] == ["/contentMediaType"]
    with pytest.raises(EmptyLanguage):  # a string that is no base64 is valid for some of them only
        Compiler(BYTES).json_schema({"$schema": DRAFTS[1], "type": "string", "not": {"contentEncoding": "base64"}})
    with pytest.raises(UnsupportedSchema) as raised:
        Compiler(BYTES).json_schema({"$schema": DRAFTS[1], "items": {"contentMediaType": "application/json"}})
    assert raised.value.pointer == "/items/contentMediaType"


@pytest.mark.parametrize(
    "name, taken, refused",
    [
        ("host-name", ("a.b", "x-1.com"), ("-a", "a_b", "")),
        ("color", ("red", "#C89", "#CC8899"), ("puce", "#00332520")),
        ("time", ("08:30:06",), ("8:30 AM", "24:00:00", "08:30:06Z")),
    ],
)
def test_formats_of_draft_3(name: str, taken: tuple[str, ...], refused: tuple[str, ...]) -> None:
    constraint = Compiler(BYTES).json_schema({"$schema": "http://json-schema.org/draft-03/schema#", "format": name})
    assert all(constraint.accepts(json.dumps(text).encode()) for text in taken)
    assert not any(constraint.accepts(json.dumps(text).encode()) for text in refused)
