"""Schemas that refer to documents given with them, judged by `jsonschema` with the same documents."""

from __future__ import annotations

import json
import random
from typing import Any
from urllib.parse import urljoin

import jsonschema
import pytest
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

import phloem as ph
from phloem.errors import ConstraintError, EmptyLanguage, InvalidSchema, UnsupportedSchema
from phloem.fsm import Compiler
from phloem.runtime.constrain.compiling import check_spec

from ..vocabularies import BYTES

ADDRESSES = ("http://a.test/one", "http://a.test/deep/two", "urn:three")
ENTRIES = ("p", "q", "r/s")
INSTANCES = (0, 7, "", "x", "xyz", None, True, [], [1], ["x"], {}, {"k": 1}, {"k": "x"}, {"k": {"k": None}}, [[1]])
DANGLING = {"$ref": "#/$defs/missing"}


def _reference(rng: random.Random, base: str) -> str:
    """A reference to some entry of a document: by pointer or anchor, absolute or relative to the base."""
    address, entry = rng.choice(ADDRESSES), rng.choice(ENTRIES)
    pointer = entry.replace("/", "~1") if rng.random() < 0.9 else "nowhere"
    fragment = rng.choice((f"/$defs/{pointer}", entry.replace("/", "-")))
    if address == base and rng.random() < 0.5:
        return f"#{fragment}"
    for short in ("one", "deep/two", "../one", "two"):
        if urljoin(base, short) == address and rng.random() < 0.5:
            return f"{short}#{fragment}"
    return f"{address}#{fragment}"


def _entry(rng: random.Random, name: str, base: str) -> dict[str, Any]:
    reference = {"$ref": _reference(rng, base)}
    return {
        "$anchor": name.replace("/", "-"),
        **rng.choice(
            (
                {"type": rng.choice(("integer", "string", "null"))},
                {"type": "string", "minLength": 2},
                {"type": "array", "items": reference},
                {"type": "object", "properties": {"k": reference}},
                {"anyOf": [{"type": "integer"}, {"type": "array", "items": reference}]},
                {"type": ["string", "array"], "items": reference},
            )
        ),
    }


def _documents(rng: random.Random) -> dict[str, Any]:
    found = {}
    for address in ADDRESSES:
        base = rng.choice(ADDRESSES[:2]) if rng.random() < 0.1 else address
        found[address] = {"$defs": {name: _entry(rng, name, base) for name in ENTRIES}}
        if base != address:
            found[address]["$id"] = "http://b.test/other"
    return found


def test_references_into_documents_mean_what_jsonschema_reads() -> None:
    rng, compiler = random.Random(11), Compiler(BYTES)
    num_taken = num_refused = 0
    for _ in range(100):
        documents = _documents(rng)
        schema = {"type": "object", "properties": {"v": {"$ref": _reference(rng, "")}}, "required": ["v"]}
        registry: Registry[Any] = Registry().with_resources(
            (address, Resource(document, DRAFT202012)) for address, document in documents.items()
        )
        judge = jsonschema.Draft202012Validator(schema, registry=registry)
        try:
            constraint = compiler.json_schema(schema, resources=documents, key_order="any")
        except (InvalidSchema, UnsupportedSchema) as error:
            assert error.pointer.endswith("/$ref"), error
            num_refused += 1
            continue
        for instance in INSTANCES:
            taken = constraint.accepts(json.dumps({"v": instance}, separators=(",", ":")).encode())
            assert taken == judge.is_valid({"v": instance}), (schema, documents, instance)
            num_taken += taken
    assert num_taken > 150 and 8 < num_refused < 50


@pytest.mark.parametrize(
    "schema, text",
    [
        ({"type": "integer", "$defs": {"a": DANGLING, "b": {"properties": {"c": DANGLING}}}}, b"1"),
        ({"type": "integer", "properties": {"a": DANGLING}}, b"1"),
        ({"type": "array", "prefixItems": [{"type": "integer"}, DANGLING], "maxItems": 1}, b"[1]"),
        ({"type": "array", "items": DANGLING, "maxItems": 0}, b"[]"),
        ({"type": "integer", "$defs": {"a": {"$ref": "http://nowhere.test/"}}}, b"1"),
    ],
)
def test_a_reference_to_nowhere_that_nothing_needs_does_not_matter(schema: dict[str, Any], text: bytes) -> None:
    assert Compiler(BYTES).json_schema(schema).accepts(text)


