"""Cursors: moving, taking back, forking, ending, and the budget that always suffices."""

from __future__ import annotations

import copy
import json
import random
import re

import numpy as np
import pytest

from phloem.fsm import Compiler, Constraint, Cursor
from phloem.fsm.foresight import forced_bytes, forced_tokens

from .vocabularies import BYTES, allowed_ids, mixed_vocabulary, random_walk

VOCABULARY = mixed_vocabulary(2500, seed=3)
COMPILER = Compiler(VOCABULARY)
WALKED = [
    "a", "ab|cd", "[ab]{3,5}", "a*b", "(a|b)*abb", r"\d{4}-\d\d-\d\d",
    r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", "yes|no|maybe", r"\w+@\w+\.(com|org)", r"[^\n]{0,40}",
    r"(\d{1,3}\.){3}\d{1,3}", "[0-9a-f]{8}-[0-9a-f]{4}", "#([0-9a-f]{3}|[0-9a-f]{6})", r'"([^"\\]|\\["\\n])*"',
    r"\[(\d+(, \d+)*)?\]", r"(- [^\n]{1,30}\n){1,3}", r"\p{L}+( \p{L}+)*", "[а-я ]{1,20}", "(?i)hello",
    "a?b?c?d?", "(ab?){2,4}", "x+y+z+", "(a(b(c)?)?)?", r"https?://[a-z]+(\.[a-z]+)+(/[a-z]*)*",
    r"[A-Z]{2}\d{2}[A-Z0-9]{4,8}", "(one|two|three)( (one|two|three))*", r"\s*\w+\s*", "(?!foo)[a-z]{3}",
    r"(?=.*\d)[a-z\d]{2,6}", r"\bword\b", "a{0,1000}", "(Mon|Tue|Wed)day", r"\$\d{1,3}(,\d{3})*\.\d\d",
    r"([01]\d|2[0-3]):[0-5]\d", "[^a]", ".", "(.|\n)*", "é|中|😀", "[é-ü]+", "",
    r'\{\"a\":(true|false),\"b\":\d+\}', "(aa|aaa)*", "a*a*a*", "(a|b|ab)*c", "[a-z]+(-[a-z]+)*",
    r"\+[1-9]\d{6,14}", "(..)*x", r"\d+(\.\d+){2}(-[a-z]+)?", "[+-]?[01]+", r"(\(\d{3}\) )?\d{3}-\d{4}",
    r"([a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?\.)+[a-z]{2,6}", r"[^,\n]*(,[^,\n]*){3}",
    r"SELECT (\*|[a-z]+(, [a-z]+)*) FROM [a-z]+;", "(?:(?:a{1,3}){1,3}b){1,3}", r"[\w.+-]{1,20}!",
    "(ab|a)(bc|c)?",
]  # fmt: skip


def constraint(pattern: str) -> Constraint:
    return COMPILER.regex(pattern)


@pytest.mark.parametrize("pattern", WALKED)
def test_random_walks_end_in_texts_that_match(pattern: str) -> None:
    oracle = re.compile(pattern if "\\p" not in pattern else r"[^\W\d_]+( [^\W\d_]+)*")
    rng = random.Random(len(pattern))
    compiled = constraint(pattern)
    least = compiled.min_tokens()
    for budget in (least, least + 1, least + 3, least + 30):
        for _ in range(6):
            text, is_complete = random_walk(compiled, rng, budget)
            assert is_complete, text
            assert oracle.fullmatch(text.decode()), text


def json_walk(seed: int, count: int) -> tuple[Cursor, list[int]]:
    rng = random.Random(seed)
    cursor, tokens = COMPILER.json_value().cursor(), []
    while len(tokens) < count:
        choices = [t for t in allowed_ids(cursor.row()) if t not in VOCABULARY.eos_ids]
        if not choices:
            cursor, tokens = COMPILER.json_value().cursor(), []
            continue
        tokens.append(rng.choice(choices))
        assert cursor.advance(tokens[-1])
    return cursor, tokens


def same(a: Cursor, b: Cursor) -> bool:
    return (
        np.array_equal(a.row(), b.row())
        and a.is_accepting == b.is_accepting
        and forced_bytes(a) == forced_bytes(b)
        and a.num_consumed == b.num_consumed
        and a.min_tokens_to_accept() == b.min_tokens_to_accept()
    )


