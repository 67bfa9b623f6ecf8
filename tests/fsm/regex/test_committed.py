"""Atomic groups and possessive quantifiers, judged by the `regex` package."""

from __future__ import annotations

import itertools
import random

import pytest
import regex

from phloem.errors import InvalidRegex
from phloem.fsm.regex.regex import regex_to_dfa

WORDS = ["".join(word) for length in range(6) for word in itertools.product("abc", repeat=length)]


def _atom(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if depth == 0 or kind < 0.45:
        return rng.choice(("a", "b", "[ab]", "ab", "c", "(?:ab|c)", "[^a]"))
    if kind < 0.6:
        return f"(?>{_options(rng, depth - 1)})"
    if kind < 0.8:
        return f"(?:{_options(rng, depth - 1)})"
    return f"(?:{_atom(rng, depth - 1)})" + rng.choice(
        ("*+", "++", "?+", "{1,2}+", "{0}+", "*", "?", "+", "{2}+", "*?")
    )


def _sequence(rng: random.Random, depth: int) -> str:
    return "".join(_atom(rng, depth) for _ in range(rng.randint(1, 3)))


def _options(rng: random.Random, depth: int) -> str:
    return "|".join(_sequence(rng, depth) for _ in range(rng.randint(1, 2)))


def test_what_is_taken_is_what_a_search_finds() -> None:
    rng, num_taken = random.Random(3), 0
    for _ in range(150):
        pattern = _sequence(rng, 2)
        try:
            found = set(regex_to_dfa(pattern, dialect="python").among(WORDS))
        except InvalidRegex:
            continue
        matcher = regex.compile(pattern)
        assert found == {word for word in WORDS if matcher.fullmatch(word)}, pattern
        num_taken += any(mark in pattern for mark in ("(?>", "*+", "++", "?+", "}+"))
    assert num_taken > 20


@pytest.mark.parametrize(
    "pattern", ["(?:a|ab)*+b", "(?>(?:a|ab)*)", "(?>a*?)b", "(?<=(?>a))b", "(?>(?=a)ab?)", "(a|aa)++"]
)
def test_what_depends_on_the_search_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegex, match="searched for"):
        regex_to_dfa(pattern, dialect="python")


def test_ecma_has_none_of_them() -> None:
    for pattern in ("a++", "(?>a)"):
        with pytest.raises(InvalidRegex):
            regex_to_dfa(pattern, search=False, dialect="json-schema")
