"""Random schemas of nested objects whose keys must differ: a text that was begun within a budget always ends, valid."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from sentencepiece import SentencePieceProcessor

import phloem
from phloem.errors import EmptyLanguage, UnsupportedSchema
from phloem.fsm import Compiler, Constraint, Vocabulary

from ..vocabularies import BYTES, allowed_ids
from .judging import pairs

LIKED = frozenset(b'{}[]":, abc1')
NAMES: list[dict[str, Any]] = [
    {"const": "b"},
    {"enum": ["b", "", "c"]},
    {"enum": ["en", "de", "fr"]},
    {"pattern": "^[ab]"},
    {"pattern": "^[ab]", "minLength": 1, "maxLength": 1},
    {"maxLength": 1},
    {"minLength": 2},
]
PATTERNS = ["b$", "^[ab]$", "^a", "^.$", "c"]
FOUND: list[dict[str, Any]] = [  # where the promise was once broken
    {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "additionalProperties": {"type": "integer"},
            "minProperties": 1,
        },
        "minProperties": 1,
    },
    {
        "type": "object",
        "propertyNames": {"enum": ["en", "de", "fr"]},
        "additionalProperties": {"type": "object", "minProperties": 1},
        "minProperties": 1,
    },
    {
        "type": "object",
        "patternProperties": {"b$": {"type": "object", "minProperties": 3}},
        "propertyNames": {"enum": ["b", "", "c"]},
    },
    {
        "type": "object",
        "patternProperties": {"b$": {"type": "object", "minProperties": 1}},
        "propertyNames": {"const": "b"},
        "minProperties": 1,
    },
    {
        "type": "object",
        "patternProperties": {"^[ab]$": {"type": "object", "minProperties": 1}},
        "propertyNames": {"minLength": 1, "maxLength": 1, "pattern": "^[ab]"},
        "minProperties": 1,
    },
]


def nested(chance: random.Random, depth: int) -> dict[str, Any]:
    """A schema of an object or a list, with values that are again of this kind."""

    def value() -> dict[str, Any]:
        if depth > 0 and chance.random() < 0.7:
            return nested(chance, depth - 1)
        return chance.choice([{}, {"type": "integer"}, {"const": 1}, {"type": "object", "minProperties": 2}])

    if chance.random() < 0.15:
        text: dict[str, Any] = {"type": "string", "pattern": chance.choice(PATTERNS)}
        return {"type": "array", "items": text, "uniqueItems": True, "minItems": chance.randrange(4)}
    found: dict[str, Any] = {"type": "object"}
    if chance.random() < 0.6:
        found["propertyNames"] = chance.choice(NAMES)
    if chance.random() < 0.6:
        found["patternProperties"] = {pattern: value() for pattern in chance.sample(PATTERNS, chance.choice([1, 1, 2]))}
    if chance.random() < 0.5:
        found["additionalProperties"] = chance.choice([False, value(), value()])
    if chance.random() < 0.3:
        found["properties"] = {"a": value()}
    if chance.random() < 0.7:
        found["minProperties"] = chance.randrange(4)
    if chance.random() < 0.2:
        found["maxProperties"] = chance.randrange(2, 4)
    return found


@cache
def bundled() -> Vocabulary:
    """The tokens of the bundled model."""
    model = SentencePieceProcessor(
        str(Path(phloem.__file__).parent / "runtime" / "assets" / "nano" / "tokenizer.model")
    )
    tokens = []
    for token_id in range(model.vocab_size()):
        piece = model.id_to_piece(token_id)
        if model.is_control(token_id) or model.is_unknown(token_id):
            tokens.append(b"")
        else:
            is_byte = model.is_byte(token_id)
            tokens.append(bytes([int(piece[3:5], 16)]) if is_byte else piece.replace("▁", " ").encode())
    return Vocabulary(tokens, [model.eos_id()], model.encode)


@cache
def compiler(vocabulary: str) -> Compiler:
    return Compiler(BYTES if vocabulary == "bytes" else bundled())


def check_walk(constraint: Constraint, schema: dict[str, Any], chance: random.Random, budget: int) -> None:
    """Random tokens within a budget write a valid text."""
    vocabulary, cursor, text, remaining = constraint.vocabulary, constraint.cursor(), b"", budget
    while not cursor.must_stop and not (remaining == 0 and cursor.is_accepting):
        assert cursor.min_tokens_to_accept() <= remaining, (schema, budget, text)
        assert cursor.is_within(remaining), (schema, budget, text)
        found = allowed_ids(cursor.row_within(remaining))
        assert found, (schema, budget, text)
        liked = [token_id for token_id in found if set(vocabulary.tokens[token_id]) <= LIKED] or found
        token_id = chance.choice(liked if chance.random() < 0.9 else found)
        other = cursor.fork()
        assert other.advance(chance.choice(found)) and other.is_within(remaining - 1), (schema, budget, text)
        assert cursor.advance(token_id)
        if cursor.is_finished:
            break
        text += vocabulary.tokens[token_id]
        remaining -= 1
    value = json.loads(text, object_pairs_hook=pairs)
    assert jsonschema.Draft202012Validator(schema).is_valid(value), (schema, budget, text)


def check(vocabulary: str, key_order: Any, schema: dict[str, Any], seed: int, num_walks: int) -> bool:
    """Walks within budgets from the least on; False if the schema is empty or refused."""
    try:
        constraint = compiler(vocabulary).json_schema(schema, key_order=key_order)
    except (EmptyLanguage, UnsupportedSchema):
        return False
    chance = random.Random(seed)
    for _ in range(num_walks):
        check_walk(
            constraint,
            schema,
            chance,
            constraint.min_tokens() + chance.choice([0, 0, 1, 2, 3, 5, 8, 13, 24, 40, 60, 98]),
        )
    return True


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("vocabulary", ["bytes", "bundled"])
@pytest.mark.parametrize("number", range(len(FOUND)))
def test_what_was_found_is_kept(number: int, vocabulary: str, key_order: str) -> None:
    assert check(vocabulary, key_order, FOUND[number], number, 8)


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("vocabulary", ["bytes", "bundled"])
@pytest.mark.parametrize("batch", range(2))
def test_random_schemas_end_within_every_budget(batch: int, vocabulary: str, key_order: str) -> None:
    num_checked, seed = 0, batch * 1_000
    while num_checked < 5:
        num_checked += check(vocabulary, key_order, nested(random.Random(seed), 2), seed, 6)
        seed += 1
