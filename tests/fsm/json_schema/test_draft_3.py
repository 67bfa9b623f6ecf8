"""Draft 3, judged by jsonschema's validator of draft 3."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from phloem.errors import ConstraintError
from phloem.fsm import Compiler
from phloem.fsm.json_schema.draft_3 import as_draft_4

from ..vocabularies import BYTES
from .walks import num_judged_alike

DRAFT_3 = "http://json-schema.org/draft-03/schema#"
TYPES = ("string", "integer", "number", "boolean", "null", "object", "array", "any")


def random_schema(rng: random.Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if rng.random() < 0.6:
        schema["type"] = random_types(rng, depth)
    if rng.random() < 0.2:
        schema["disallow"] = random_types(rng, depth)
    if rng.random() < 0.2:
        schema["divisibleBy"] = rng.choice([2, 3, 0.5])
    if depth and rng.random() < 0.6:
        names = rng.sample("ab", rng.randint(1, 2))
        required = {name: rng.choice([{}, {"required": True}, {"required": False}]) for name in names}
        schema["properties"] = {name: random_schema(rng, depth - 1) | required[name] for name in names}
        if rng.random() < 0.3:  # and what stands beside a reference counts for nothing, but for `required`
            schema["properties"]["b"] = {"$ref": "#/definitions/x", "required": rng.random() < 0.5, "type": "null"}
    if depth and rng.random() < 0.3:
        extended = [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 2))]
        schema["extends"] = extended if rng.random() < 0.5 else extended[0]
    if rng.random() < 0.2:
        schema["dependencies"] = {"a": rng.choice(["b", ["b"], {"properties": {"b": {"type": "null"}}}])}
    if rng.random() < 0.2:
        schema["items"] = random_schema(rng, 0)
    if rng.random() < 0.2:  # which draft 3 does not know
        schema |= rng.choice([{"not": {"type": "null"}}, {"allOf": [{"multipleOf": 2}]}, {"minProperties": 1}])
    return schema


def random_types(rng: random.Random, depth: int) -> Any:
    if rng.random() < 0.5:
        return rng.choice(TYPES)
    options: list[Any] = rng.sample(TYPES, rng.randint(1, 3))
    return [*options, random_schema(rng, depth - 1)] if depth and rng.random() < 0.5 else options


def instances() -> list[Any]:
    plain: list[Any] = [None, True, 0, 1, 2, 3, 6, 1.5, 0.25, "", "x", [], [1], ["x", None], {}]
    return plain + [{"a": one} for one in plain] + [{"a": one, "b": other} for one in plain[:8] for other in plain[:5]]


def test_random_schemas_accept_what_is_valid() -> None:
    rng, samples, num_decided = random.Random(3), instances(), 0
    for _ in range(60):
        schema = {"$schema": DRAFT_3, "definitions": {"x": random_schema(rng, 0)}, **random_schema(rng, 2)}
        num_decided += num_judged_alike(schema, samples, "any") is not None
    assert num_decided > 40


def test_what_was_shared_is_shared() -> None:
    shared: Any = {"divisibleBy": 2}
    for _ in range(60):  # as a tree it would have 2^60 schemas
        shared = {"properties": {"a": shared, "b": shared}}
    found = as_draft_4(shared)["properties"]
    assert found["a"] is found["b"]


def test_documents_are_read_by_their_own_draft() -> None:
    document = {"$schema": DRAFT_3, "divisibleBy": 2, "extends": {"minimum": 3}}
    compiler = Compiler(BYTES)
    for given in (document, document | {"id": "http://a.b/c"}):
        constraint = compiler.json_schema({"$ref": "http://a.b/c"}, resources={"http://a.b/c": given})
        assert [number for number in range(9) if constraint.accepts(b"%d" % number)] == [4, 6, 8]
    within = {"id": "http://a.b/c", **document}
    constraint = compiler.json_schema(
        {"$schema": DRAFT_3, "items": within, "properties": {"a": {"$ref": "http://a.b/c"}}}
    )
    assert constraint.accepts(b"[4]") and not constraint.accepts(b"[5]")
    assert compiler.json_schema({"divisibleBy": 2, "extends": {"type": "null"}}).accepts(b"3"), "annotations elsewhere"


def test_names_and_values_are_no_keywords() -> None:
    schema = {"properties": {"extends": {"enum": [{"disallow": 1}]}, "required": {"default": {"divisibleBy": 1}}}}
    assert as_draft_4(schema) == schema
    names = ("properties", "enum", "default", "dependencies", "items")
    within = {name: {"type": "number", "divisibleBy": 2, "required": True} for name in names}
    told = as_draft_4({"properties": within})
    assert told == {"properties": {name: {"type": "number", "multipleOf": 2} for name in names}, "required": [*names]}


@pytest.mark.parametrize(
    "name", ["allOf", "dependencies", "disallow", "divisibleBy", "extends", "properties", "required", "type"]
)
@pytest.mark.parametrize("value", [3, None, [3], "x", {"x": 3}])
def test_what_is_malformed_is_refused_or_means_nothing(name: str, value: Any) -> None:
    schema = {"$schema": DRAFT_3, "extends": {"type": "null"}, name: value}
    with contextlib.suppress(ConstraintError):
        assert Compiler(BYTES).json_schema(schema).accepts(b"null")
