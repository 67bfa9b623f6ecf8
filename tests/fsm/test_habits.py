"""Guesses: always allowed, always within the budget, right where texts repeat themselves, silent inside free text."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.fsm.foresight import forced_tokens, guess_within, remember
from phloem.fsm.habits import MAX_COHORTS, MAX_KEPT, Cohorts, Habits

from .test_jump import WORDS, byte_level_vocabulary, sentencepiece_vocabulary
from .vocabularies import BYTES, allowed_ids

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["active", "pending"]}, "maxItems": 3},
        "total": {"type": "number"},
    },
    "required": ["age"],
}


@pytest.fixture(scope="module")
def constraint() -> Constraint:
    return Compiler(sentencepiece_vocabulary()).json_schema(SCHEMA)


def encoded(constraint: Constraint, text: str) -> list[int]:
    encode = constraint.vocabulary.encode
    assert encode is not None
    return list(encode(text))


def num_steps(constraint: Constraint, token_ids: list[int]) -> int:
    """Steps until the text is written, if guesses are verified and every step decides one token more."""
    cursor, num_steps = constraint.cursor(), 0
    while cursor.num_consumed < len(token_ids):
        rest = token_ids[cursor.num_consumed :]
        guess = guess_within(cursor, 100, 16).token_ids
        right = next(
            (i for i, (a, b) in enumerate(zip(guess, rest, strict=False)) if a != b), min(len(guess), len(rest))
        )
        count = min(right + 1, len(rest))
        assert all(map(cursor.advance, rest[:count]))
        remember(cursor, count)
        num_steps += 1
    return num_steps


def test_the_second_text_of_a_kind_takes_fewer_steps(constraint: Constraint) -> None:
    texts = [{"age": age, "tags": ["active"], "total": age} for age in range(10, 16)]
    steps = [num_steps(constraint, encoded(constraint, json.dumps(text, separators=(",", ":")))) for text in texts]
    assert max(steps[1:]) < steps[0]


@pytest.mark.parametrize("seed", range(8))
def test_every_guess_is_allowed_and_leaves_enough_to_complete_the_text(constraint: Constraint, seed: int) -> None:
    source = random.Random(seed)
    for _ in range(12):
        cursor, remaining = constraint.cursor(), constraint.min_tokens() + source.randrange(30)
        while remaining and not cursor.must_stop and not cursor.is_finished:
            limit = source.randrange(6)
            guess = guess_within(cursor, remaining, limit).token_ids
            assert len(guess) <= limit
            ahead = cursor.fork()
            for index, token_id in enumerate(guess):
                assert token_id in allowed_ids(ahead.row_within(remaining - index))
                assert ahead.advance(token_id)
            token_id = source.choice(allowed_ids(cursor.row_within(remaining)))
            assert cursor.advance(token_id)
            remember(cursor, 1)
            remaining -= 1
        assert cursor.is_accepting


@pytest.mark.parametrize("make", [sentencepiece_vocabulary, byte_level_vocabulary])
def test_a_first_guess_is_the_draft_or_goes_on_after_it(make: Callable[[], Vocabulary]) -> None:
    compiler, source = Compiler(make()), random.Random(4)
    num_drafts = num_longer = 0
    for _ in range(30):
        names = source.sample(WORDS.split(), 4)
        value = {name: source.choice(["active", 12, True]) for name in names}
        schema = {"type": "object", "properties": {name: {} for name in names}, "required": names}
        schema["properties"] = {name: {"const": value[name]} if value[name] == 12 else {} for name in names}
        cursor = compiler.json_schema(schema).cursor()
        for token_id in encoded(cursor.constraint, json.dumps(value, separators=(",", ":"))):
            draft, guess = forced_tokens(cursor), guess_within(cursor, 1000, 1000).token_ids
            assert list(guess[: len(draft)]) == draft
            num_drafts += bool(draft)
            num_longer += len(guess) > len(draft)
            assert cursor.advance(token_id)
    assert num_drafts > 100 and num_longer > 30


def test_inside_free_text_nothing_is_guessed() -> None:
    cursor = Compiler(BYTES).json_schema({"type": "string"}).cursor()
    for byte in b'"aaaaaaaaaaaaaaaa':
        assert cursor.advance(byte)
        remember(cursor, 1)
    assert not guess_within(cursor, 100, 16).token_ids


def test_the_end_token_is_never_guessed_and_nothing_beyond_it() -> None:
    constraint = Compiler(BYTES).regex("ab*")
    for _ in range(3):
        cursor = constraint.cursor()
        assert cursor.advance(ord("a")) and cursor.advance(256)
        remember(cursor, 2)
    assert not guess_within(cursor, 9, 9).token_ids
    cursor.rollback(1)
    assert not guess_within(cursor, 9, 9).token_ids


def test_a_habit_is_given_up_once_it_is_refuted() -> None:
    habits = Habits()
    habits.learn(7, 1, 8)
    assert habits.guess(7) == (1, False)
    habits.learn(7, 1, 8)
    assert habits.guess(7) == (1, True)
    habits.learn(7, 2, 9)
    assert habits.guess(7) == (-1, False) and habits.contradicts(7, 2)
    habits.learn(7, 2, 9)
    habits.learn(7, 2, 9)
    assert habits.guess(7) == (2, False) and not habits.contradicts(7, 2)
    habits.learn(7, 2, 7)
    habits.learn(7, 2, 9)
    assert habits.guess(7) == (-1, False) and not habits.contradicts(7, 1)


def test_habits_of_one_cohort_are_not_seen_by_another() -> None:
    constraint = Compiler(BYTES).regex("[ab]{9}")
    ours, theirs = constraint.cursor("ours"), constraint.cursor("theirs")
    assert all(map(ours.advance, b"abba"))
    remember(ours, 4)
    assert guess_within(constraint.cursor("ours"), 9, 9).token_ids == list(b"abba")
    assert not guess_within(theirs, 9, 9).token_ids and not guess_within(constraint.cursor(), 9, 9).token_ids
    fork = constraint.cursor("ours").fork()
    assert guess_within(fork, 9, 9).token_ids == list(b"abba")


def test_cohorts_are_few_and_the_oldest_are_forgotten() -> None:
    cohorts = Cohorts()
    for number in range(3 * MAX_COHORTS):
        cohorts.habits_of(str(number)).learn(1, number, 2)
    assert cohorts.habits_of(str(number)).guess(1) == (number, False)
    assert cohorts.habits_of("0").guess(1) == (-1, False)
    assert cohorts.num_bytes <= 200 * MAX_COHORTS


def test_a_fork_makes_habits_of_what_it_took_where_it_stood() -> None:
    constraint = Compiler(BYTES).regex("[ab][ab][ab]")
    cursor = constraint.cursor()
    assert cursor.advance(ord("a"))
    fork = cursor.fork()
    assert fork.advance(ord("b"))
    remember(fork, 9)
    assert not guess_within(constraint.cursor(), 9, 9).token_ids
    assert guess_within(cursor, 9, 9).token_ids == [ord("b")]


def test_memory_is_bounded() -> None:
    habits = Habits()
    for state in range(1, 3 * MAX_KEPT):
        habits.learn(state, 5, state + 1)
    assert habits.num_bytes <= 200 * MAX_KEPT
    assert habits.guess(3 * MAX_KEPT - 1) == (5, False)
