"""Vocabularies that lack bytes: what may come next is exactly what some run of tokens completes.

The truth is found by going everywhere: through all states of the same constraint over all bytes, token by token.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from phloem.errors import EmptyLanguage, UnsupportedSchema
from phloem.fsm import Compiler, Constraint, Vocabulary

from ..vocabularies import BYTES

EVERY_BYTE = Compiler(BYTES)
MOST_STATES = 3000
PRINTABLE = [bytes((byte,)) for byte in range(0x20, 0x7F)]
Compile = Callable[[Compiler], Constraint]

PATTERNS = [
    "[abé\U00040000]{1,3}(c|\U00040000)",
    "[a\U00010000\U00040000]{2}b?",
    "a*b",
    "(ab|ba)*c?",
    "a{2,5}(b|é)+",
    "[^x]{0,3}x",
    "é+|ü{3}",
    '"(a|b)*":(a|"[ab]")',
    "(a{1,3}b?){2,4}c",
    "(a|b)*a(a|b){3}c?",
    "(aé){3}|b",
]
SCHEMAS: list[Any] = [
    {"type": "array", "items": {"enum": [1, "a", "é"]}, "maxItems": 3},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4},
    {"type": "object", "properties": {"a": {"enum": [1, "x"]}, "b": {"type": "null"}}, "additionalProperties": False},
    {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"const": "y"}, "ab": {"enum": ["é", 2]}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"a": {"const": 1}, "b": {"const": "y"}, "c": {"const": True}},
        "minProperties": 2,
        "additionalProperties": False,
    },
    {"type": "string", "pattern": "^(ab|é)*$", "minLength": 3, "maxLength": 9},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "string", "pattern": '^["a]{2}$'},
    {"type": "integer", "minimum": 8, "maximum": 112},
    {"type": "array", "items": {"enum": ["a", "b", 7]}, "uniqueItems": True, "minItems": 2},
]


def vocabulary_of(random_: random.Random, alphabet: bytes, texts: list[bytes]) -> Vocabulary:
    """Some bytes of an alphabet, and pieces of texts."""
    lacking = set(random_.sample(sorted(set(alphabet)), random_.randint(1, min(3, len(set(alphabet))))))
    tokens = {bytes((byte,)) for byte in alphabet if byte not in lacking}
    for _ in range(random_.randint(0, 8)):
        text = random_.choice(texts)
        begin = random_.randrange(len(text))
        tokens.add(text[begin : begin + random_.randint(1, 5)])
    return Vocabulary([*sorted(tokens), b""], [len(tokens)])


def texts_of(constraint: Constraint, random_: random.Random, count: int) -> list[bytes]:
    """Some whole texts."""
    found = []
    for _ in range(count):
        cursor, text, budget = constraint.cursor(), bytearray(), random_.randint(constraint.min_tokens(), 40)
        while not cursor.is_finished:
            ids = ids_of(cursor.row_within(budget - len(text)))
            token_id = random_.choice(ids)
            cursor.advance(token_id)
            text += BYTES.tokens[token_id]
        found.append(bytes(text))
    return [text for text in found if text] or [b"a"]


def ids_of(row: Any) -> list[int]:
    return [index for index in range(32 * len(row)) if row[index >> 5] >> (index & 31) & 1]


class Judge:
    """Which states of a constraint over all bytes some tokens complete, and in how many: found by going everywhere."""

    def __init__(self, constraint: Constraint, vocabulary: Vocabulary) -> None:
        automaton = constraint.automaton
        tokens = [token for token in vocabulary.tokens if token]
        self.automaton, self.start = automaton, automaton.start
        self.is_judged, before, pending = True, {automaton.start: set[int]()}, deque([automaton.start])
        while pending and self.is_judged:
            state = pending.popleft()
            for token in tokens:
                target = automaton.advance_bytes(state, token)
                if target:
                    if target not in before:
                        before[target] = set()
                        pending.append(target)
                    before[target].add(state)
            self.is_judged = len(before) <= MOST_STATES
        self.steps = {state: 0 for state in before if automaton.is_accepting(state)}
        found = deque(self.steps)
        while found:
            state = found.popleft()
            for earlier in before[state]:
                if earlier not in self.steps:
                    self.steps[earlier] = self.steps[state] + 1
                    found.append(earlier)


def check(compile_: Compile, random_: random.Random) -> None:
    whole = compile_(EVERY_BYTE)
    texts = texts_of(whole, random_, 6)
    vocabulary = vocabulary_of(random_, b"".join(texts), texts)
    judge = Judge(whole, vocabulary)
    if not judge.is_judged:
        return
    try:
        constraint = compile_(Compiler(vocabulary))
    except EmptyLanguage:
        assert judge.start not in judge.steps
        return
    assert judge.start in judge.steps
    for _ in range(4):
        minimum = constraint.min_tokens()
        assert minimum >= judge.steps[judge.start]
        remaining, state, cursor = random_.randint(minimum, minimum + 12), judge.start, constraint.cursor()
        while True:
            ids = ids_of(cursor.row())
            expected = [
                index
                for index, token in enumerate(vocabulary.tokens)
                if token and judge.automaton.advance_bytes(state, token) in judge.steps
            ]
            eos = [len(vocabulary.tokens) - 1] if judge.automaton.is_accepting(state) else []
            assert ids == expected + eos
            assert cursor.is_accepting == bool(eos)
            within = ids_of(cursor.row_within(remaining))
            assert set(within) <= set(ids)
            assert within
            token_id = random_.choice(within)
            assert cursor.advance(token_id)
            if cursor.is_finished:
                break
            remaining -= 1
            state = judge.automaton.advance_bytes(state, vocabulary.tokens[token_id])
            assert judge.steps[state] <= cursor.min_tokens_to_accept() <= remaining


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(PATTERNS), st.integers(0, 1 << 20))
def test_what_a_regex_lets_through_can_be_completed(pattern: str, seed: int) -> None:
    check(lambda compiler: compiler.regex(pattern), random.Random(seed))


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(SCHEMAS), st.sampled_from(["schema", "any"]), st.integers(0, 1 << 20))
@example(SCHEMAS[3], "any", 17)  # a key that is owed begins in the token that ends the value of one that is not
def test_what_a_schema_lets_through_can_be_completed(schema: Any, key_order: Any, seed: int) -> None:
    check(lambda compiler: compiler.json_schema(schema, key_order=key_order), random.Random(seed))


def lacking(lacks: bytes, *others: bytes) -> Vocabulary:
    """Printable ASCII without some characters, and some other tokens."""
    tokens = [token for token in PRINTABLE if token not in lacks] + list(others)
    return Vocabulary([*tokens, b""], [len(tokens)])


def walk(constraint: Constraint, random_: random.Random, remaining: int) -> bytes:
    """A text of random tokens within a budget."""
    text, cursor = bytearray(), constraint.cursor()
    while not cursor.is_finished:
        ids = ids_of(cursor.row_within(remaining))
        assert ids, text
        token_id = random_.choice(ids)
        assert cursor.advance(token_id)
        text += constraint.vocabulary.tokens[token_id]
        remaining -= 1
        assert cursor.is_finished or cursor.min_tokens_to_accept() <= remaining
    return bytes(text)


NUMBER: Any = {"type": "integer"}


@pytest.mark.parametrize("bracket", ["]", "}"])
def test_what_cannot_be_closed_is_never_opened(bracket: str) -> None:
    object_of_numbers = {"type": "object", "properties": {"a": NUMBER}, "additionalProperties": False}
    schema = {"anyOf": [NUMBER, {"type": "array", "items": NUMBER}, object_of_numbers]}
    constraint = Compiler(lacking(bracket.encode())).json_schema(schema)
    row = constraint.cursor().row()
    opens = constraint.vocabulary.ids[{"]": b"[", "}": b"{"}[bracket]]
    assert not row[opens >> 5] >> (opens & 31) & 1
    for seed in range(20):
        assert bracket not in walk(constraint, random.Random(seed), 30).decode()


@pytest.mark.parametrize("key_order", ["schema", "any"])
def test_an_object_is_closed_by_the_one_token_that_can(key_order: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}, "c": {"type": "boolean"}},
        "required": ["a", "c"] if key_order == "any" else ["a"],
        "additionalProperties": False,
    }
    compiler = Compiler(lacking(b"}", b'"}'))
    if key_order == "schema":
        schema["properties"] = {"a": {"type": "integer"}, "b": {"type": "string"}}
    constraint = compiler.json_schema(schema, key_order=key_order)
    for seed in range(20):
        value = json.loads(walk(constraint, random.Random(seed), constraint.min_tokens() + seed % 5))
        assert list(value)[-1] == "b"


def test_bytes_that_no_text_holds_are_not_missed() -> None:
    some = Vocabulary([bytes((b,)) for b in range(256) if b not in (0xC0, 0xC1, *range(0xF5, 0x100))] + [b""], [243])
    assert not some.is_complete
    compiler = Compiler(some)
    assert compiler.json_value().knowledge.liveness.is_by_bytes
    assert compiler.regex("[^a]*").knowledge.liveness.is_by_bytes


RARE = (0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100), 0x04, 0x06, 0x13, 0x14, 0x16, 0x1D)
PUBLISHED = Vocabulary([bytes((b,)) for b in range(256) if b not in RARE] + [b""], [256 - len(RARE)])
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
    constraint = Compiler(PUBLISHED).json_schema(schema)
    assert constraint.knowledge.liveness.is_by_bytes
    for seed in range(8):
        text = walk(constraint, random.Random(seed), constraint.min_tokens() + 5 * seed)
        cursor = EVERY_BYTE.json_schema(schema).cursor()
        assert all(cursor.advance(byte) for byte in text) and cursor.is_accepting


def test_characters_that_can_run_out_are_missed() -> None:
    compiler = Compiler(PUBLISHED)
    pattern = "[é\U00040000]"
    assert compiler.regex(pattern).knowledge.liveness.is_by_bytes
    assert not compiler.regex("é|\U00040000b").knowledge.liveness.is_by_bytes
    assert not compiler.regex("\x04|ab").knowledge.liveness.is_by_bytes
    keys = {"type": "object", "patternProperties": {f"^{pattern}$": {"const": 1}}, "additionalProperties": False}
    with pytest.raises(UnsupportedSchema, match="may not spell enough of them"):
        compiler.json_schema(keys)


def test_a_constraint_that_cannot_be_spelt_is_refused_by_name() -> None:
    with pytest.raises(EmptyLanguage, match=r"no token for '\}' alone, as in '\{\}'"):
        Compiler(lacking(b"}")).json_schema({"type": "object", "additionalProperties": False})
    with pytest.raises(UnsupportedSchema, match="name the keys, or use a vocabulary with byte fallback"):
        Compiler(lacking(b"}")).json_object()
    with pytest.raises(EmptyLanguage, match="no token for the byte 0xC3, the byte 0xA9 alone, as in"):
        Compiler(lacking(b"")).json_schema({"const": "é"})


SEVERAL_KEYS: list[Any] = [
    {
        "type": "object",
        "properties": {"a": {"const": 1}},
        "maxProperties": 2,
        "additionalProperties": {"enum": [1, ""]},
    },
    {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    {"type": "object", "additionalProperties": {"type": "integer"}, "minProperties": 3},
    {"type": "object", "patternProperties": {"^[ab]$": {"type": "integer"}}, "additionalProperties": False},
    {"type": "object", "patternProperties": {"^(é|ab?)$": {"const": 1}}, "additionalProperties": False},
    {
        "type": "object",
        "patternProperties": {"^[aé]$": {"const": 1}, "^b$": {"const": "é"}},
        "additionalProperties": False,
    },
    {"type": "object", "additionalProperties": {"const": 1}, "propertyNames": {"maxLength": 1}},
    {"type": "array", "items": {"type": "string", "pattern": "^[abé]?$"}, "uniqueItems": True},
    {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 3},
]


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(SEVERAL_KEYS),
    st.sampled_from([b"", b"}", b"d", b"x1b", b'"', b":"]),
    st.booleans(),
    st.integers(0, 1 << 20),
)
def test_keys_that_must_differ_never_run_out(schema: Any, lacks: bytes, crosses: bool, seed: int) -> None:
    random_ = random.Random(seed)
    crossing = [b'"}', b'":', b'{"', b',"', b'["', b'"]'] if crosses else []
    compiler = Compiler(lacking(lacks, "é".encode(), *crossing))
    try:
        constraint = compiler.json_schema(schema)
    except (EmptyLanguage, UnsupportedSchema):
        return
    pairs = json.loads(
        walk(constraint, random_, constraint.min_tokens() + random_.randint(0, 20)), object_pairs_hook=list
    )
    assert len(pairs) == len({json.dumps(pair[0] if type(pair) is tuple else pair) for pair in pairs})


def test_keys_of_which_there_may_be_too_few_are_refused() -> None:
    schema = {
        "patternProperties": {"^[ab]$": True},
        "additionalProperties": False,
        "type": "object",
        "minProperties": 2,
    }
    with pytest.raises(UnsupportedSchema, match="may not spell enough of them"):
        Compiler(lacking(b"b")).json_schema(schema)
