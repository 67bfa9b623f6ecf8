r"""The empty text, which `\B` matches for ECMA-262 and Python from 3.14 on, and does not for Python before."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from phloem.fsm import Compiler
from phloem.fsm.regex.regex import regex_to_dfa

from ..vocabularies import BYTES

PARTS = (r"\B", r"\b", "a*", "a?", "", r"(?=\B)", r"(?!\B)", r"(?!a)", r"(?:\B)?", r"(?:\B|a)", r"(?!(?!\B))", "$", "^")


def readings(pattern: str) -> set[bool]:
    r"""Whether the empty text is matched if `\B` matches it, and if it does not."""
    return {re.search(pattern.replace(r"\B", reading), "") is not None for reading in ("(?:)", "(?!)")}


def patterns() -> list[str]:
    rng = random.Random(7)
    pairs = sorted({"".join(parts) for parts in itertools.product(PARTS, repeat=2)})
    return [*PARTS, *rng.sample(pairs, 30), *("|".join(rng.sample(pairs, 2)) for _ in range(15))]


@pytest.mark.parametrize("search", [False, True])
def test_the_empty_text_is_matched_if_it_is_in_both_readings(search: bool) -> None:
    both = set()
    for pattern in patterns():
        found = readings(pattern)
        both.add(len(found))
        for dialect in ("python", "json-schema"):
            assert regex_to_dfa(pattern, search=search, dialect=dialect).accepts("") == all(found), pattern
        assert regex_to_dfa(pattern, search=search, dialect="json-schema-possible").accepts("") == any(found), pattern
    assert both == {1, 2}


def test_other_texts_are_matched_as_ever() -> None:
    for pattern in patterns():
        language = regex_to_dfa(pattern, dialect="python")
        for text in ("a", "aa", " ", "a ", " a"):
            assert language.accepts(text) == (re.fullmatch(pattern, text) is not None), (pattern, text)


def test_constraints_hold_for_both_readings() -> None:
    compiler = Compiler(BYTES)
    assert not compiler.regex(r"-*\B").accepts(b"")
    assert not compiler.json_schema({"type": "string", "pattern": r"^\B"}).accepts(b'""')
    assert not compiler.json_schema({"type": "string", "not": {"pattern": r"^\B"}}).accepts(b'""')
