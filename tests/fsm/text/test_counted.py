"""Counted texts against the product of the same automata: masks bit for bit, budgets, bytes."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage
from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.fsm.network.expression import Embed, Expression, Grammar, Literal, Repeat, Sequence
from phloem.fsm.regex.regex import regex_to_dfa
from phloem.fsm.text.counted import counted
from phloem.fsm.text.dfa import of_length
from phloem.fsm.text.json_strings import JsonStrings

TOKENS = [
    b"", *(bytes([byte]) for byte in range(256)), b"ab", b"ba", b"aaa", b"aabb", b'a"', b'"a', b'b",', b"\xc3\xa9",
    b"\xa9a", b"\\n", b'\\"', b"u0", b"001", b"aaaaaaaa", b'abababab",', b"bb",
]  # fmt: skip
COMPILER = Compiler(Vocabulary(TOKENS, [0]))
PATTERNS = [
    "[ab]*", "(ab)*", "a*b?", "(aab)*|b+", "a{3}|(bb)+", "(aaa|aaaaa)*", "[^a]*", "é*(ab|é)", "a|b*", "", "(ab\n)*",
    "(a|bb|abab)*b",
]  # fmt: skip


def constraint(text: Expression, turns: int) -> Constraint:
    item = Sequence((text, Literal(b",b")))
    return COMPILER.from_grammar(Grammar({"s": Repeat(item, 0, turns) if turns else text}, "s"))


def tokens_of(row: np.ndarray) -> list[int]:
    return [token for token in range(len(TOKENS)) if row[token >> 5] >> (token & 31) & 1]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(PATTERNS),
    st.integers(0, 7),
    st.one_of(st.none(), st.integers(0, 30)),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 10**6),
)
def test_counting_outside_the_automaton_is_the_product(
    pattern: str, minimum: int, extra: int | None, quoted: bool, turns: int, seed: int
) -> None:
    maximum = None if extra is None else minimum + extra - 1
    texts = regex_to_dfa(pattern)
    product = texts.intersect(of_length(minimum, maximum))
    separate = counted(JsonStrings(texts) if quoted else texts, minimum, maximum)
    assert separate is not None
    assert separate.is_empty() == product.is_empty()
    if product.is_empty():
        return
    one = constraint(Embed(separate), turns).cursor()
    other = constraint(Embed(JsonStrings(product) if quoted else product), turns).cursor()
    rng = random.Random(seed)
    for _ in range(20):
        allowed = tokens_of(one.row())
        assert allowed == tokens_of(other.row())
        assert one.is_accepting == other.is_accepting
        budget = max(one.min_tokens_to_accept(), 1)
        within = one.row_within(budget)
        assert set(tokens_of(within)) <= set(allowed) and tokens_of(within)
        for token in tokens_of(within)[1 if within[0] & 1 else 0 :]:
            fork = one.fork()
            assert fork.advance(token) and fork.min_tokens_to_accept() < budget
        if allowed in ([0], []):
            break
        token = rng.choice([token for token in allowed if token])
        assert one.advance(token) and other.advance(token)


@pytest.mark.parametrize(
    ("schema", "length", "text"),
    [
        ({"pattern": "^[a-z]+$", "maxLength": 100_000}, 100_000, "a"),
        ({"pattern": "^(?:ab)+$", "minLength": 60_001, "maxLength": 60_003}, 60_002, "ab"),
        ({"format": "uri", "maxLength": 65_535}, 65_535, "a:"),
        ({"maxLength": 70_000}, 70_000, "é"),
    ],
)
def test_long_bounds_hold_to_the_character(schema: dict[str, object], length: int, text: str) -> None:
    made = COMPILER.json_schema({"type": "string", **schema})

    def takes(count: int) -> bool:
        value = "a:" + "b" * (count - 2) if text == "a:" else (text * count)[:count]
        state = made.automaton.advance_bytes(made.automaton.start, json.dumps(value, ensure_ascii=False).encode())
        return made.automaton.is_accepting(state)

    assert takes(length)
    assert not takes(length + 1) and not takes(length + 2)


def test_lengths_that_never_fit_are_empty_and_lengths_beyond_reason_too_large() -> None:
    with pytest.raises(EmptyLanguage):
        COMPILER.json_schema({"type": "string", "format": "base64", "minLength": 40_001, "maxLength": 40_003})
    for schema in ({"minLength": 10**9}, {"minItems": 10**9}, {"minItems": 2**40}, {"minLength": 10**30}):
        with pytest.raises(ConstraintTooLarge):
            COMPILER.json_schema({"type": ["string" if "minLength" in schema else "array"], **schema})
    assert COMPILER.json_schema({"type": "string", "maxLength": 10**30})
    assert COMPILER.json_schema({"type": "array", "maxItems": 10**30})
