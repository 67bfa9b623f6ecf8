"""The budget: from the minimum on every text ends well, whatever is written, in whatever vocabulary."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from phloem.errors import EmptyLanguage
from phloem.fsm import Compiler, Constraint

from ..vocabularies import BYTES, allowed_ids, small_vocabulary

PIECES = [
    b'{"',
    b'":"',
    b'","',
    b'":',
    b'":{"',
    b'"},"',
    b'"}',
    b'"}}',
    b'""',
    b'":"","',
    b',"',
    b"alpha",
    b"be",
    b"ta",
]
NAMES = ["alpha", "alphabet", "beta", "be", "a", "b", "gamma", "gamut", "g", "delta", "d", "x", "y", "z"]


def wide_object(num_keys: int, *inner: Any) -> dict[str, Any]:
    """An object all of whose keys are required; its first keys have other values than strings."""
    values = [*inner, *({"type": "string"} for _ in range(num_keys - len(inner)))]
    properties = {NAMES[i % len(NAMES)] + str(i // len(NAMES)): value for i, value in enumerate(values)}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


WIDE = {
    "many keys": wide_object(20),
    "more keys than are followed in any order": wide_object(30),
    "many keys and others": wide_object(12) | {"additionalProperties": {"type": "null"}},
    "many keys in many keys": wide_object(8, wide_object(9), wide_object(3), {"type": "integer"}),
    "many keys in lists": wide_object(3, {"type": "array", "minItems": 6, "items": wide_object(6)}),
    "some keys optional": wide_object(30) | {"required": [name + "0" for name in NAMES]},
    "a long list too": wide_object(3, {"type": "array", "minItems": 40, "items": {"type": "integer"}}),
}


@pytest.mark.parametrize("name", WIDE)
def test_many_keys_in_any_order_end_well_from_their_minimum_on(name: str) -> None:
    schema = WIDE[name]
    constraint = Compiler(small_vocabulary(PIECES)).json_schema(schema, key_order="any")
    least = constraint.min_tokens()
    assert not constraint.is_within(least - 1)
    for seed in range(8):
        text = walked(constraint, random.Random(seed), least + (0, 1, 2, 30, 200)[seed % 5])
        Draft202012Validator(schema).validate(json.loads(text))


def walked(constraint: Constraint, rng: random.Random, max_tokens: int) -> bytes:
    """A random text within a budget, during which no bound is ever above what is left."""
    cursor, text = constraint.cursor(), b""
    for used in range(max_tokens):
        choices = allowed_ids(cursor.row_within(max_tokens - used))
        assert choices, f"no token is allowed after {text!r}"
        token_id = rng.choice(choices)
        assert cursor.advance(token_id)
        if cursor.is_finished:
            return text
        text += constraint.vocabulary.tokens[token_id]
        assert cursor.min_tokens_to_accept() < max_tokens - used
    assert cursor.is_accepting
    return text


def test_what_many_keys_need_is_what_the_tokens_of_a_text_come_to() -> None:
    vocabulary = small_vocabulary(PIECES)
    schema = WIDE["many keys"]
    least = Compiler(vocabulary).json_schema(schema, key_order="any").min_tokens()
    text = json.dumps(dict.fromkeys(sorted(schema["required"]), ""), separators=(",", ":")).encode()
    fewest = [0] * (len(text) + 1)  # tokens for the text from each place on
    for begin in range(len(text) - 1, -1, -1):
        pieces = [token for token in vocabulary.tokens if token and text.startswith(token, begin)]
        fewest[begin] = 1 + min(fewest[begin + len(piece)] for piece in pieces)
    assert least == fewest[0]
    assert least == Compiler(vocabulary).json_schema(schema).min_tokens()


# ---------------------------------------------------------------- keys that can be used up

ZERO = {"const": 0}
MANY = {  # too many to be named
    "type": "object",
    "properties": {"name": ZERO},
    "patternProperties": {"^[a-z]{2}[ab]$": ZERO, "^[a-z]{3}!$": {"enum": ["long"], "maxLength": 1}},
    "additionalProperties": False,
}
LETTERS = "abcdefghijklmnopqrstuvwxyz"
KEYS = [one + two + last for one in LETTERS for two in LETTERS for last in "ab"]


def test_more_keys_than_there_are_cannot_be_asked_for_next_to_named_ones() -> None:
    for key_order in ("schema", "any"):
        with pytest.raises(EmptyLanguage):
            Compiler(BYTES).json_schema(MANY | {"minProperties": len(KEYS) + 2}, key_order=key_order)  # type: ignore[arg-type]


def test_the_least_number_of_tokens_of_a_very_long_list_is_found_and_exact() -> None:
    """The search stops for more memory some thousand times, and goes on where it was."""
    compiler, count = Compiler(small_vocabulary(PIECES)), 30_000
    words = {"type": "array", "items": {"enum": ["x", "yz"]}, "minItems": count}
    assert compiler.json_schema(words).min_tokens() == 2 + count + (count - 1) + 2  # [ " x "," x … " ]


IN_PARTS: dict[str, Any] = WIDE | {
    "strings in many ways": {"anyOf": [{"pattern": f"^[a-d]*{end}"} for end in ("a{3}", "b.c", "[0-9]+", "xyz$")]},
    "strings of many lengths": {
        "anyOf": [{"type": "string", "minLength": n, "maxLength": n + 1} for n in (0, 3, 9, 30)]
    },
    "keys that the schema does not name": {
        "type": "object",
        "minProperties": 3,
        "additionalProperties": {"type": "integer"},
    },
    "keys of many objects": {"anyOf": [wide_object(3, {"type": "null"}), wide_object(2), {"type": "object"}]},
    "items that differ": {"type": "array", "uniqueItems": True, "minItems": 3, "items": {"type": "string"}},
    "anything": True,
}


@pytest.mark.parametrize("name", IN_PARTS)
@pytest.mark.parametrize("work", [60, 1_000, 9_000])
def test_rows_within_a_budget_made_in_parts_are_rows_made_at_once(name: str, work: int) -> None:
    vocabulary, schema = small_vocabulary(PIECES), IN_PARTS[name]
    at_once, in_parts = (Compiler(vocabulary).json_schema(schema, key_order="any") for _ in range(2))
    least, num_attempts = at_once.min_tokens(), 0
    assert in_parts.min_tokens() == least
    for seed in range(6):
        rng, remaining = random.Random(seed), least + seed * seed
        whole, parts = at_once.cursor(), in_parts.cursor()
        while remaining and not whole.is_finished:
            row = parts.row_soon(remaining, work)
            while row is None:
                num_attempts += 1
                row = parts.row_soon(remaining, work)
            assert allowed_ids(row) == allowed_ids(whole.row_within(remaining))
            token_id = rng.choice(allowed_ids(row))
            assert whole.advance(token_id) and parts.advance(token_id)
            remaining -= 1
    assert num_attempts or work > 60


TITLE = {"type": "string", "pattern": "^[a-zA-Z._-]+$"}
TIE = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"genus": {"const": "finch"}, "colour": TITLE},
            "required": ["colour", "altitudes"],
        },
        {
            "allOf": [
                {"properties": {"genus": TITLE, "id": TITLE}, "required": ["genus", "id"]},
                {
                    "type": "object",
                    "patternProperties": {"^[a-zA-Z._-][a-zA-Z0-9._-]*$": {"type": ["number", "string"]}},
                },
            ]
        },
    ]
}
TIE_PIECES = [
    *(
        b'{"',
        b'":"',
        b'","',
        b'":',
        b'"}',
        b"olour",
        b"lti",
        b"_tudes",
        b"tudes",
        b"genus",
        b"id",
        b"}]",
        b'"}]',
        b'[{"',
    ),
    *(b'olour":"', b'olour":"a","', b'altitudes":'),
]


@pytest.mark.parametrize("schema", [TIE, {"type": "array", "minItems": 1, "items": TIE}], ids=["one", "list"])
def test_of_two_shortest_completions_one_may_owe_more_keys_that_are_not_named(schema: dict[str, Any]) -> None:
    """As few bytes make of `{"c` an object that owes "genus" and "id", or, as `{"colour`, one that owes two keys."""
    constraint = Compiler(small_vocabulary(TIE_PIECES)).json_schema(schema, key_order="any")
    least = constraint.min_tokens()
    for max_tokens in range(least, least + 5):
        for seed in range(30):
            text = walked(constraint, random.Random(seed), max_tokens)
            Draft202012Validator(schema).validate(json.loads(text))
