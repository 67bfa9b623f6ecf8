"""A constraint's tables against its cursor: the same tokens, the same ends, at every state that a walk meets."""

from __future__ import annotations

import random

import numpy as np
import pytest

from phloem.fsm import Compiler, Constraint, FlatAutomaton, Vocabulary, flatten

from .vocabularies import BYTES, allowed_ids, mixed_vocabulary

MIXED = mixed_vocabulary(700, seed=11)
LETTERS = Vocabulary([b"a", b"ab", b"abc", b"b", b"bc", b"c", b"", b""], [7])  # most bytes are no token
PATTERNS = [
    "a", "ab|cd", "[ab]{3,5}", "(a|b)*abb", r"\d{4}-\d\d-\d\d", r"-?(0|[1-9]\d*)(\.\d+)?", "yes|no|maybe", "(abc)*",
    r"[^\n]{0,12}", r'"([^"\\]|\\["\\n])*"', "[а-я ]{1,20}", "é|中|😀", ".", "(?i)hello", r"(\d{1,3}\.){3}\d{1,3}", "",
]  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}, "ok": {"type": "boolean"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def step(flat: FlatAutomaton, state: int, token: bytes) -> int:
    """The state after a token; a token without bytes ends the text."""
    for byte in token:
        state = int(flat.table[state + int(flat.classes[byte])])
    return state if token else 0


def check_walks(constraint: Constraint, num_walks: int = 8, max_tokens: int = 25) -> None:
    flat, vocabulary = flatten(constraint), constraint.vocabulary
    assert flat is not None
    assert flat.table.shape == (flat.num_states * flat.width,)
    rng = random.Random(flat.num_states)
    for _ in range(num_walks):
        cursor, state = constraint.cursor(), flat.start
        for _ in range(max_tokens):
            assert flat.states[state // flat.width] == cursor.state
            row = flat.rows[flat.table[state]]
            assert np.array_equal(row, cursor.row())
            assert np.array_equal(row, cursor.row_within(flat.worst + 1))
            refused = rng.randrange(vocabulary.size)
            if refused not in allowed_ids(row) and not cursor.fork().advance(refused):
                assert step(flat, state, vocabulary.tokens[refused]) == 0
            token_id = rng.choice(allowed_ids(row))
            assert cursor.advance(token_id)
            state = step(flat, state, vocabulary.tokens[token_id])
            if cursor.is_finished:
                break
        if cursor.is_finished:
            assert state == 0 and not flat.rows[flat.table[0]].any()


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("vocabulary", [BYTES, MIXED], ids=["bytes", "mixed"])
def test_regexes(pattern: str, vocabulary: Vocabulary) -> None:
    check_walks(Compiler(vocabulary).regex(pattern))


@pytest.mark.parametrize("pattern", ["(abc)*", "a(b|bc)*", "[abc]{1,4}"])
def test_vocabularies_that_lack_bytes(pattern: str) -> None:
    check_walks(Compiler(LETTERS).regex(pattern))


def test_a_schema() -> None:
    check_walks(Compiler(MIXED).json_schema(SCHEMA), num_walks=5, max_tokens=60)


def test_what_cannot_be_counted_out_has_no_tables() -> None:
    compiler = Compiler(MIXED)
    assert flatten(compiler.json_value(), max_states=300) is None
    assert flatten(compiler.regex("[ab]{300}"), max_states=300) is None
    assert flatten(compiler.regex("[ab]{298}"), max_states=300) is not None
    assert flatten(compiler.regex("[ab]{20}[cd]{20}"), max_row_bytes=200) is None


def test_states_that_allow_the_same_share_a_row() -> None:
    flat = flatten(Compiler(BYTES).regex("[ab]{1000}"))
    assert flat is not None
    assert flat.num_states == 1002 and len(flat.rows) == 3  # none, a or b, the end token
    assert flat.width == 3
