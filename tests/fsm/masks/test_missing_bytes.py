"""Vocabularies that lack bytes: a constraint is refused by name, or no mask leads into a dead end.

The truth is found by going everywhere: through all states of the same constraint over all bytes, token by token.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintError
from phloem.fsm import Compiler, Constraint, Vocabulary
from phloem.fsm.network.expression import Expression, Grammar

from ..automaton.test_automaton import RULES, expressions
from ..vocabularies import BYTES, allowed_ids

EVERY_BYTE = Compiler(BYTES)
MOST_STATES = 3000
CHARACTERS = ["a", "b", '"', "é", "ü", "ߐ", "中", "\U00010000", "\U00040000"]
ALPHABET = sorted({*"".join(CHARACTERS).encode(), *b"c17,:[]{}\\ntrue", 0x80, 0xBF, 0xF1, 0xF2})
Compile = Callable[[Compiler], Constraint]


def characters(few: str) -> st.SearchStrategy[str]:
    """A character, or a class of some."""
    some = st.lists(st.sampled_from(few), min_size=1, max_size=4).map("".join)
    return st.sampled_from(few) | some.map(lambda found: f"[{found}]") | some.map(lambda found: f"[^{found}]")


def larger(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.tuples(inner, inner)
    return (
        pairs.map("".join)
        | pairs.map(lambda pair: f"({pair[0]}|{pair[1]})")
        | st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        )
    )


PATTERNS = st.recursive(characters("".join(CHARACTERS)), larger, max_leaves=6)
STRINGS: st.SearchStrategy[dict[str, Any]] = st.builds(
    lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more},
    st.integers(0, 3),
    st.integers(0, 3),
) | PATTERNS.map(lambda pattern: {"type": "string", "pattern": f"^({pattern})$", "maxLength": 4})
VALUES = (
    st.lists(st.sampled_from([*CHARACTERS, 1, 17, True, None]), min_size=1, max_size=3).map(
        lambda found: {"enum": found}
    )
    | st.just({"type": "integer", "minimum": 7, "maximum": 112})
    | STRINGS
)


def larger_schema(value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "b", "é"])
    objects = st.builds(
        lambda properties, required: {
            "type": "object",
            "properties": properties,
            "required": sorted(required & properties.keys()),
            "additionalProperties": False,
        },
        st.dictionaries(names, value, min_size=1, max_size=3),
        st.sets(names),
    )
    return objects | st.builds(
        lambda items, most: {"type": "array", "items": items, "maxItems": most}, value, st.integers(1, 3)
    )


SCHEMAS = st.recursive(VALUES, larger_schema, max_leaves=4)


@st.composite
def vocabularies(draw: st.DrawFn) -> Vocabulary:
    """Some bytes, and pieces of texts, which may end within a character."""
    missing = draw(st.sets(st.sampled_from(ALPHABET), max_size=3))
    pieces = st.lists(st.sampled_from([*CHARACTERS, '":', '"}', ',"', "17", "true"]), min_size=1, max_size=3)
    cut = st.tuples(pieces.map("".join).map(str.encode), st.integers(0, 2), st.integers(0, 2))
    longer = draw(st.lists(cut.map(lambda found: found[0][found[1] : len(found[0]) - found[2]]), max_size=6))
    tokens = {bytes((byte,)) for byte in ALPHABET if byte not in missing} | {*longer} - {b""}
    return Vocabulary([*sorted(tokens), b""], [len(tokens)])


class Judge:
    """The states of a constraint over all bytes that tokens lead to, and how many more tokens lead to an end."""

    def __init__(self, constraint: Constraint, tokens: list[bytes]) -> None:
        self.automaton = automaton = constraint.automaton
        before, pending = {automaton.start: set[int]()}, deque([automaton.start])
        while pending and len(before) <= MOST_STATES:
            state = pending.popleft()
            for token in tokens:
                target = automaton.advance_bytes(state, token)
                if target and target not in before:
                    before[target] = set()
                    pending.append(target)
                if target:
                    before[target].add(state)
        self.has_seen_all = not pending
        self.steps = {state: 0 for state in before if automaton.is_accepting(state)}
        found = deque(self.steps)
        while found:
            state = found.popleft()
            for earlier in before[state] - self.steps.keys():
                self.steps[earlier] = self.steps[state] + 1
                found.append(earlier)
        self.has_dead_end = len(self.steps) < len(before)


def check(compile_: Compile, vocabulary: Vocabulary, rng: random.Random) -> None:
    tokens = [token for token in vocabulary.tokens if token]
    try:
        judge = Judge(compile_(EVERY_BYTE), tokens)
    except ConstraintError:
        return  # whatever the tokens
    if not judge.has_seen_all:
        return
    try:
        constraint = compile_(Compiler(vocabulary))
    except ConstraintError as error:
        assert "no token for" in str(error)
        return
    assert not judge.has_dead_end
    for _ in range(3):
        minimum = constraint.min_tokens()
        assert minimum >= judge.steps[judge.automaton.start]
        remaining, state, cursor = minimum + rng.randrange(8), judge.automaton.start, constraint.cursor()
        while True:
            after = [judge.automaton.advance_bytes(state, token) if token else 0 for token in vocabulary.tokens]
            expected = [token_id for token_id, target in enumerate(after) if target]
            eos = list(vocabulary.eos_ids) if judge.automaton.is_accepting(state) else []
            assert allowed_ids(cursor.row()) == expected + eos
            within = allowed_ids(cursor.row_within(remaining))
            assert within and set(within) <= {*expected, *eos}
            token_id = rng.choice(within)
            assert cursor.advance(token_id)
            if cursor.is_finished:
                break
            remaining, state = remaining - 1, after[token_id]
            assert judge.steps[state] <= cursor.min_tokens_to_accept() <= remaining


@settings(deadline=None, max_examples=150)
@given(PATTERNS, vocabularies(), st.randoms(use_true_random=False))
def test_every_walk_under_a_regex_ends(pattern: str, vocabulary: Vocabulary, rng: random.Random) -> None:
    check(lambda compiler: compiler.regex(pattern), vocabulary, rng)


@settings(deadline=None, max_examples=100)
@given(SCHEMAS, st.sampled_from(["schema", "any"]), vocabularies(), st.randoms(use_true_random=False))
def test_every_walk_under_a_schema_ends(
    schema: Any, key_order: Any, vocabulary: Vocabulary, rng: random.Random
) -> None:
    check(lambda compiler: compiler.json_schema(schema, key_order=key_order), vocabulary, rng)


def without(missing: bytes, *others: bytes) -> Vocabulary:
    """All bytes but some, and other tokens."""
    tokens = [bytes((byte,)) for byte in range(256) if byte not in missing]
    return Vocabulary([*tokens, *others, b""], [len(tokens) + len(others)])


SPARSE = without(b"c\xff", b"ab", b"bc", b"xy", b"xyx", b"!x", "é".encode(), b"cc", b"bcd")


@settings(deadline=None, max_examples=120)
@given(expressions, st.randoms(use_true_random=False))
def test_every_walk_under_an_expression_ends(expression: Expression, rng: random.Random) -> None:
    grammar = Grammar({**RULES, "start": expression}, "start")
    check(lambda compiler: compiler.from_grammar(grammar), SPARSE, rng)


RARE = bytes((0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100), 0x04, 0x06, 0x13, 0x14, 0x16, 0x1D))
PUBLISHED = without(RARE)
"""The bytes that SmolLM2's vocabulary has: not those of control characters and of planes 4 to 11."""


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"properties": {"a": {"type": "string", "maxLength": 9, "pattern": "^\\S*$"}, "b": {"enum": ["é", 1]}}},
        {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 2},
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 3},
    ],
    ids=str,
)
def test_bytes_of_rare_characters_are_not_missed(schema: Any) -> None:
    constraint, whole = Compiler(PUBLISHED).json_schema(schema), EVERY_BYTE.json_schema(schema)
    shared = {byte: PUBLISHED.ids[bytes((byte,))] for byte in range(256) if bytes((byte,)) in PUBLISHED.ids}
    for seed in range(8):
        rng, remaining = random.Random(seed), constraint.min_tokens() + 5 * seed
        cursor, other = constraint.cursor(), whole.cursor()
        while not cursor.is_accepting:
            row = set(allowed_ids(cursor.row()))
            assert row - {*PUBLISHED.eos_ids} == {shared[b] for b in allowed_ids(other.row()) if b in shared}
            token_id = rng.choice(allowed_ids(cursor.row_within(remaining)))
            assert cursor.advance(token_id) and other.advance(PUBLISHED.tokens[token_id][0])
            remaining -= 1
        assert other.is_accepting


