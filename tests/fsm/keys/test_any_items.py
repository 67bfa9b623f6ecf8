"""No list has a value twice that must not, whatever its items are: masks are compared bit for bit."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.fsm import Compiler, Vocabulary
from phloem.fsm.keys.values import GONE, Number, Place, is_complete, step

from .judging import Judge

WORDS = [
    b"true", b"tr", b"true,", b"true,true", b"rue]", b"null,", b"[]", b"{}", b"[],[", b"1,1", b"1,2", b"1]", b"0,0",
    b'"a"', b'"a",', b'","', b'"a","a"', b'{"a":', b'"a":1', b'":1}', b'{"a":true},{"a":true}', b"},{", b'},{"a":t',
    b'"b":false', b"false}", b',"b":', b"[[1],[", b"],[1", b"1.0", b".0", b"0e", b"e0", b"e1", b"-0", b'{"b":1', b"],",
    b"e-", b"10", b"[1,1]",
]  # fmt: skip
TOKENS = [*(bytes([byte]) for byte in range(256)), *WORDS, b""]
EOS = len(TOKENS) - 1
ALPHABET = b'{}[]":,ab01.eutrslfan'

BOOLEAN: Any = {"type": "boolean"}
LIST: Any = {"type": "array", "uniqueItems": True}
PAIR: Any = {
    "type": "object",
    "properties": {"a": BOOLEAN, "b": BOOLEAN},
    "required": ["a"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Any] = {
    "any items": LIST,
    "objects with few values": LIST | {"items": PAIR},
    "numbers": LIST | {"items": {"type": "number"}},
    "whole numbers": LIST | {"items": {"type": "integer"}},
    "strings or null": LIST | {"items": {"type": ["string", "null"]}},
    "short lists of few values": LIST | {"items": {"type": "array", "items": {"enum": [1, True]}, "maxItems": 2}},
    "lists that differ in a list that differs": LIST | {"items": LIST | {"items": {"type": "integer"}}},
    "after fixed ones": LIST | {"prefixItems": [BOOLEAN, {"type": ["boolean", "array"], "maxItems": 0}]},
    "strings far from each other, or null": LIST
    | {"items": {"anyOf": [{"type": "string", "pattern": "^(a{9})*$"}, {"type": "null"}]}},
    "at most one object": LIST
    | {"contains": {"type": "object", "maxProperties": 1}, "minContains": 0, "maxContains": 1},
    "at most two": LIST | {"maxItems": 2, "minItems": 1},
    "objects with a key of some kind": LIST
    | {"items": {"type": "object", "patternProperties": {"^[ab]$": BOOLEAN}, "additionalProperties": False}},
    "a list, or one that may repeat a little": {
        "anyOf": [LIST, {"type": "array", "items": {"enum": [1, [], True]}, "maxItems": 3}]
    },
    "two lists that differ, or do not": {
        "anyOf": [
            {"type": "object", "properties": {"a": LIST}, "additionalProperties": False},
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"enum": [0, [1]]}, "maxItems": 2}, "b": {"const": 0}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
        ]
    },
}


def lists(items: tuple[str, ...], most: int) -> list[str]:
    return [f"[{','.join(chosen)}]" for count in range(most + 1) for chosen in itertools.product(items, repeat=count)]


REPEATING = {
    "a list, or one that may repeat a little": lists(("1", "[]", "true"), 3),
    "two lists that differ, or do not": [f'{{"a":{text},"b":0}}' for text in lists(("0", "[1]"), 2)],
}


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(Vocabulary(TOKENS, [EOS]))


def judge_of(compiler: Compiler, name: str) -> Judge:
    constraint = compiler.json_schema(SCHEMAS[name], key_order="any")
    depth = 2 if name == "lists that differ in a list that differs" else 1
    spare = 12 if name.startswith(("objects", "strings far")) else 5
    repeating = REPEATING.get(name, ())
    return Judge(constraint, SCHEMAS[name], ALPHABET, repeating, lambda num_around, _: num_around < depth, spare)


@pytest.mark.parametrize("name", SCHEMAS)
def test_masks_are_those_of_valid_texts(compiler: Compiler, name: str) -> None:
    judge_of(compiler, name).check_masks(2, 6)


USED_UP: dict[str, tuple[Any, list[str]]] = {
    "an object with one key": ({**PAIR, "properties": {"a": BOOLEAN}}, ['{"a":true}', '{"a":false}']),
    "a list of one": ({"type": "array", "items": BOOLEAN, "minItems": 1, "maxItems": 1}, ["[false]", "[true]"]),
    "an object, or null": (
        {"anyOf": [{"type": "null"}, {**PAIR, "properties": {"a": {"const": 1}}}]},
        ['{"a":1}', "null"],
    ),
    "one number": ({"type": "number", "minimum": 0, "maximum": 0}, ["0"]),
    "prices in objects": ({**PAIR, "properties": {"a": {"type": "number", "minimum": 5, "maximum": 5}}}, ['{"a":5}']),
    "numbers of one sign": ({"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 1}, ["1", "0"]),
}


@pytest.mark.parametrize("name", USED_UP)
def test_once_all_values_are_written_none_is_begun(compiler: Compiler, name: str) -> None:
    """After each beginning of the text, every token: it is in the mask if it can be taken, with budgets or without."""
    items, values = USED_UP[name]
    constraint = compiler.json_schema(LIST | {"items": items})
    cursor = constraint.cursor()
    for byte in f"[{','.join(values)}".encode():
        assert cursor.advance(byte)
        bits = np.unpackbits(cursor.row().view(np.uint8), bitorder="little")[: len(TOKENS)]
        taken = [cursor.fork().advance(token_id) for token_id in range(len(TOKENS))]
        assert np.flatnonzero(bits).tolist() == np.flatnonzero(taken).tolist()
        assert (cursor.row_within(500) == cursor.row()).all()
    assert not bits[ord(",")] and bits[ord("]")]


@pytest.mark.parametrize(
    ("bounds", "text"),
    [({"minimum": 0}, b"[0,-"), ({"maximum": 0}, b"[0,0"), ({"minimum": 1, "maximum": 5}, b"[5,5")],
    ids=str,
)
def test_endless_spellings_of_a_number_that_is_written_end_nowhere(
    compiler: Compiler, bounds: Any, text: bytes
) -> None:
    """Such as `-0.000`: the last byte is none that may come, or none of those after it ends the item."""
    cursor = compiler.json_schema(LIST | {"items": {"type": "number", **bounds}}).cursor()
    for byte in text[:-1]:
        assert cursor.advance(byte)
    bits = np.unpackbits(cursor.row().view(np.uint8), bitorder="little")[: len(TOKENS)]
    taken = [cursor.fork().advance(token_id) for token_id in range(len(TOKENS))]
    assert np.flatnonzero(bits).tolist() == np.flatnonzero(taken).tolist() and not bits[text[-1]]


NUMBERS = st.from_regex(
    r"-?(0|[12]0?|100)(\.(0|5|05|50|00))?([eE][+-]?(0|1|2|01|3|10))?", fullmatch=True, alphabet="-.0125e+E3"
)


@settings(max_examples=300, deadline=None)
@given(NUMBERS, NUMBERS)
def test_a_number_is_read_digit_by_digit_as_it_is_read_as_a_whole(one: str, other: str) -> None:
    place: Place = Number.of(one), None
    for byte in other.encode():
        after = step(place, byte)
        if after is GONE:
            break
        place = after
    assert (after is not GONE and is_complete(place)) == (Decimal(one) == Decimal(other))


def test_no_more_brackets_are_open_in_a_list_than_are_counted(compiler: Compiler) -> None:
    """The mask leaves out the bracket that would be one too many, and all others of it can be closed."""
    for opening, closing in ((b"[", b"]"), (b'[{"a":', b"}]")):
        cursor, count = compiler.json_schema(LIST).cursor(), 0
        while count + opening.count(b"[") + opening.count(b"{") <= 200:
            assert all(map(cursor.advance, opening))
            count += opening.count(b"[") + opening.count(b"{")
        bits = np.unpackbits(cursor.row().view(np.uint8), bitorder="little")[: len(TOKENS)]
        taken = [cursor.fork().advance(token_id) for token_id in range(len(TOKENS))]
        assert np.flatnonzero(bits).tolist() == np.flatnonzero(taken).tolist()
        assert not bits[ord("[")] and not bits[ord("{")] and bits[ord("1")]
        assert cursor.advance(ord("1")) and all(map(cursor.advance, closing * (count // len(closing))))
        assert cursor.is_accepting


def test_numbers_that_differ_by_a_sign_or_not() -> None:
    compiler = Compiler(Vocabulary(TOKENS, [EOS]))
    constraint = compiler.json_schema(LIST)
    for text, is_valid in ((b"[0,-0]", False), (b"[1,-1]", True), (b"[1,1e-0]", False), (b"[-1.0,-10e-1]", False)):
        assert constraint.accepts(text) == is_valid, text


@pytest.mark.parametrize("name", SCHEMAS)
def test_within_any_budget_the_text_ends_and_is_valid(compiler: Compiler, name: str) -> None:
    judge_of(compiler, name).check_budgets(10)
