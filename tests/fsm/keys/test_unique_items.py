"""No list has an item twice that must not: masks are compared bit for bit with what can become a valid text."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from phloem.errors import EmptyLanguage, UnsupportedSchema
from phloem.fsm import Compiler, Vocabulary

from .judging import Judge

WORDS = [
    b'"a"', b'"ab"', b'""', b'"a",', b'","', b'","a"', b',"a"', b',"', b'["', b'["a"', b'["a","', b'a"', b'a",', b'a"]',
    b'","b","', b'"a","a"', b'"a","b"', b'\\"', b'\\', b'a\\"', b'"]', b'"],["', b'],["a"', b'["a"],["a"]', b'a","a"',
    b'aa', b'ab"', b'bb', b'":["a"', b'":["a","', b'"]}', b'[]', b'"a","aa"', b'aa"]',
]  # fmt: skip
TOKENS = [*(bytes([byte]) for byte in range(256)), *WORDS, b""]
EOS = len(TOKENS) - 1
ALPHABET = b'{}[]":,ab\\0'

A_STRING: Any = {"type": "string"}
LIST: Any = {"type": "array", "items": A_STRING, "uniqueItems": True}
SCHEMAS: dict[str, Any] = {
    "any strings": LIST,
    "two or three strings": LIST | {"minItems": 2, "maxItems": 3},
    "strings of one letter": LIST | {"items": {"type": "string", "pattern": '^[\\\\ab"]$|^[\\u0100-\\u2000]$'}},
    "strings in which one letter is all that is left": LIST | {"items": {"type": "string", "pattern": "^(ab?|b.*)$"}},
    "short strings": LIST | {"items": {"type": "string", "maxLength": 1}, "minItems": 2},
    "after a fixed one": LIST | {"prefixItems": [{"type": "string", "pattern": "^a"}, A_STRING]},
    "lists in a list": {"type": "array", "items": LIST, "maxItems": 2},
    "a list, or one that may repeat a little": {
        "anyOf": [LIST, {"type": "array", "items": {"enum": ["a", "aa"]}, "maxItems": 3}]
    },
    "a list of some, or one that may repeat others": {
        "anyOf": [
            LIST | {"items": {"type": "string", "pattern": "^(a|ab)b*$"}},
            {"type": "array", "items": {"type": "string", "pattern": "^a[ab]$"}, "maxItems": 2},
        ]
    },
    "two lists that differ, or do not": {
        "anyOf": [
            {"type": "object", "properties": {"a": LIST}, "additionalProperties": False},
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2}, "b": {"const": 0}},
                "required": ["a", "b"],
                "additionalProperties": False,
            },
        ]
    },
}


def lists(items: tuple[str, ...], most: int) -> list[str]:
    return [f"[{','.join(chosen)}]" for count in range(most + 1) for chosen in itertools.product(items, repeat=count)]


# the texts in which some string may come twice in a list
REPEATING = {
    "a list, or one that may repeat a little": lists(('"a"', '"aa"'), 3),
    "a list of some, or one that may repeat others": lists(('"aa"', '"ab"'), 2),
    "two lists that differ, or do not": [f'{{"a":{text},"b":0}}' for text in lists(('"a"', '"b"'), 2)],
}


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(Vocabulary(TOKENS, [EOS]))


def judge_of(compiler: Compiler, name: str) -> Judge:
    constraint = compiler.json_schema(SCHEMAS[name])
    return Judge(
        constraint, SCHEMAS[name], ALPHABET, REPEATING.get(name, ()), lambda _, item: item.startswith(b'"'), spare=6
    )


@pytest.mark.parametrize("name", SCHEMAS)
def test_masks_are_those_of_valid_texts(compiler: Compiler, name: str) -> None:
    judge_of(compiler, name).check_masks(3, 6)


@pytest.mark.parametrize("name", SCHEMAS)
def test_within_any_budget_the_text_ends_and_is_valid(compiler: Compiler, name: str) -> None:
    judge_of(compiler, name).check_budgets(20)


def test_cursors_that_went_back_remember_their_own_items(compiler: Compiler) -> None:
    judge_of(compiler, "two lists that differ, or do not").check_going_back(120)


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({"items": {"type": "string", "format": "date"}, "minItems": 2}, ['["2020-01-01","2020-01-02"]']),
        ({"items": {"type": "string", "pattern": "^[a-z]{1,3}$"}, "minItems": 1000}, []),
        ({"items": {"anyOf": [{"type": "string", "minLength": 2}, {"enum": ["a"]}]}}, ['["a","aa"]', "[]", '["bb"]']),
        ({"items": {"type": "string", "maxLength": 70000}}, ['["a","aa"]', "[]", '["a","é"]']),
        ({"prefixItems": [A_STRING], "items": {"type": "integer"}, "maxItems": 1}, ['["a"]', "[]"]),
        ({"prefixItems": [A_STRING], "items": False}, ['["a"]', "[]"]),
    ],
)
def test_many_kinds_of_strings_can_be_unique(compiler: Compiler, schema: Any, texts: list[str]) -> None:
    constraint = compiler.json_schema({"type": "array", "uniqueItems": True} | schema)
    for text in texts:
        assert constraint.accepts(text.encode())
        values = json.loads(text)
        if values:
            assert not constraint.accepts(json.dumps([*values, values[0]], separators=(",", ":")).encode())


@pytest.mark.parametrize(
    "schema",
    [
        {"prefixItems": [A_STRING, {"enum": ["a"]}], "items": A_STRING, "minItems": 2},
        {"items": {"anyOf": [A_STRING, {"type": "array"}]}, "minItems": 2},
    ],
)
def test_what_might_run_out_is_refused(compiler: Compiler, schema: Any) -> None:
    with pytest.raises(UnsupportedSchema) as caught:
        compiler.json_schema({"properties": {"a/b": {"type": "array", "uniqueItems": True} | schema}})
    assert caught.value.pointer == "/properties/a~1b/uniqueItems"


def test_more_than_there_are_cannot_be_asked_for(compiler: Compiler) -> None:
    letters = {"type": "string", "pattern": "^[a-z]{1,3}$"}
    count = 26 + 26**2 + 26**3
    assert not compiler.json_schema(LIST | {"items": letters, "minItems": count}).accepts(b'["a"]')
    with pytest.raises(EmptyLanguage):
        compiler.json_schema(LIST | {"items": letters, "minItems": count + 1})


def test_the_least_number_of_tokens_is_not_far_above_what_different_strings_need(compiler: Compiler) -> None:
    for items, count, needed in [
        ({"type": "string", "pattern": "^[a-z]{1,3}$"}, 100, 26 * 1 + 74 * 2),
        ({"type": "string", "pattern": "^é?[a-b]{0,9}$"}, 20, 1 * 0 + 2 * 1 + 5 * 2 + 12 * 3),
        (A_STRING, 300, 1 * 0 + 93 * 1 + 206 * 2),
    ]:
        least = compiler.json_schema(LIST | {"items": items, "minItems": count}).min_tokens()
        brackets_and_separators = count + 1  # `["`, `","`, `"]`
        assert needed + brackets_and_separators <= least + count  # some strings are written with the brackets
        assert least <= 2 * needed + 2 * count, (items, least)
