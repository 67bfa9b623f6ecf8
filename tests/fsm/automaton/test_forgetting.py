"""Rows of steps may be forgotten at any time: masks and texts are the same with little room for them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from phloem.fsm import Compiler, Constraint, Limits
from phloem.fsm.foresight import forced_bytes

from ..vocabularies import allowed_ids, mixed_vocabulary

VOCABULARY = mixed_vocabulary(4000, seed=7)
WIDE = {
    "type": "object",
    "properties": {
        f"{letter}{letter}_{place}": {"enum": [place, "ab", None]} for place, letter in enumerate("abcdefgh")
    },
    "required": ["aa_0", "cc_2", "hh_7"],
}
NESTED = {
    "type": "object",
    "properties": {"x": {"$ref": "#"}, "y": {"type": "array", "items": {"$ref": "#"}}, "z": {"type": "number"}},
    "additionalProperties": {"type": "string", "maxLength": 9},
}
PATTERN = r"((a|b)[ab]{0,9}c|(ab|ba){1,9}d|[a-d]{3,20}){1,40}"


def constraints(max_bytes: int, source: Any) -> Constraint:
    compiler = Compiler(VOCABULARY, limits=Limits(max_automaton_bytes=max_bytes))
    if isinstance(source, str):
        return compiler.regex(source)
    return compiler.json_schema(source, key_order="any", whitespace="flexible")


def chosen(random_: random.Random, ids: list[int]) -> int:
    """Long tokens and those of punctuation more often, so that walks get around."""
    return max(random_.choices(ids, k=3), key=lambda token: len(VOCABULARY.tokens[token]) + 3 * random_.random())


@pytest.mark.parametrize(
    ("source", "max_bytes"),
    [(WIDE, 128 << 10), (NESTED, 60 << 10), (PATTERN, 400 << 10)],
    ids=["wide", "nested", "pattern"],
)
def test_little_room_for_rows_changes_no_mask_and_no_text(source: Any, max_bytes: int) -> None:
    """The room is about what the states alone need; the rows would need some times as much."""
    roomy, tight = constraints(64 << 20, source), constraints(max_bytes, source)
    random_ = random.Random(5)
    for _ in range(6):
        one, other = roomy.cursor(), tight.cursor()
        remaining = roomy.min_tokens() + 60
        assert tight.min_tokens() + 60 == remaining
        while not one.is_finished:
            row = one.row_within(remaining).copy()
            assert np.array_equal(row, other.row_within(remaining))
            assert np.array_equal(one.row(), other.row())
            assert one.min_tokens_to_accept() == other.min_tokens_to_accept() <= remaining
            assert forced_bytes(one) == forced_bytes(other)
            token_id = chosen(random_, allowed_ids(row))
            assert one.advance(token_id) and other.advance(token_id)
            remaining -= 1
        assert other.is_finished
    assert roomy.automaton.num_forgotten == 0 < tight.automaton.num_forgotten
    assert roomy.automaton.num_bytes > max_bytes


def test_rows_made_in_parts_come_to_an_end_though_steps_are_forgotten() -> None:
    whole, parts = constraints(64 << 20, PATTERN).cursor(), constraints(400 << 10, PATTERN).cursor()
    random_ = random.Random(6)
    while not whole.is_finished and whole.num_consumed < 60:
        row = parts.row_soon(1000, 20)
        while row is None:
            row = parts.row_soon(1000, 20)
        assert np.array_equal(whole.row(), row)
        token_id = chosen(random_, allowed_ids(row))
        assert whole.advance(token_id) and parts.advance(token_id)
    assert parts.constraint.automaton.num_forgotten > 0
