"""Texts whose keys or items must differ end within every budget from the least on, in every layout."""

from __future__ import annotations

import random
from typing import Any

import pytest

from phloem.fsm import Compiler, Vocabulary

from ..vocabularies import BYTES, allowed_ids

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
LIKED = frozenset(b'{}[]":, abcxy')


@pytest.mark.parametrize("whitespace", ["compact", "spaced", "flexible"])
@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_what_is_promised_is_kept(schema: dict[str, Any], whitespace: Any) -> None:
    for key_order in ("schema", "any"):
        constraint = Compiler(BYTES).json_schema(schema, key_order=key_order, whitespace=whitespace)
        for seed in range(6):
            source, cursor, text = random.Random(seed), constraint.cursor(), b""
            remaining = constraint.min_tokens() + source.choice([0, 0, 1, 2, 3, 5, 8, 12])
            while not cursor.is_finished:
                assert cursor.min_tokens_to_accept() <= remaining, text
                found = allowed_ids(cursor.row_within(remaining))
                if remaining == 0 and cursor.is_accepting:
                    break
                assert found, (text, remaining)
                liked = [token_id for token_id in found if token_id in LIKED] or found
                token_id = source.choice(liked if source.random() < 0.9 else found)
                assert cursor.advance(token_id)
                text += BYTES.tokens[token_id]
                remaining -= 1


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
