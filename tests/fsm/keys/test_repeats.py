"""No object has a key twice: masks are compared bit for bit with what can be completed without repeating a key."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from phloem.errors import EmptyLanguage
from phloem.fsm import Compiler, Vocabulary
from phloem.fsm.foresight import guess_within, remember

from ..vocabularies import allowed_ids
from .judging import Judge

WORDS = [
    b'"a"', b'"a":', b'"ab"', b'"":', b'","a":', b',"a', b',"', b'","', b'{"', b'{"a":', b'{"a":0,"', b'a"', b'a":0',
    b'":0', b'":0,"a":0', b'0,"a":0,"a":0', b'":0,"b":0', b'"":0,"":', b'\\"', b'\\', b'a\\"":', b'b":0,"b":0}',
    b'":0}', b'}}', b'},"a":', b'}},"b":0', b'":{"a":0},"a"', b'[{"a":0},{"a":0}]', b'],"b":', b', "a"', b' "b":',
    b',  "', b'\xc3', b'\xa9"', b'\xc3\xa9"', b'ab"', b'bb"', b'"ba":0}', b'0}', b'0,', b',',
]  # fmt: skip
TOKENS = [*(bytes([byte]) for byte in range(256)), *WORDS, b""]
EOS = len(TOKENS) - 1
ALPHABET = b'{}[]":,ab0\\ \xa9\xa8'

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


def judge_of(compiler: Compiler, name: str, key_order: Any = "any") -> Judge:
    return Judge(compiler.json_schema(SCHEMAS[name], key_order=key_order), SCHEMAS[name], ALPHABET)


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_masks_are_those_of_texts_without_repeated_keys(compiler: Compiler, name: str, key_order: Any) -> None:
    judge_of(compiler, name, key_order).check_masks(2, 7)


def test_what_is_empty_without_repeated_keys_is_refused(compiler: Compiler) -> None:
    with pytest.raises(EmptyLanguage):
        compiler.json_schema(FEW | {"minProperties": 3})


@pytest.mark.parametrize("key_order", ["schema", "any"])
@pytest.mark.parametrize("name", SCHEMAS)
def test_within_any_budget_the_text_ends_and_repeats_no_key(compiler: Compiler, name: str, key_order: Any) -> None:
    judge_of(compiler, name, key_order).check_budgets(12)


@pytest.mark.parametrize(
    "name", ["objects in objects", "objects in lists", "escapes", "few keys of one or two letters"]
)
def test_forks_and_cursors_that_went_back_remember_their_own_text(compiler: Compiler, name: str) -> None:
    judge_of(compiler, name).check_going_back(150)


@pytest.mark.parametrize("name", ["any key", "few keys of one or two letters", "objects in lists", "braces in strings"])
def test_what_was_written_under_a_constraint_changes_no_later_text(compiler: Compiler, name: str) -> None:
    judge, refused = judge_of(compiler, name), 0
    for seed in range(25):
        fresh = Compiler(compiler.vocabulary).json_schema(SCHEMAS[name], key_order="any").cursor()
        taken: list[int] = []
        for cursor, text in judge.places(seed, 40):
            for token_id in cursor.trail.last_tokens(len(text))[len(taken) :]:
                taken.append(token_id)
                assert fresh.advance(token_id), text
            assert np.array_equal(cursor.row(), fresh.row()), text
            bare = judge.constraint.caches.masks.row(cursor.state).bits
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
