"""Keywords that validators may check or not: `dependencies` after draft 7 is obeyed, `content…` is said to be free."""

from __future__ import annotations

import itertools
import json
import random
from typing import Any

import jsonschema
import pytest

from phloem.errors import EmptyLanguage
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


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize("keyword", ["contentEncoding", "contentMediaType"])
def test_what_a_text_holds_is_not_enforced_and_it_is_said_so(draft: str, keyword: str) -> None:
    schema = {"$schema": draft, "type": "string", keyword: "base64"}
    assert Compiler(BYTES).json_schema(schema).accepts(b'"no base64!"')
    (annotation,) = demands(schema)[1]
    assert annotation.pointer == f"/{keyword}"
    assert "not enforced" in annotation.reason
    assert "format: base64" in annotation.reason