@pytest.mark.parametrize(
    ("vocabulary", "compile_", "bytes_"),
    [
        (without(b"}"), lambda compiler: compiler.json_object(), r"'\}'"),
        (without(b"}", b'"}'), lambda compiler: compiler.json_object(), r"'\}'"),
        (without("é".encode(), "é".encode()), lambda compiler: compiler.choice(["é"]), "the byte 0xA9, the byte 0xC3"),
        (without(bytes(range(0x80, 0xC0))), lambda compiler: compiler.regex("[^a]*"), "0x84 and 59 others"),
        (PUBLISHED, lambda compiler: compiler.regex("é|\U00040000b"), "the byte 0xF1"),
        (PUBLISHED, lambda compiler: compiler.regex("\x04|ab"), "the byte 0x04"),
        (without(b"b"), lambda compiler: compiler.json_schema({"enum": ["b", 1]}, key_order="any"), "'b'"),
    ],
)  # fmt: skip
def test_a_constraint_that_needs_missing_bytes_is_refused_by_name(
    vocabulary: Vocabulary, compile_: Compile, bytes_: str
) -> None:
    with pytest.raises(ConstraintError, match=f"has no token for: .*{bytes_}; leave the characters out"):
        compile_(Compiler(vocabulary))


@pytest.mark.parametrize(
    ("schema", "missing"),
    [
        ({"patternProperties": {"^[é\U00040000]$": {"const": 1}}, "additionalProperties": False}, RARE),
        ({"patternProperties": {"^[ab]$": {"const": 1}}, "additionalProperties": False}, b"b"),
        ({"items": {"type": "string", "pattern": "^[ab]$"}, "uniqueItems": True, "minItems": 2}, b"b"),
        ({"items": {"type": ["integer", "null"], "minimum": 0, "maximum": 9}, "uniqueItems": True}, b"7"),
    ],
)  # fmt: skip
def test_what_must_differ_and_may_run_out_is_refused(schema: Any, missing: bytes) -> None:
    with pytest.raises(ConstraintError, match="has no token for"):
        Compiler(without(missing)).json_schema(schema)


def test_special_tokens_are_no_missing_bytes() -> None:
    tokens = [*PUBLISHED.tokens, b"", b""]
    call, end = len(tokens) - 2, len(tokens) - 1
    vocabulary = Vocabulary(tokens, PUBLISHED.eos_ids, special_ids={"<call>": call, "<end>": end})
    tag = {"begin": {"type": "token", "token": "<call>"}, "end": {"type": "token", "token": "<end>"}}
    content = {"type": "json_schema", "json_schema": {"type": "object"}}
    constraint = Compiler(vocabulary).structural_tag({"format": {"type": "tag", "content": content, **tag}})
    cursor = constraint.cursor()
    assert allowed_ids(cursor.row()) == [call]
    for token_id in (call, vocabulary.ids[b"{"], vocabulary.ids[b"}"]):
        assert cursor.advance(token_id)
    assert allowed_ids(cursor.row()) == [end] and cursor.advance(end) and cursor.is_accepting
