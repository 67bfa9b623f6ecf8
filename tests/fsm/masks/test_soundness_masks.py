"""Masks bit for bit against all texts of a finite language.

The oracle knows no automata. A JSON Schema is cut down to a small universe of values, the judge says which of them
are valid, and then a token may follow a text if and only if one of the written values goes on that way: that is
checked after every prefix of every text.
"""

from __future__ import annotations

import json
import random
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage, UnsupportedSchema
from phloem.fsm import Compiler, Constraint, Vocabulary

from ..json_schema.strategies import FEW, keywords
from ..json_schema.walks import judge_of, written
from ..vocabularies import allowed_ids, small_vocabulary

SMALL = (None, 1, "a", "ab")
SCALARS = (*SMALL, True, False, 0, 10, 2.5, -1, "", "é", '"b')
ARRAYS = [list(items) for size in range(3) for items in product(SMALL, repeat=size)]
OBJECTS = [
    {key: value for key, value in zip("abc", values, strict=True) if value != "absent"}
    for values in product(("absent", None, 1, "ab"), repeat=3)
]
UNIVERSE: dict[str, Any] = {
    "anyOf": [
        {"enum": list(SCALARS)},
        {"type": "array", "items": {"enum": list(SMALL)}, "maxItems": 2},
        {
            "type": "object",
            "properties": {key: {"enum": [None, 1, "ab"]} for key in "abc"},
            "additionalProperties": False,
        },
    ]
}
BODIES: list[Any] = [
    True,
    {"type": ["object", "array"]},
    {"required": ["b"], "not": {"required": ["c"]}},
    {"contains": {"type": "string"}, "uniqueItems": True, "type": "array", "items": {"enum": [1, "a"]}},
    {"minProperties": 2, "maxProperties": 2, "type": "object"},
    {"oneOf": [{"type": "integer"}, {"minimum": 1}, {"maxLength": 1}]},
    {"if": {"required": ["a"]}, "then": {"properties": {"b": {"const": 1}}}, "else": {"minProperties": 1}},
    {"dependentRequired": {"a": ["b"]}, "patternProperties": {"b|c": {"type": "integer"}}, "type": "object"},
    {"pattern": "b$", "minLength": 2},
    {"propertyNames": {"enum": ["a", "c"]}, "type": ["object", "number"], "exclusiveMinimum": 0},
    {"not": {"contains": {"const": 1}}, "minItems": 1, "type": "array"},
    {"const": {"a": 1, "b": None}},
]


def rows_are_exact(constraint: Constraint, texts: set[bytes]) -> None:
    """After every prefix of every text, exactly the tokens that go on in one of them are allowed."""
    tokens = constraint.vocabulary.tokens
    (eos,) = constraint.vocabulary.eos_ids
    for prefix in sorted({text[:end] for text in texts for end in range(len(text) + 1)}):
        rest = [text[len(prefix) :] for text in texts if text.startswith(prefix)]
        expected = {t for t, token in enumerate(tokens) if token and any(other.startswith(token) for other in rest)}
        if b"" in rest:
            expected.add(eos)
        cursor = constraint.cursor()
        assert all(cursor.advance(byte) for byte in prefix), prefix
        wrong = expected.symmetric_difference(allowed_ids(cursor.row()))
        assert not wrong, (prefix, [tokens[t] for t in wrong])


def pieces(texts: set[bytes], seed: int) -> Vocabulary:
    """All bytes, and pieces cut out of the texts and of texts that are not there."""
    generator = random.Random(seed)
    pool = [*sorted(texts), b'{"a":1,"c":"ab"}', b'["a",null,', b'"\\"b"', "é".encode(), b"-10", b"true"]
    found = set()
    for _ in range(60):
        text = generator.choice(pool)
        start = generator.randrange(max(len(text), 1))
        found.add(text[start : start + generator.randint(2, 6)])
    return small_vocabulary(sorted(piece for piece in found if len(piece) > 1))


def check(body: Any) -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [UNIVERSE, body]}
    judge = judge_of(schema)
    values = [*SCALARS, *ARRAYS, *OBJECTS]
    texts = {written(value).encode() for value in values if judge.is_valid(value)}
    try:
        constraint = Compiler(pieces(texts, len(texts))).json_schema(schema)
    except (UnsupportedSchema, ConstraintTooLarge):
        return
    except EmptyLanguage:
        assert not texts
        return
    rows_are_exact(constraint, texts)


@pytest.mark.parametrize("body", BODIES, ids=json.dumps)
def test_a_schema_allows_exactly_the_tokens_that_lead_to_a_valid_value(body: Any) -> None:
    check(body)


def is_judged(schema: Any) -> bool:
    """Whether it has no references, and no `dependencies`, which the judge does not know in draft 2020-12."""
    text = json.dumps(schema)
    return "$ref" not in text and "dependencies" not in text


leaves = st.sampled_from((True, True, False))
bodies = keywords(FEW)(keywords(FEW)(leaves) | leaves).filter(is_judged)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(bodies, min_size=1, max_size=2))
def test_random_schemas_allow_exactly_the_tokens_that_lead_to_a_valid_value(parts: list[Any]) -> None:
    check({"allOf": parts})
