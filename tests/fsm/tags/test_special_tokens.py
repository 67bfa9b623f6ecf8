"""Special tokens as marks of calls: not the text of their names; an error says where the two cannot be kept apart."""

from __future__ import annotations

import itertools
import random
import re
from typing import Any

import pytest

from phloem.errors import InvalidStructuralTag
from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.fsm.foresight import forced_bytes

from ..vocabularies import allowed_ids

CALL, ARGUMENTS, DONE = 260, 261, 262
SPECIAL_IDS = {"<s>": 256, "<call>": CALL, "<args>": ARGUMENTS, "</call>": DONE}
MARKED = Vocabulary(
    [*(bytes([b]) for b in range(256)), *[b""] * 7, b"a1", b"<call>", b"b\xff"], [256], None, None, SPECIAL_IDS
)
FREE_TEXT = {"structures": [{"begin": "<f>", "schema": {"type": "integer"}, "end": "</f>"}], "triggers": ["<f"]}
TOKEN_CALLS: dict[str, Any] = {
    "type": "token_triggered_tags",
    "trigger_tokens": ["<call>"],
    "tags": [
        {
            "begin": {"type": "token", "token": "<call>"},
            "content": {
                "type": "sequence",
                "elements": [
                    {"type": "const_string", "value": name},
                    {"type": "token", "token": ARGUMENTS},
                    {"type": "regex", "pattern": pattern},
                ],
            },
            "end": {"type": "token", "token": "</call>"},
        }
        for name, pattern in (("a", "1*"), ("b", "a"))
    ],
}


def takes(constraint: Constraint, token_ids: tuple[int, ...]) -> bool:
    cursor = constraint.cursor()
    return all(map(cursor.advance, token_ids)) and cursor.is_accepting


@pytest.mark.parametrize("at_least_one", [False, True])
@pytest.mark.parametrize("once", [False, True])
def test_special_tokens_mark_calls_as_a_regex_over_them_says(at_least_one: bool, once: bool) -> None:
    form = {**TOKEN_CALLS, "at_least_one": at_least_one, "stop_after_first": once}
    constraint = Compiler(MARKED).structural_tag({"format": form})
    call, free = "C(?:aA1*|bAa)D", "[ab1]*"
    more = "" if once else f"(?:{free}{call})*{free}"
    pattern = f"{call}{more}" if at_least_one else f"{free}(?:{call}{more})?"
    letters = {"C": CALL, "A": ARGUMENTS, "D": DONE, "a": ord("a"), "b": ord("b"), "1": ord("1")}
    num_taken = 0
    for length in range(7):
        for word in itertools.product(letters, repeat=length):
            expected = re.fullmatch(pattern, "".join(word)) is not None
            assert takes(constraint, tuple(letters[letter] for letter in word)) == expected, word
            num_taken += expected
    assert num_taken > 3


def test_only_the_token_itself_is_a_special_token() -> None:
    compiler = Compiler(MARKED)
    cursor = compiler.structural_tag({"format": TOKEN_CALLS}).cursor()
    for token_id in b"<call>":
        assert cursor.advance(token_id), "its name is text like any other"
    assert set(allowed_ids(cursor.row())) >= {CALL, 256, 264, ord("a")}
    assert not {ARGUMENTS, DONE, 0xFF, 265} & set(allowed_ids(cursor.row()))
    assert cursor.advance(CALL)
    assert set(allowed_ids(cursor.row())) == {ord("a"), ord("b")}
    assert cursor.advance(ord("b")) and forced_bytes(cursor) == b"" and allowed_ids(cursor.row()) == [ARGUMENTS]
    assert cursor.advance(ARGUMENTS) and forced_bytes(cursor) == b"a"
    assert cursor.min_tokens_to_accept() == 2
    for other in (compiler.regex(r"[\s\S]*"), compiler.json_value(), compiler.structural_tag(FREE_TEXT)):
        assert not {CALL, ARGUMENTS, DONE, 0xFF} & set(allowed_ids(other.cursor().row()))


def test_a_text_within_its_budget_closes_its_calls() -> None:
    constraint, source = Compiler(MARKED).structural_tag({"format": TOKEN_CALLS}), random.Random(2)
    for _ in range(60):
        cursor, remaining = constraint.cursor(), source.randrange(14)
        while remaining:
            choices = [CALL, *allowed_ids(cursor.row_within(remaining))]
            token_id = source.choice([t for t in choices if t in allowed_ids(cursor.row_within(remaining))])
            if not cursor.advance(token_id) or cursor.is_finished:
                break
            remaining -= 1
        assert cursor.is_accepting


def test_tokens_can_be_dispatched_on_and_stand_alone() -> None:
    form = {
        "type": "token_dispatch",
        "rules": [[CALL, {"type": "regex", "pattern": "1"}]],
        "exclude_tokens": ["</call>"],
    }
    constraint = Compiler(MARKED).structural_tag({"format": form})
    assert takes(constraint, (ord("a"), CALL, ord("1"), CALL, ord("1"), ord("b")))
    assert not takes(constraint, (CALL, ord("a"))) and not takes(constraint, (DONE,))
    alone = Compiler(MARKED).structural_tag({"format": {"type": "token", "token": "<args>"}})
    assert takes(alone, (ARGUMENTS,)) and not takes(alone, ()) and not takes(alone, tuple(b"<args>"))


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"trigger_tokens": ["<nothing>"]}, "/format/trigger_tokens/0"),
        ({"trigger_tokens": ["<s>"]}, "/format/trigger_tokens/0"),
        ({"trigger_tokens": [True]}, "/format/trigger_tokens/0"),
        ({"trigger_tokens": [ord("a")]}, "/format/trigger_tokens/0"),
        ({"trigger_tokens": ["</call>"]}, "/format/tags/0/begin"),
        ({"exclude_tokens": ["a"]}, "/format/exclude_tokens/0"),
        (
            {"tags": [{"begin": {"type": "regex"}, "content": {"type": "any_text"}, "end": ""}]},
            "/format/tags/0/begin/type",
        ),
        ({"tags": [{"begin": "<call>", "content": {"type": "any_text"}, "end": ""}]}, "/format/tags/0/begin"),
        ({"type": "any_tokens", "max_tokens": 4}, "/format/max_tokens"),
        ({"type": "any_tokens", "exclude_tokens": ["<call>", "a"]}, "/format/exclude_tokens/1"),
        ({"type": "exclude_token", "exclude_tokens": ["<call>"]}, "/format/type"),
    ],
)
def test_what_cannot_be_a_token_or_counts_tokens_is_refused_at_its_place(change: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidStructuralTag) as caught:
        Compiler(MARKED).structural_tag({"format": {**TOKEN_CALLS, **change}})
    assert caught.value.pointer == pointer


def test_any_tokens_are_text_without_special_tokens() -> None:
    form = {
        "type": "sequence",
        "elements": [
            {"type": "any_tokens", "exclude_tokens": ["</call>", CALL]},
            {"type": "token", "token": "</call>"},
        ],
    }
    constraint = Compiler(MARKED).structural_tag({"format": form})
    assert takes(constraint, (ord("a"), ord("<"), DONE)) and takes(constraint, (DONE,))
    assert not takes(constraint, (ord("a"), CALL, DONE)) and not takes(constraint, (ord("a"),))
