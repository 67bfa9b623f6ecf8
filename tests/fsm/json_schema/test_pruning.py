"""`oneOf` of many objects: no case for every combination of what they say, and the meaning a validator gives it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from phloem.errors import ConstraintTooLarge
from phloem.fsm import Compiler

from ..vocabularies import BYTES


def test_objects_that_share_most_of_their_keys_are_distinguished_by_the_others() -> None:
    shared = {f"s{n}": {"type": "string"} for n in range(9)}
    options = [
        {
            "type": "object",
            "properties": {**shared, f"own{n}": {"type": "integer"}},
            "required": [*shared, f"own{n}"],
        }
        for n in range(12)
    ]
    constraint = Compiler(BYTES).json_schema({"oneOf": options}, key_order="any")
    written = dict.fromkeys(shared, "")
    for found, is_valid in (({"own3": 1}, True), ({"own3": 1, "own5": "x"}, True), ({"own3": 1, "own5": 1}, False)):
        text = json.dumps({**found, **written}, separators=(",", ":")).encode()
        assert constraint.accepts(text) == is_valid, found


def test_closed_objects_of_one_optional_key_each_exclude_each_other_by_that_key() -> None:
    options = [{"properties": {f"k{n}": {"type": "integer"}}, "additionalProperties": False} for n in range(25)]
    constraint = Compiler(BYTES).json_schema({"type": "object", "oneOf": options})
    assert constraint.accepts(b'{"k7":1}')
    assert not constraint.accepts(b"{}")
    assert not constraint.accepts(b'{"k7":1,"k8":1}')
    assert not constraint.accepts(b'{"k7":"x"}')


def test_a_reference_is_distinguished_from_a_union_of_tagged_objects() -> None:
    tagged = [
        {
            "type": "object",
            "required": ["type"],
            "properties": {"type": {"enum": [f"t{n}"]}, "description": {"type": "string"}},
            "patternProperties": {"^x-": {}},
            "additionalProperties": False,
        }
        for n in range(9)
    ]
    reference = {"type": "object", "required": ["$ref"], "properties": {"$ref": {"type": "string"}}}
    constraint = Compiler(BYTES).json_schema({"oneOf": [reference, {"oneOf": tagged}]}, key_order="any")
    assert constraint.accepts(b'{"$ref":"#","type":"t1"}')
    assert constraint.accepts(b'{"type":"t1","x-y":1}')
    assert not constraint.accepts(b'{"type":"t1","y":1}')


def tagged_by_default(num_options: int) -> list[dict[str, Any]]:
    """Objects whose tag is a constant that may be missing, with three keys of their own each that may not."""
    return [
        {
            "type": "object",
            "properties": {
                "kind": {"const": f"k{n}", "default": f"k{n}"},
                **{f"{name}{n}": {"type": "array", "items": {"type": "integer"}} for name in "abc"},
            },
            "required": [f"{name}{n}" for name in "abc"],
        }
        for n in range(num_options)
    ]


def test_a_tag_that_may_be_missing_is_written_where_too_many_options_need_it() -> None:
    options = tagged_by_default(12)
    judge = jsonschema.Draft202012Validator({"oneOf": options})
    constraint = Compiler(BYTES).json_schema({"oneOf": options}, key_order="any")
    own = {f"{name}{n}": [] for n in (3, 4) for name in "abc"}
    for value in ({"kind": "k3", **own}, {"kind": "k4", **own}):
        text = json.dumps(value, separators=(",", ":")).encode()
        assert judge.is_valid(value) and constraint.accepts(text)
    for value in (own, {"kind": "k5", **own}, {"kind": "k3", **own, "a3": ["x"]}):
        text = json.dumps(value, separators=(",", ":")).encode()
        assert not judge.is_valid(value) and not constraint.accepts(text)


def test_nothing_is_proved_from_objects_with_tags_alone() -> None:
    # both values of x hold for the objects without a tag that have a3, b3 and c3, so the options are not apart
    union = {"oneOf": tagged_by_default(12)}
    rival = {"type": "object", "required": ["a3"], "properties": {"kind": False}}
    options = [{"type": "object", "required": ["x"], "properties": {"x": x}} for x in (union, rival)]
    with pytest.raises(ConstraintTooLarge):
        Compiler(BYTES).json_schema({"oneOf": options})
