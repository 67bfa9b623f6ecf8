"""Masks bit for bit against all texts of a finite language, and against an Earley parser.

Neither oracle knows automata. A JSON Schema is cut down to a small universe of values, the judge says which of them
are valid, and then a token may follow a text if and only if one of the written values goes on that way: that is
checked after every prefix of every text. For grammars, an Earley recogniser says which prefixes are viable.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, EmptyLanguage, UnsupportedSchema
from phloem.fsm import Compiler, Constraint, Vocabulary

from ..json_schema.strategies import FEW, keywords
from ..json_schema.walks import judge_of, written
from ..vocabularies import small_vocabulary

SMALL = (None, 1, "a", "ab")
SCALARS = (*SMALL, True, False, 0, 10, 2.5, -1, "", "é", '"b')
ARRAYS = [list(items) for size in range(3) for items in product(SMALL, repeat=size)]
OBJECTS = [
    {key: value for key, value in zip("abc", values, strict=True) if value != "absent"}
    for values in product(("absent", None, 1, "ab"), repeat=3)
]
UNIVERSE: dict[str, Any] = {
    "anyOf": [
        {"enum": list(SCALARS)},
        {"type": "array", "items": {"enum": list(SMALL)}, "maxItems": 2},
        {
            "type": "object",
            "properties": {key: {"enum": [None, 1, "ab"]} for key in "abc"},
            "additionalProperties": False,
        },
    ]
}
BODIES: list[Any] = [
    True,
    {"type": ["object", "array"]},
    {"required": ["b"], "not": {"required": ["c"]}},
    {"contains": {"type": "string"}, "uniqueItems": True, "type": "array", "items": {"enum": [1, "a"]}},
    {"minProperties": 2, "maxProperties": 2, "type": "object"},
    {"oneOf": [{"type": "integer"}, {"minimum": 1}, {"maxLength": 1}]},
    {"if": {"required": ["a"]}, "then": {"properties": {"b": {"const": 1}}}, "else": {"minProperties": 1}},
    {"dependentRequired": {"a": ["b"]}, "patternProperties": {"b|c": {"type": "integer"}}, "type": "object"},
    {"pattern": "b$", "minLength": 2},
    {"propertyNames": {"enum": ["a", "c"]}, "type": ["object", "number"], "exclusiveMinimum": 0},
    {"not": {"contains": {"const": 1}}, "minItems": 1, "type": "array"},
    {"const": {"a": 1, "b": None}},
]


def rows_are_exact(constraint: Constraint, texts: set[bytes]) -> None:
    """After every prefix of every text, exactly the tokens that go on in one of them are allowed."""
    tokens = constraint.vocabulary.tokens
    (eos,) = constraint.vocabulary.eos_ids
    for prefix in sorted({text[:end] for text in texts for end in range(len(text) + 1)}):
        rest = [text[len(prefix) :] for text in texts if text.startswith(prefix)]
        expected = {t for t, token in enumerate(tokens) if token and any(other.startswith(token) for other in rest)}
        if b"" in rest:
            expected.add(eos)
        cursor = constraint.cursor()
        assert all(cursor.advance(byte) for byte in prefix), prefix
        found = np.flatnonzero(np.unpackbits(cursor.row().view(np.uint8), bitorder="little")).tolist()
        wrong = expected.symmetric_difference(found)
        assert not wrong, (prefix, [tokens[t] for t in wrong])


def pieces(texts: set[bytes], seed: int) -> Vocabulary:
    """All bytes, and pieces cut out of the texts and of texts that are not there."""
    generator = random.Random(seed)
    pool = [*sorted(texts), b'{"a":1,"c":"ab"}', b'["a",null,', b'"\\"b"', "é".encode(), b"-10", b"true"]
    found = set()
    for _ in range(60):
        text = generator.choice(pool)
        start = generator.randrange(max(len(text), 1))
        found.add(text[start : start + generator.randint(2, 6)])
    return small_vocabulary(sorted(piece for piece in found if len(piece) > 1))


def check(body: Any) -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "allOf": [UNIVERSE, body]}
    judge = judge_of(schema)
    values = [*SCALARS, *ARRAYS, *OBJECTS]
    texts = {written(value).encode() for value in values if judge.is_valid(value)}
    try:
        constraint = Compiler(pieces(texts, len(texts))).json_schema(schema)
    except (UnsupportedSchema, ConstraintTooLarge):
        return
    except EmptyLanguage:
        assert not texts
        return
    rows_are_exact(constraint, texts)


@pytest.mark.parametrize("body", BODIES, ids=json.dumps)
def test_a_schema_allows_exactly_the_tokens_that_lead_to_a_valid_value(body: Any) -> None:
    check(body)


def is_judged(schema: Any) -> bool:
    """Whether it has no references, and no `dependencies`, which the judge does not know in draft 2020-12."""
    text = json.dumps(schema)
    return "$ref" not in text and "dependencies" not in text


leaves = st.sampled_from((True, True, False))
bodies = keywords(FEW)(keywords(FEW)(leaves) | leaves).filter(is_judged)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(bodies, min_size=1, max_size=2))
def test_random_schemas_allow_exactly_the_tokens_that_lead_to_a_valid_value(parts: list[Any]) -> None:
    check({"allOf": parts})


# ---------------------------------------------------------------- grammars

Rules = dict[str, list[tuple[str, ...]]]
"""Alternatives by name; a name with a capital first letter is a rule, anything else is text."""


def is_rule(symbol: str) -> bool:
    return symbol[:1].isupper()


def productive(rules: Rules) -> Rules:
    """The rules without the alternatives that no text can come from."""
    good: set[str] = set()
    for _ in rules:
        for name, alternatives in rules.items():
            if any(all(not is_rule(symbol) or symbol in good for symbol in parts) for parts in alternatives):
                good.add(name)
    return {
        name: [parts for parts in alternatives if all(not is_rule(symbol) or symbol in good for symbol in parts)]
        for name, alternatives in rules.items()
        if name in good
    }


def earley(rules: Rules, text: bytes) -> tuple[bool, bool]:
    """Whether a sentence begins with the text, and whether the text is one."""
    split = {
        name: [[part for symbol in parts for part in spelt(symbol)] for parts in alternatives]
        for name, alternatives in rules.items()
    }
    chart: list[set[tuple[str, int, int, int]]] = [set() for _ in range(len(text) + 1)]
    chart[0] = {("Root", index, 0, 0) for index in range(len(split["Root"]))}
    for place, items in enumerate(chart):
        changed = True
        while changed:
            before = len(items)
            for name, index, dot, origin in list(items):
                parts = split[name][index]
                if dot == len(parts):
                    for other, number, at, start in list(chart[origin]):
                        if at < len(split[other][number]) and split[other][number][at] == name:
                            items.add((other, number, at + 1, start))
                elif isinstance(parts[dot], str):
                    items.update((str(parts[dot]), number, 0, place) for number in range(len(split[str(parts[dot])])))
            changed = len(items) != before
        if place < len(text):
            for name, index, dot, origin in items:
                parts = split[name][index]
                if dot < len(parts) and parts[dot] == text[place]:
                    chart[place + 1].add((name, index, dot + 1, origin))
    whole = any(
        name == "Root" and origin == 0 and dot == len(split[name][index]) for name, index, dot, origin in chart[-1]
    )
    return bool(chart[-1]), whole


def spelt(symbol: str) -> list[str | int]:
    return [symbol] if is_rule(symbol) else list(symbol.encode())


def as_ebnf(rules: Rules) -> str:
    lines = []
    for name, alternatives in rules.items():
        bodies = [" ".join(s.lower() if is_rule(s) else json.dumps(s, ensure_ascii=False) for s in parts) or '""'
                  for parts in alternatives]  # fmt: skip
        lines.append(f"{name.lower()} ::= {' | '.join(bodies)}")
    return "\n".join(lines)


GRAMMARS: dict[str, Rules] = {
    "brackets": {"Root": [("(", "Root", ")", "Root"), ()]},
    "sums": {"Root": [("Term",), ("Root", "+", "Term")], "Term": [("1",), ("12",), ("(", "Root", ")")]},
    "palindromes": {"Root": [("a", "Root", "a"), ("b", "Root", "b"), ("é",), ()]},
    "as many b as a": {"Root": [("a", "Root", "b"), ("a", "b")]},
    "ambiguous": {"Root": [("Root", "Root"), ("a",), ("ab",)]},
    "empty in the middle": {"Root": [("A", "B", "A")], "A": [("a",), ()], "B": [("A", "b"), ("A",)]},
    "a list": {"Root": [("[", "Items", "]")], "Items": [(), ("Item",), ("Item", ",", "Items")],
               "Item": [("1",), ("Root",)]},
}  # fmt: skip

GRAMMAR_VOCABULARY = small_vocabulary(
    [b"((", b"()", b"))", b")(", b"12", b"1+", b"+1", b"2)", b"aa", b"ab", b"ba", b"aba", b"abb", b"b\xc3", b"\xa9b",
     "é".encode(), "aéa".encode(), b"[]", b"[1", b"1,", b",[", b"]]", b"],", b"bb"]
)  # fmt: skip


def grammar_rows_are_exact(rules: Rules, seed: int) -> None:
    constraint = Compiler(GRAMMAR_VOCABULARY).grammar(as_ebnf(rules))
    tokens = GRAMMAR_VOCABULARY.tokens
    generator = random.Random(seed)
    known: dict[bytes, tuple[bool, bool]] = {}

    def viable(text: bytes) -> tuple[bool, bool]:
        if text not in known:
            known[text] = earley(rules, text)
        return known[text]

    for _ in range(3):
        cursor, text = constraint.cursor(), b""
        for _ in range(6):
            expected = {t for t, token in enumerate(tokens) if token and viable(text + token[:1])[0]
                        and viable(text + token)[0]}  # fmt: skip
            going_on = sorted(expected)
            if viable(text)[1]:
                expected.update(GRAMMAR_VOCABULARY.eos_ids)
            found = np.flatnonzero(np.unpackbits(cursor.row().view(np.uint8), bitorder="little")).tolist()
            wrong = expected.symmetric_difference(found)
            assert not wrong, (text, [tokens[t] for t in wrong])
            if not going_on:
                break
            token_id = generator.choice(going_on)
            assert cursor.advance(token_id)
            text += tokens[token_id]


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_grammar_allows_exactly_the_tokens_that_an_earley_parser_allows(name: str) -> None:
    grammar_rows_are_exact(GRAMMARS[name], len(name))


symbols = st.sampled_from(["Root", "A", "B", "a", "b", "ab", "é", "(", ")"])
alternatives = st.lists(st.lists(symbols, max_size=3).map(tuple), min_size=1, max_size=3, unique=True)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.fixed_dictionaries({"Root": alternatives, "A": alternatives, "B": alternatives}), st.integers(0, 99))
def test_random_grammars_allow_exactly_the_tokens_that_an_earley_parser_allows(rules: Rules, seed: int) -> None:
    rules = productive(rules)
    if "Root" in rules:
        with suppress(ConstraintTooLarge):  # a text that can be read in more ways than there is room for
            grammar_rows_are_exact(rules, seed)
