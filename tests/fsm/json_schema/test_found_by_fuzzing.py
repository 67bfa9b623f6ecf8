"""Schemas that once went wrong, kept as they were found."""

from __future__ import annotations

import json

from phloem.fsm import Compiler, Vocabulary

COMPILER = Compiler(Vocabulary([bytes([byte]) for byte in range(256)] + [b""], [256]))
DRAFT = {"$schema": "https://json-schema.org/draft/2020-12/schema"}


def accepts(schema: dict[str, object], value: object) -> bool:
    cursor = COMPILER.json_schema({**DRAFT, **schema}).cursor()
    return all(cursor.advance(byte) for byte in json.dumps(value).encode()) and cursor.is_accepting


def test_an_unevaluated_keyword_that_is_absent_evaluates_nothing() -> None:
    schema = {"allOf": [{"unevaluatedItems": False}], "unevaluatedProperties": False}
    assert not accepts(schema, {"a": 0})
    assert accepts(schema, {})


def test_a_negated_negation_of_a_number_is_itself() -> None:
    schema = {"type": "number", "not": {"unevaluatedItems": False, "not": {"exclusiveMaximum": 0}}}
    assert accepts(schema, -1)
    assert not accepts(schema, 0)
