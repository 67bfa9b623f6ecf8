"""What may be taken is what a row says; and what a budget leaves of it, by its definition: tokens after which the rest
suffices; drafts and guesses made of them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from phloem.fsm import Compiler, Constraint, Cursor
from phloem.fsm.foresight import forced_bytes, forced_tokens, forced_tokens_within, guess_within, may_guess, remember
from phloem.fsm.guess import CERTAIN

from .test_jump import sentencepiece_vocabulary
from .vocabularies import allowed_ids

VOCABULARY = sentencepiece_vocabulary()
STRUCTURE = [i for i, token in enumerate(VOCABULARY.tokens) if token and not token.strip(b'{}[]",: ')]
NAME = {"type": "string", "maxLength": 5}
OWED = "several items that differ"  # judged by state, not by token: a few that would do are left out
SCHEMAS: dict[str, dict[str, Any]] = {
    "any": {},
    "named keys": {
        "type": "object",
        "properties": {"name": NAME, "total": {"const": 12}, "items": {"enum": ["active", "pending"]}},
        "required": ["name", "items"],
        "additionalProperties": False,
    },
    "keys that the schema does not name": {
        "type": "object",
        "properties": {"id": {"const": True}},
        "additionalProperties": NAME,
        "minProperties": 3,
    },
    "keys that can be used up": {
        "type": "object",
        "patternProperties": {"^status[ab]$": {"const": "active"}, "^i?d$": {"const": None}},
        "additionalProperties": False,
        "minProperties": 3,
    },
    "few values that differ": {"type": "array", "items": {"enum": ["active", "act", 1, None]}, "uniqueItems": True},
    "strings that differ": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
    OWED: {
        "type": "array",
        "items": {"type": "string"},
        "uniqueItems": True,
        "minItems": 3,
    },
    "strings of some lengths": {
        "type": "array",
        "items": {"type": "string", "minLength": 9, "maxLength": 30},
        "minItems": 2,
    },
    "numbers": {"type": "array", "items": {"type": "number", "minimum": -1, "maximum": 100}, "minItems": 3},
}


def within(cursor: Cursor, remaining: int) -> list[int]:
    """The tokens after which `remaining - 1` more suffice, each of them tried."""
    found = []
    for token_id in allowed_ids(cursor.row()):
        ahead = cursor.fork()
        assert ahead.advance(token_id)
        if remaining > 0 and (ahead.is_finished or ahead.min_tokens_to_accept() < remaining):
            found.append(token_id)
    return found


def check_run(cursor: Cursor, token_ids: list[int], remaining: int) -> int:
    """How many of some tokens are allowed, one after another, with `remaining` left."""
    ahead = cursor.fork()
    for index, token_id in enumerate(token_ids):
        if token_id not in within(ahead, remaining - index) or not ahead.advance(token_id):
            return index
    return len(token_ids)


def check(cursor: Cursor, remaining: int, source: random.Random, *, is_exact: bool) -> None:
    """All that a cursor says of a budget."""
    least = cursor.min_tokens_to_accept()
    assert [cursor.is_within(limit) for limit in range(least - 2, least + 3)] == [False, False, True, True, True]
    allowed = {*allowed_ids(cursor.row())}
    for token_id in (*STRUCTURE, *source.sample(range(VOCABULARY.size), 40)):
        assert cursor.fork().advance(token_id) == (token_id in allowed)
    row, truth = allowed_ids(cursor.row_within(remaining)), within(cursor, remaining)
    assert row == truth if is_exact else row and {*row} <= {*truth}
    draft = forced_tokens(cursor)
    assert forced_tokens_within(cursor, remaining) == draft[: check_run(cursor, draft, remaining)]
    chances = source.choice([CERTAIN, [source.random() for _ in range(4)]])
    floor = source.random()
    limit, looks = source.randrange(6), source.random() < 0.5
    may_find = may_guess(cursor, chances, floor, looks=looks)
    guess = guess_within(cursor, remaining, limit, chances, floor, looks=looks).token_ids
    assert len(guess) <= (limit if may_find else 0)
    assert check_run(cursor, list(guess), remaining) == len(guess)


def compiled(name: str, key_order: Any) -> Constraint:
    return Compiler(VOCABULARY).json_schema(SCHEMAS[name], key_order=key_order)


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_a_budget_leaves_what_its_definition_says(name: str, key_order: str) -> None:
    constraint = compiled(name, key_order)
    for seed in range(6):
        source = random.Random(seed)
        cursor, remaining = constraint.cursor(), constraint.min_tokens() + source.choice([0, 1, 4, 30])
        while not cursor.is_finished:
            if source.random() < 0.4:
                check(cursor, remaining, source, is_exact=name != OWED)
            draft = forced_tokens_within(cursor, remaining)
            choices = allowed_ids(cursor.row_within(remaining))
            assert cursor.advance(draft[0] if draft and source.random() < 0.5 else source.choice(choices))
            remember(cursor, 1)
            remaining -= 1
            if not remaining:
                break
        assert cursor.is_accepting
        check_end(cursor)


def check_end(cursor: Cursor) -> None:
    """After the end there is nothing."""
    cursor.is_finished or cursor.advance(VOCABULARY.eos_ids[0])
    assert not any(row.any() for row in (cursor.row(), cursor.row_within(9), cursor.row_soon(9, 1)))
    assert cursor.is_within(0) and cursor.min_tokens_to_accept() == 0
    assert not any(
        (
            forced_bytes(cursor),
            forced_tokens(cursor),
            forced_tokens_within(cursor, 9),
            guess_within(cursor, 9, 9).token_ids,
        )
    )
    assert not any(cursor.advance(token_id) for token_id in range(VOCABULARY.size))