@pytest.mark.parametrize("seed", range(8))
def test_rollback_equals_never_having_gone(seed: int) -> None:
    cursor, tokens = json_walk(seed, 25)
    for keep in (24, 20, 7, 0):
        cursor.rollback(cursor.num_consumed - keep)
        fresh = COMPILER.json_value().cursor()
        assert all(fresh.advance(t) for t in tokens[:keep])
        assert same(cursor, fresh)


@pytest.mark.parametrize("seed", range(8))
def test_forks_are_equal_and_independent(seed: int) -> None:
    cursor, tokens = json_walk(seed, 15)
    fork, twin = cursor.fork(), cursor.fork()
    for token_id in random.Random(seed).sample(range(VOCABULARY.size), 200):
        fork.advance(token_id)
    fork.rollback(fork.num_consumed)
    assert same(cursor, twin) and cursor.num_consumed == len(tokens)


PLACES = {
    "mid-escape": b'{"a":"x\\u00',
    "mid-UTF-8": '{"a":"é😀'.encode()[:-2],
    "inside recursion": b'{"next":{"next":{"next":{"v":[1,[[',
    "inside a number": b"[-12.5e",
}


@pytest.mark.parametrize("place", PLACES)
def test_forking_and_taking_back_anywhere(place: str) -> None:
    """Every prefix is left by a fork that goes another way, and reached again by rolling back."""
    compiled, text = Compiler(BYTES).json_value(), PLACES[place]
    cursor, fresh = compiled.cursor(), [compiled.cursor()]
    forks = []
    for byte in text:
        forks.append(cursor.fork())
        assert cursor.advance(byte)
        fresh.append(compiled.cursor())
        assert all(fresh[-1].advance(b) for b in text[: len(fresh) - 1])
    for length, fork in enumerate(forks):
        assert same(fork, fresh[length])
        assert same(copy.copy(fork), fresh[length])
        choices = [t for t in allowed_ids(fork.row()) if t < 256]
        assert fork.advance(choices[len(choices) // 2])
        fork.rollback(1 + length)
        assert same(fork, fresh[0])
    for length in reversed(range(len(text))):
        cursor.rollback(1)
        assert same(cursor, fresh[length])


def test_a_refused_token_moves_nothing() -> None:
    cursor = constraint("ab").cursor()
    before = cursor.fork()
    for token_id in (-1, VOCABULARY.size, 10**9, ord("b"), VOCABULARY.eos_ids[0], VOCABULARY.size - 2):
        assert not cursor.advance(token_id)
        assert same(cursor, before)


def test_eos_ends_the_text_and_can_be_taken_back() -> None:
    cursor = constraint("a|ab").cursor()
    eos = VOCABULARY.eos_ids[0]
    assert not cursor.is_accepting and not cursor.advance(eos)
    assert cursor.advance(ord("a")) and cursor.is_accepting and cursor.advance(eos)
    assert cursor.is_finished and cursor.is_accepting and cursor.num_consumed == 2
    assert not cursor.row().any() and not cursor.advance(ord("b"))
    assert forced_tokens(cursor) == [] and forced_bytes(cursor) == b""
    assert cursor.min_tokens_to_accept() == 0
    cursor.rollback(1)
    assert not cursor.is_finished and cursor.advance(ord("b"))


def test_rollback_beyond_the_beginning_is_refused() -> None:
    cursor = constraint("ab").cursor()
    cursor.advance(ord("a"))
    for count in (2, -1):
        with pytest.raises(ValueError, match="cannot take back"):
            cursor.rollback(count)
    cursor.rollback(0)
    assert cursor.num_consumed == 1


@pytest.mark.parametrize("seed", range(4))
def test_json_within_any_budget_parses(seed: int) -> None:
    rng = random.Random(seed)
    flexible, spaced = COMPILER.json_object(whitespace="flexible"), COMPILER.json_object(whitespace="spaced")
    for compiled in (COMPILER.json_value(), flexible, spaced):
        for budget in range(compiled.min_tokens(), 40, 3):
            text, is_complete = random_walk(compiled, rng, budget)
            assert is_complete
            json.loads(text)
