"""No object has a key twice: masks are compared bit for bit with what can be completed without repeating a key."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from phloem.errors import EmptyLanguage
from phloem.fsm import Compiler, Constraint, Cursor, Vocabulary
from phloem.fsm.foresight import guess_within, remember

from ..vocabularies import allowed_ids

WORDS = [
    b'"a"', b'"a":', b'"ab"', b'"":', b'","a":', b',"a', b',"', b'","', b'{"', b'{"a":', b'{"a":0,"', b'a"', b'a":0',
    b'":0', b'":0,"a":0', b'0,"a":0,"a":0', b'":0,"b":0', b'"":0,"":', b'\\"', b'\\', b'a\\"":', b'b":0,"b":0}',
    b'":0}', b'}}', b'},"a":', b'}},"b":0', b'":{"a":0},"a"', b'[{"a":0},{"a":0}]', b'],"b":', b', "a"', b' "b":',
    b',  "', b'\xc3', b'\xa9"', b'\xc3\xa9"', b'ab"', b'bb"', b'"ba":0}', b'0}', b'0,', b',',
]  # fmt: skip
TOKENS = [*(bytes([byte]) for byte in range(256)), *WORDS, b""]
EOS = len(TOKENS) - 1
ALPHABET = b'{}[]":,ab0\\ \xa9\xa8'
KNOWN = [i for i, token in enumerate(TOKENS) if i >= 256 or i < 128]  # others begin characters that are not looked at
SPARE = 5  # bytes by which a completion may be longer than the shortest

ZERO: Any = {"const": 0}
FEW: Any = {"patternProperties": {"^[ab]$": ZERO}, "additionalProperties": False, "type": "object"}
SCHEMAS: dict[str, Any] = {
    "any key": {"type": "object", "additionalProperties": ZERO},
    "two keys": FEW,
    "two keys, both there": FEW | {"minProperties": 2},
    "few keys of one or two letters": FEW | {"patternProperties": {"^[ab]{1,2}$": ZERO}},
    "keys in which one letter is all that is left": FEW | {"patternProperties": {"^(ab?|b.*)$": ZERO}},
    "a few and a named one": FEW | {"properties": {"a": ZERO}, "required": ["a"]},
    "a few and optional ones": FEW | {"properties": {"aa": ZERO, "b": ZERO, "ab": ZERO}},
    "any and named ones": {"type": "object", "properties": {"a": ZERO, "ab": ZERO}, "additionalProperties": ZERO},
    "escapes": {"type": "object", "additionalProperties": ZERO, "propertyNames": {"pattern": '^["\\\\a]*$'}},
    "short keys": {"type": "object", "additionalProperties": ZERO, "propertyNames": {"maxLength": 1}},
    "objects in objects": {"type": "object", "additionalProperties": {"anyOf": [ZERO, {"$ref": "#"}]}},
    "braces in strings": {
        "type": "object",
        "additionalProperties": {"anyOf": [{"type": "string", "pattern": '^[{}a\\\\"]*$'}, {"$ref": "#"}]},
    },
    "objects in lists": {"type": "object", "additionalProperties": {"type": "array", "items": {"$ref": "#"}}},
    "one reading or another": {
        "anyOf": [FEW, {"type": "object", "properties": {"a": {"const": "a"}}, "additionalProperties": ZERO}],
    },
    "at least three": {"type": "object", "additionalProperties": ZERO, "minProperties": 3},
    "at least two and a named one": {
        "type": "object", "properties": {"a": ZERO}, "additionalProperties": ZERO, "minProperties": 3,
    },
    "at most two": {"type": "object", "additionalProperties": ZERO, "maxProperties": 2},
    "some key with another value": {
        "type": "object", "additionalProperties": {"enum": [0, "a"]}, "not": {"additionalProperties": ZERO},
    },
    "one certain key with another value": {
        "type": "object", "additionalProperties": {"enum": [0, "a"]}, "not": {"patternProperties": {"^a$": ZERO}},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(Vocabulary(TOKENS, [EOS]))


def repeats(text: bytes) -> bool:
    """Whether an object of a text that has begun has a key twice, by reading it as JSON."""
    objects: list[set[str] | None] = []
    position = 0
    while position < len(text):
        byte = text[position : position + 1]
        position += 1
        if byte in b"{[":
            objects.append(set() if byte == b"{" else None)
        elif byte in b"}]":
            objects.pop()
        elif byte == b'"':
            end = position
            while end < len(text) and text[end] != ord('"'):
                end += 2 if text[end] == ord("\\") else 1
            if end >= len(text):
                return False
            string, is_key = text[position - 1 : end + 1], text[end + 1 : end + 2].strip() in (b":", b"")
            before = text[: position - 1].rstrip()
            position = end + 1
            keys = objects[-1] if objects else None
            if keys is not None and before[-1:] in (b"{", b",") and is_key:
                key = json.loads(string)
                if key in keys:
                    return True
                keys.add(key)
    return False


def can_be_completed(constraint: Constraint, text: bytes, state: int, left: int) -> bool:
    automaton = constraint.automaton
    if repeats(text):
        return False
    pending = [(text, state, left)]
    while pending:
        text, state, left = pending.pop()
        if automaton.is_accepting(state):
            return True
        found = []
        for byte in ALPHABET:
            after = automaton.advance_bytes(state, bytes([byte]))
            if after and automaton.min_bytes(after) < left and not repeats(text + bytes([byte])):
                found.append((automaton.min_bytes(after), text + bytes([byte]), after, left - 1))
        pending += [entry[1:] for entry in sorted(found, reverse=True)]
    return False


def expected(constraint: Constraint, cursor: Cursor, text: bytes) -> list[int]:
    automaton, found = constraint.automaton, []
    for token_id in KNOWN:
        token = TOKENS[token_id]
        after = automaton.advance_bytes(cursor.state, token) if token else 0
        if after and can_be_completed(constraint, text + token, after, automaton.min_bytes(after) + SPARE + 1):
            found.append(token_id)
    return found + [EOS] * cursor.is_accepting


def walks(constraint: Constraint, seed: int, max_tokens: int) -> Iterator[tuple[Cursor, bytes]]:
    """Places on a random walk that likes to write the same again."""
    chance, cursor, text = random.Random(seed), constraint.cursor(), b""
    for _ in range(max_tokens):
        yield cursor, text
        tokens = [token_id for token_id in allowed_ids(cursor.row()) if token_id >= 256 or token_id in ALPHABET]
        if not tokens:
            tokens = allowed_ids(cursor.row())
        token_id = chance.choice(tokens)
        if token_id == EOS:
            return
        assert cursor.advance(token_id)
        text += TOKENS[token_id]


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_masks_are_those_of_texts_without_repeated_keys(compiler: Compiler, name: str, key_order: Any) -> None:
    constraint = compiler.json_schema(SCHEMAS[name], key_order=key_order)
    for seed in range(2):
        for cursor, text in walks(constraint, seed, 7):
            wanted, found = expected(constraint, cursor, text), sorted(set(allowed_ids(cursor.row())) & set(KNOWN))
            assert [TOKENS[i] for i in found] == [TOKENS[i] for i in wanted], text


def test_what_is_empty_without_repeated_keys_is_refused(compiler: Compiler) -> None:
    with pytest.raises(EmptyLanguage):
        compiler.json_schema(FEW | {"minProperties": 3})


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_within_any_budget_the_text_ends_and_repeats_no_key(compiler: Compiler, name: str, key_order: Any) -> None:
    constraint = compiler.json_schema(SCHEMAS[name], key_order=key_order)
    least = constraint.min_tokens()
    for seed in range(6):
        chance, cursor, text = random.Random(seed), constraint.cursor(), b""
        budget = least + seed % 4 + seed // 4 * 14
        for remaining in range(budget, -1, -1):
            assert cursor.min_tokens_to_accept() <= remaining, text
            found = allowed_ids(cursor.row_within(remaining))
            assert found or remaining == 0, text
            found = [token_id for token_id in found if token_id != EOS or chance.random() < 0.1] or found
            liked = [token_id for token_id in found if token_id >= 256 or token_id in ALPHABET]
            token_id = chance.choice(liked if liked and chance.random() < 0.8 else found) if remaining else EOS
            assert cursor.advance(token_id), (text, token_id)
            if token_id == EOS:
                break
            text += TOKENS[token_id]
        assert cursor.is_finished and not repeats(text), text


def replayed(constraint: Constraint, tokens: list[int]) -> Cursor:
    cursor = constraint.cursor()
    assert all(cursor.advance(token_id) for token_id in tokens)
    return cursor


@pytest.mark.parametrize(
    "name", ["objects in objects", "objects in lists", "escapes", "few keys of one or two letters"]
)
def test_forks_and_cursors_that_went_back_remember_their_own_text(compiler: Compiler, name: str) -> None:
    constraint, chance = compiler.json_schema(SCHEMAS[name], key_order="any"), random.Random(name)
    cursors: list[tuple[Cursor, list[int]]] = [(constraint.cursor(), [])]
    for _ in range(150):
        cursor, taken = chance.choice(cursors)
        assert np.array_equal(cursor.row(), replayed(constraint, taken).row())
        if taken and chance.random() < 0.3:
            count = chance.randrange(1, len(taken) + 1)
            cursor.rollback(count)
            del taken[len(taken) - count :]
        elif chance.random() < 0.2:
            cursors.append((cursor.fork(), list(taken)))
        liked = [token for token in allowed_ids(cursor.row()) if token != EOS and (token >= 256 or token in ALPHABET)]
        if liked:
            token_id = chance.choice(liked)
            assert cursor.advance(token_id)
            taken.append(token_id)


@pytest.mark.parametrize("name", ["any key", "few keys of one or two letters", "objects in lists", "braces in strings"])
def test_what_was_written_under_a_constraint_changes_no_later_text(compiler: Compiler, name: str) -> None:
    seasoned, refused = compiler.json_schema(SCHEMAS[name], key_order="any"), 0
    for seed in range(25):
        fresh = Compiler(compiler.vocabulary).json_schema(SCHEMAS[name], key_order="any").cursor()
        taken: list[int] = []
        for cursor, text in walks(seasoned, seed, 40):
            for token_id in cursor.trail.last_tokens(len(text))[len(taken) :]:
                taken.append(token_id)
                assert fresh.advance(token_id), text
            assert np.array_equal(cursor.row(), fresh.row()), text
            bare = seasoned.caches.masks.row(cursor.state).bits
            for token_id in set(allowed_ids(bare)) - set(allowed_ids(cursor.row())):
                refused += 1
                assert not cursor.fork().advance(token_id), text
    assert refused


@pytest.mark.parametrize("kind", ["any JSON object", "a tag in free text"])
def test_every_text_without_a_repeated_key_is_taken_and_no_other(compiler: Compiler, kind: str) -> None:
    schema = {"type": "object", "properties": {"a": True}}
    if kind == "any JSON object":
        constraint, frame = compiler.json_object(), "JSON"
    else:
        tag = {"begin": "<t>", "schema": schema, "end": "</t>"}
        constraint, frame = (
            compiler.structural_tag({"structures": [tag], "triggers": ["<t>"]}),
            'so {"x":1,"x":2} <t>JSON</t> "y" <t>JSON</t>',
        )
    for text, is_right in [
        ('{"x":1,"b":{"x":[{"x":{}},{"x":"}"}]}}', True),
        ('{"x":1,"b":{"x":1},"x":2}', False),
        ('{"b":{"x":"{","y":[],"x":0}}', False),
        ('{"x\\"":1,"x":2,"x\\\\":3}', True),
        ('{"é":1,"é":2}', False),
        ('{"b":[{"x":"\\t"},{"x":"\\""},{"x":"\\u0001}"},{"x":0}]}', True),
        ('{"b":[{"x":"\\t","y\\n":"\\\\","x":0}]}', False),
        ('{"":1,"b":[{"":1},{"":2,"":3}]}', False),
    ]:
        whole = frame.replace("JSON", text)
        cursor = constraint.cursor()
        taken = all(cursor.advance(byte) for byte in whole.encode()) and cursor.is_accepting
        assert taken == is_right == constraint.accepts(whole.encode()), whole


def test_guesses_repeat_no_key(compiler: Compiler) -> None:
    constraint = compiler.json_schema(SCHEMAS["any key"])
    cursor = constraint.cursor()
    for token in (b'{"', b"a", b'":0', b",", b'"', b"b", b'":0', b",", b'"', b"c"):
        assert cursor.advance(TOKENS.index(token))
        remember(cursor, 1)
    for count in range(1, 11):
        cursor.rollback(1)
        guess = list(guess_within(cursor, 100, 20).token_ids)
        text = b"".join(TOKENS[token_id] for token_id in guess)
        ahead = cursor.fork()
        assert all(ahead.advance(token_id) for token_id in guess), (count, text)


def test_objects_deep_in_any_value_repeat_no_key_either(compiler: Compiler) -> None:
    for schema in ({"type": "object"}, {"properties": {"x": True}}, {"type": "object", "properties": {"d": {}}}, True):
        constraint = compiler.json_schema(schema)
        assert constraint.accepts(b'{"d":{"b":0,"c":{"b":1}}}')
        assert not constraint.accepts(b'{"d":{"b":0,"b":1}}')
        assert not constraint.accepts(b'{"x":{"d":[{"a":{"b":0,"b":1}}]}}')


def test_keys_next_to_items_that_differ_lead_to_no_dead_end(compiler: Compiler) -> None:
    """A repeated item may be right in another reading; a repeated key is right in none."""
    items = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
    keys = {"type": "object", "propertyNames": {"enum": ["ab", "ac"]}, "additionalProperties": ZERO}
    cursor = compiler.json_schema({"anyOf": [keys, items]}, whitespace="compact").cursor()
    assert all(cursor.advance(byte) for byte in b'{"ab":0,"a')
    assert not cursor.advance(ord("b")) and cursor.advance(ord("c"))
