"""The constraint engine in XGrammar's words: masks are the engine's own, whatever is rolled back or forked."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable

import jsonschema
import numpy as np
import pydantic
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import phloem as ph
from phloem.faces import allocate_token_bitmask, fill_bitmasks
from phloem.fsm import Constraint, Cursor
from phloem.runtime.models import resolve_model

from ..schemas import random_schemas

VOCABULARY = ph.Vocabulary([*(bytes([byte]) for byte in range(256)), b'{"', b'":', b"true", b"", b"12"], [259])
COMPILER = ph.Compiler(VOCABULARY)
EOS = 259
CONSTRAINTS = [
    COMPILER.regex("(ab|cd){2,5}(ef)?"),
    COMPILER.choice(["yes", "no", "maybe so"]),
    *(COMPILER.json_schema(schema) for schema in random_schemas(seed=3, count=6)),
]


def allowed(bitmask: np.ndarray, row: int = 0) -> list[int]:
    flags = np.unpackbits(bitmask[row].view(np.uint8), bitorder="little")
    return np.flatnonzero(flags[: VOCABULARY.size]).tolist()


def masks_equal(matcher: ph.GrammarMatcher, cursor: Cursor) -> list[int]:
    bitmask = allocate_token_bitmask(1, VOCABULARY.size)
    must_be_applied = matcher.fill_next_token_bitmask(bitmask)
    assert must_be_applied == (len(allowed(bitmask)) < VOCABULARY.size)
    assert np.array_equal(bitmask[0], cursor.row())
    return allowed(bitmask)


@given(st.sampled_from(CONSTRAINTS), st.integers(0, 1000))
def test_random_walks_with_roll_backs_and_forks(constraint: Constraint, seed: int) -> None:
    source = random.Random(seed)
    matcher, taken = ph.GrammarMatcher(constraint), list[int]()

    def fresh() -> Cursor:
        cursor = constraint.cursor()
        assert all(map(cursor.advance, taken))
        return cursor

    for _ in range(40):
        tokens = masks_equal(matcher, fresh())
        what = source.random()
        if what < 0.1 and taken:
            count = source.randrange(len(taken) + 1)
            matcher.rollback(count)
            del taken[len(taken) - count :]
        elif what < 0.2:
            other = matcher.fork()
            assert other.num_tokens == len(taken)
            assert masks_equal(other, fresh()) == tokens
            if tokens:
                assert other.accept_token(source.choice(tokens))
            masks_equal(matcher, fresh())
        elif what < 0.3:
            refused = source.choice([t for t in range(VOCABULARY.size) if t not in tokens] or [VOCABULARY.size])
            assert not matcher.accept_token(refused)
        elif tokens:
            taken.append(source.choice(tokens))
            assert matcher.accept_token(taken[-1])
        assert matcher.is_terminated() == (bool(taken) and taken[-1] == EOS)
    matcher.reset()
    taken.clear()
    masks_equal(matcher, fresh())


@pytest.mark.parametrize("schema", random_schemas(seed=5, count=12))
def test_within_a_budget_every_text_ends_valid(schema: dict[str, object]) -> None:
    constraint, source = COMPILER.json_schema(schema), random.Random(1)
    budget = constraint.min_tokens() + 5
    matcher, bitmask, text = ph.GrammarMatcher(constraint, max_tokens=budget), allocate_token_bitmask(1, 261), b""
    while not matcher.is_terminated():
        matcher.fill_next_token_bitmask(bitmask)
        token = source.choice(allowed(bitmask))
        assert matcher.accept_token(token)
        text += VOCABULARY.tokens[token]
    assert matcher.num_tokens <= budget + 1
    jsonschema.validate(json.loads(text), schema)


def test_too_small_a_budget_is_refused() -> None:
    constraint = COMPILER.regex("a{20}")
    with pytest.raises(ph.ConfigError, match="max_tokens: 19 is too little for any text; give at least 20"):
        ph.GrammarMatcher(constraint, max_tokens=19)


def test_forced_text_is_found() -> None:
    matcher = ph.GrammarMatcher(COMPILER.regex("x(über|übel)"))
    assert matcher.accept_token(ord("x"))
    assert matcher.find_jump_forward_string() == "übe"


def test_forced_tokens_spell_the_forced_text() -> None:
    vocabulary = ph.Vocabulary.from_folder(resolve_model("nano"))
    matcher = ph.GrammarMatcher(ph.Compiler(vocabulary).regex("The shop is in (Lyon|Rome)"))
    text, tokens = matcher.find_jump_forward_string(), matcher.find_jump_forward_tokens()
    assert text == "The shop is in " and tokens
    assert text.encode().startswith(b"".join(vocabulary.tokens[token_id] for token_id in tokens))
    assert all(map(matcher.accept_token, tokens))


def test_a_batch_is_filled_into_a_callers_tensor() -> None:
    bitmask = torch.zeros(3, 9, dtype=torch.int32)
    matchers = [ph.GrammarMatcher(constraint) for constraint in CONSTRAINTS[:3]]
    fill_bitmasks(matchers, bitmask)
    for row, constraint in enumerate(CONSTRAINTS[:3]):
        assert np.array_equal(bitmask[row].numpy(), constraint.cursor().row())


@pytest.mark.parametrize(
    ("bitmask", "message"),
    [
        (np.zeros((1, 9), np.int64), "expected int32"),
        (np.zeros(9, np.int32), "expected int32"),
        (np.zeros((1, 3), np.int32), "rows of 3 words; this vocabulary has 9"),
    ],
)
def test_other_memory_is_refused(bitmask: np.ndarray, message: str) -> None:
    with pytest.raises(ph.ConfigError, match=message):
        ph.GrammarMatcher(CONSTRAINTS[0]).fill_next_token_bitmask(bitmask)


READ_ONLY = np.broadcast_to(np.int32(0), (1, 9))
WRONG: list[tuple[Callable[[ph.GrammarMatcher], object], str]] = [
    *[
        (lambda matcher, wrong=wrong: matcher.accept_token(wrong), f"token_id: give a token's id, not {name}")  # type: ignore[misc]
        for wrong, name in (
            ("x", "str"),
            (None, "NoneType"),
            (97.0, "float"),
            (True, "bool"),
            (np.array([97]), "ndarray"),
        )
    ],
    (lambda matcher: matcher.accept_token(torch.tensor(97.0)), "token_id: give a token's id, not Tensor"),  # type: ignore[arg-type]
    (lambda matcher: matcher.rollback(-1), "num_tokens: give how many tokens to take back, 0 or more, not -1"),
    (lambda matcher: matcher.rollback(3), "num_tokens: 3 cannot be taken back; 2 were accepted"),
    (lambda matcher: matcher.rollback(1.5), "num_tokens: give how many tokens to take back, not float"),  # type: ignore[arg-type]
    (lambda matcher: matcher.fill_next_token_bitmask(READ_ONLY), "bitmask: it is read-only"),
    (lambda matcher: matcher.fill_next_token_bitmask(torch.zeros((1, 9), device="meta")), "bitmask: expected int32"),
    (lambda matcher: matcher.fill_next_token_bitmask(torch.zeros((1, 9), requires_grad=True)), "bitmask: expected"),
    (
        lambda matcher: matcher.fill_next_token_bitmask(np.zeros((1, 9), np.int32), "x"),
        "index: give the number of a row",
    ),  # type: ignore[arg-type]
    (lambda matcher: fill_bitmasks(matcher, np.zeros((1, 9), np.int32)), "matchers: give a list of GrammarMatcher"),  # type: ignore[arg-type]
    (lambda _: fill_bitmasks([1], np.zeros((1, 9), np.int32)), "matchers: give a list of GrammarMatcher"),  # type: ignore[list-item]
    (lambda _: ph.GrammarMatcher(CONSTRAINTS[0], max_tokens="9"), "max_tokens: give a number of tokens, not str"),  # type: ignore[arg-type]
    (lambda _: allocate_token_bitmask(-1, 260), "batch_size: give a number of rows, 0 or more, not -1"),
    (lambda _: allocate_token_bitmask(1, 2.5), "vocab_size: give a number of tokens, not float"),  # type: ignore[arg-type]
    (lambda _: allocate_token_bitmask(1 << 62, 260), "rows of 9 words are too many"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_wrong_arguments_are_named_and_change_nothing(
    call: Callable[[ph.GrammarMatcher], object], message: str
) -> None:
    matcher = ph.GrammarMatcher(CONSTRAINTS[0])
    assert matcher.accept_token(ord("a")) and matcher.accept_token(ord("b"))
    with pytest.raises(ph.ConfigError, match=re.escape(message)):
        call(matcher)
    assert matcher.num_tokens == 2 and matcher.accept_token(ord("c"))


def test_numbers_of_other_libraries_are_numbers_and_ids_out_of_range_are_not_allowed() -> None:
    matcher = ph.GrammarMatcher(CONSTRAINTS[0], max_tokens=np.int64(12))  # type: ignore[arg-type]
    for token_id in (2**40, 2**70, -1, 260, np.uint64(2**63)):
        assert not matcher.accept_token(token_id)
    assert matcher.accept_token(np.uint8(97)) and matcher.accept_token(torch.tensor(98))  # type: ignore[arg-type]
    matcher.rollback(np.int32(1))  # type: ignore[arg-type]
    matcher.fill_next_token_bitmask(bitmask := allocate_token_bitmask(np.int64(2), np.int64(260)), np.int64(-1))  # type: ignore[arg-type]
    assert allowed(bitmask, 1) == [ord("b")]


def test_a_row_that_is_not_there_is_named() -> None:
    with pytest.raises(ph.ConfigError, match="bitmask: 1 rows, and none with the index 1"):
        fill_bitmasks([ph.GrammarMatcher(CONSTRAINTS[0])] * 2, np.zeros((1, 9), np.int32))


def test_a_copy_is_a_fork() -> None:
    matcher = ph.GrammarMatcher(COMPILER.regex("[ab]*"), max_tokens=2)
    twin = copy.copy(matcher)
    assert twin.accept_token(VOCABULARY.ids[b"a"]) and (twin.num_tokens, matcher.num_tokens) == (1, 0)


def test_a_twin_within_a_budget_has_the_same_masks() -> None:
    matcher = ph.GrammarMatcher(COMPILER.regex("[ab]*"), max_tokens=2)
    for _ in range(3):
        twin, masks = matcher.fork(), [allocate_token_bitmask(1, VOCABULARY.size) for _ in range(2)]
        assert matcher.fill_next_token_bitmask(masks[0]) == twin.fill_next_token_bitmask(masks[1])
        assert np.array_equal(*masks)
        assert matcher.accept_token(allowed(masks[0])[0])
    assert matcher.is_terminated() and matcher.fork().is_terminated() and not twin.is_terminated()


def test_a_pydantic_class_has_no_keys_beside_its_fields() -> None:
    class Person(pydantic.BaseModel):
        name: str

    closed, opened = COMPILER.json_schema(Person), COMPILER.json_schema(Person.model_json_schema())
    assert [one.accepts(b'{"name":"A","x":1}') for one in (closed, opened)] == [False, True]


def test_what_is_no_constraint_is_refused() -> None:
    with pytest.raises(ph.ConfigError, match=r"constraint: expected what ph\.Compiler.* makes, got str"):
        ph.GrammarMatcher("[a-z]+")  # type: ignore[arg-type]
