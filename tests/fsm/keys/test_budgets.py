"""Texts whose keys or items must differ end within every budget from the least on, in every layout, and are valid."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sentencepiece import SentencePieceProcessor

import phloem
from phloem.errors import EmptyLanguage, UnsupportedSchema
from phloem.fsm import Compiler, Vocabulary

from ..vocabularies import BYTES, allowed_ids
from .judging import Judge

ALPHABET = b'{}[]":, abcxy1'
PAIRS = {"type": "object", "minProperties": 2}
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object"},
    {"type": "object", "required": ["x"]},
    {"type": "object", "minProperties": 3, "additionalProperties": PAIRS},
    {"type": "array", "items": PAIRS, "minItems": 2},
    {"type": "object", "properties": {"c": {}}, "additionalProperties": {"type": "boolean"}, "minProperties": 2},
    {
        "type": "object",
        "additionalProperties": {
            "type": "object",
            "properties": {"c": {"type": "integer"}},
            "additionalProperties": {"const": 1},
        },
        "minProperties": 2,
    },
    {"type": "object", "patternProperties": {"^.$": {"type": "object", "minProperties": 1}}},
    *(
        {"type": "array", "items": {"type": "string", "pattern": pattern}, "uniqueItems": True, "minItems": 4}
        for pattern in ("", "a|b", "b$", "^x.*y", "[ab]c", "^.{2}$", "^.?$")
    ),
    *(
        {
            "type": "object",
            "patternProperties": {pattern: {"type": "boolean"}},
            "additionalProperties": False,
            "minProperties": 3,
        }
        for pattern in ("a|b", "b$", "^.$")
    ),
]
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


def nested(chance: random.Random, depth: int) -> dict[str, Any]:
    """A schema of an object or a list, with values that are again of this kind."""

    def value() -> dict[str, Any]:
        if depth > 0 and chance.random() < 0.7:
            return nested(chance, depth - 1)
        return chance.choice([{}, {"type": "integer"}, {"const": 1}, PAIRS])

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
def compiler(vocabulary: str) -> Compiler:
    """For bytes, or for the tokens of the bundled model."""
    if vocabulary == "bytes":
        return Compiler(BYTES)
    folder = Path(phloem.__file__).parent / "runtime" / "assets" / "nano"
    model = SentencePieceProcessor(str(folder / "tokenizer.model"))
    tokens = []
    for token_id in range(model.vocab_size()):
        piece = model.id_to_piece(token_id)
        if model.is_control(token_id) or model.is_unknown(token_id):
            tokens.append(b"")
        else:
            is_byte = model.is_byte(token_id)
            tokens.append(bytes([int(piece[3:5], 16)]) if is_byte else piece.replace("▁", " ").encode())
    return Compiler(Vocabulary(tokens, [model.eos_id()], model.encode))


def check(schema: dict[str, Any], vocabulary: str, key_order: Any, seed: int, num_walks: int) -> bool:
    """Walks within budgets from the least on; False if the schema is empty or refused."""
    try:
        constraint = compiler(vocabulary).json_schema(schema, key_order=key_order)
    except (EmptyLanguage, UnsupportedSchema):
        return False
    chance = random.Random(seed)
    for _ in range(num_walks):
        Judge(constraint, schema, ALPHABET).check_walk(chance, chance.choice([0, 0, 1, 2, 3, 5, 8, 13, 24, 40, 60, 98]))
    return True


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "flexible"])
@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_what_is_promised_is_kept_in_every_layout(schema: dict[str, Any], whitespace: Any) -> None:
    for key_order in ("schema", "any"):
        constraint = compiler("bytes").json_schema(schema, key_order=key_order, whitespace=whitespace)
        for seed in range(6):
            chance = random.Random(seed)
            Judge(constraint, schema, ALPHABET).check_walk(chance, chance.choice([0, 0, 1, 2, 3, 5, 8, 12]))


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("vocabulary", ["bytes", "bundled"])
@pytest.mark.parametrize("number", range(len(FOUND)))
def test_what_was_found_is_kept(number: int, vocabulary: str, key_order: str) -> None:
    assert check(FOUND[number], vocabulary, key_order, number, 8)


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("vocabulary", ["bytes", "bundled"])
@pytest.mark.parametrize("batch", range(2))
def test_random_schemas_end_within_every_budget(batch: int, vocabulary: str, key_order: str) -> None:
    num_checked, seed = 0, batch * 1_000
    while num_checked < 5:
        num_checked += check(nested(random.Random(seed), 2), vocabulary, key_order, seed, 6)
        seed += 1


def test_a_shortest_key_that_is_taken_is_not_counted_on() -> None:
    """The completion that the automaton knows has four bytes, less than a member has, and would write "" again."""
    schema = {
        "propertyNames": {"enum": ["", "b" * 40]},
        "minProperties": 2,
        "additionalProperties": {"type": "integer"},
    }
    cursor = Compiler(BYTES).json_schema({"type": "object", **schema}).cursor()
    assert all(map(cursor.advance, b'{"":1,"'))
    assert cursor.min_tokens_to_accept() == 44
    assert [cursor.is_within(limit) for limit in (4, 5, 43, 44)] == [False, False, False, True]


def test_a_token_that_writes_several_keys_is_not_let_in_too_late() -> None:
    """After it the shortest three keys are taken."""
    token = b'":1,"' + b"a" * 8 + b'":1,"' + b"a" * 16 + b'":1,"'
    vocabulary = Vocabulary([*BYTES.tokens[:256], token, b""], [257])
    schema = {"propertyNames": {"pattern": "^(aaaaaaaa)*$"}, "additionalProperties": {"const": 1}}
    cursor = Compiler(vocabulary).json_schema({"type": "object", **schema}).cursor()
    assert all(map(cursor.advance, b'{"'))
    after = cursor.fork()
    assert after.advance(256) and after.min_tokens_to_accept() == 28
    for remaining in range(20, 40):
        assert (256 in allowed_ids(cursor.row_within(remaining))) == (remaining > 28)


def test_the_way_to_the_next_key_depends_on_whether_keys_are_remembered() -> None:
    """One state, asked first where nothing is remembered on the way: later the brace must be counted."""
    inner = {"type": "object", "propertyNames": {"maxLength": 1}, "additionalProperties": {"const": 1}}
    schema = {**inner, "properties": {"x": {**inner, "minProperties": 2}}}
    constraint = Compiler(BYTES).json_schema(schema, key_order="any")
    for text in (b'{"x"', b'{"":1,"x"'):
        cursor = constraint.cursor()
        assert all(map(cursor.advance, text))
        assert cursor.min_tokens_to_accept() == len(':{"":1," ":1}}')