@pytest.mark.parametrize(
    "schema, pointer",
    [
        (DANGLING, "/$ref"),
        ({"properties": {"a": DANGLING}}, "/properties/a/$ref"),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, DANGLING]}}}, "/properties/a/anyOf/1/$ref"),
        ({"type": "string", "$ref": "#nowhere"}, "/$ref"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": DANGLING}}, "/$defs/b/$ref"),
        ({"$ref": "http://a.test/one"}, "http://a.test/one#/items/$ref"),
    ],
)
def test_one_that_is_needed_is_refused_with_its_place(schema: dict[str, Any], pointer: str) -> None:
    documents = {"http://a.test/one": {"type": "array", "items": {"$ref": "http://b.test/"}}}
    with pytest.raises((InvalidSchema, UnsupportedSchema)) as raised:
        Compiler(BYTES).json_schema(schema, resources=documents)
    assert raised.value.pointer == pointer


def test_a_document_is_known_by_its_address_and_by_its_id() -> None:
    documents = {"http://a.test/x": {"$id": "http://b.test/y", "$defs": {"z": {"$id": "z", "type": "null"}}}}
    compiler = Compiler(BYTES)
    for reference in ("http://a.test/x#/$defs/z", "http://b.test/y#/$defs/z", "http://b.test/z"):
        constraint = compiler.json_schema({"$ref": reference}, resources=documents)
        assert constraint.accepts(b"null") and not constraint.accepts(b"1")


def test_the_same_schema_with_other_documents_is_another_constraint() -> None:
    compiler, schema = Compiler(BYTES), {"$ref": "http://a.test/x"}
    for kind, text in (("null", b"null"), ("boolean", b"true"), ("null", b"null")):
        constraint = compiler.json_schema(schema, resources={"http://a.test/x": {"type": kind}})
        assert constraint.accepts(text) and not constraint.accepts(b'"x"')
    once = compiler.json_schema(schema, resources={"http://a.test/x": {"type": "null"}})
    assert once is compiler.json_schema(schema, resources={"http://a.test/x": {"type": "null"}})


def test_documents_of_a_specification_are_compiled_and_explained() -> None:
    schema, documents = {"$ref": "http://a.test/x"}, {"http://a.test/x": {"type": "string", "maxLength": 2}}
    spec = ph.json_schema(schema, resources=documents)
    check_spec(spec)
    found = ph.explain(spec, text='"abc"')
    assert [demand.pointer for demand in found.demands if demand.keyword == "maxLength"] == [
        "http://a.test/x#/maxLength"
    ]
    assert found.steps is not None and "http://a.test/x#/maxLength" in str(found.steps.reasons)
    with pytest.raises(EmptyLanguage) as raised:
        documents = {"http://a.test/x": {"type": "object", "required": ["a"], "properties": {"a": False}}}
        check_spec(ph.json_schema(schema, resources=documents))
    assert raised.value.pointer == "http://a.test/x#/properties/a"


def test_documents_of_a_schema_in_a_tag() -> None:
    part = {"type": "json_schema", "json_schema": {"$ref": "http://a.test/x"}}
    documents = {"http://a.test/x": {"enum": [1, 23]}}
    constraint = Compiler(BYTES).structural_tag({"format": {**part, "resources": documents}})
    assert [text for text in (b"1", b"2", b"23", b"3") if constraint.accepts(text)] == [b"1", b"23"]
    with pytest.raises(ConstraintError, match="a schema is a dict or a bool"):
        Compiler(BYTES).structural_tag({"format": {**part, "resources": {"http://a.test/x": 1}}})


@pytest.mark.parametrize("resources", [[], {1: {}}, {"a#b": {}}, {"a": 1}, {"a": {}, "a#": {}}])
def test_what_is_no_store_is_refused(resources: Any) -> None:
    with pytest.raises(ConstraintError) as raised:
        Compiler(BYTES).json_schema({}, resources=resources)
    assert raised.value.param == "resources"
