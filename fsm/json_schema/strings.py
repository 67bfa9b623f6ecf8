"""Strings: tests become automata over the raw text, and those become JSON string literals.

Every combination of `pattern`, `format`, lengths, `enum` and their negations is one product of automata, so all are
exact at once. Characters are Unicode code points. In JSON every character has one spelling here: its own UTF-8
bytes, except `"`, `\\` and the control characters, which have the shortest escape that json.dumps writes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, cast

from ..any_json import string_text
from ..dfa import Dfa
from ..expression import Embed
from ..regex import regex_to_dfa
from .formats import format_language
from .parts import Test
from .texts import is_writable

ANY_STRING = Dfa.any_text()
ANY_STRING_EXPRESSION = Embed(string_text())


def pattern_language(pattern: str) -> Dfa:
    """The strings in which the pattern is found.

    Raises:
        InvalidRegex: the pattern does not parse or is not regular.
        ConstraintTooLarge: its automaton is too large.
    """
    return regex_to_dfa(pattern, search=True, dialect="json-schema")


@functools.lru_cache(maxsize=1024)
def string_language(tests: tuple[Test, ...]) -> Dfa:
    """The strings that pass every test, as raw text."""
    language = ANY_STRING
    for test in _cheapest_first(tests):
        other = _passing(test)
        language = other if language is ANY_STRING else language.intersect(other)
    return language


@functools.lru_cache(maxsize=1024)
def string_expression(tests: tuple[Test, ...]) -> Embed | None:
    """The same strings as JSON literals; None if there are none."""
    if not tests:
        return ANY_STRING_EXPRESSION
    language = string_language(tests)
    return None if language.is_empty() else Embed(language.json_string())


@functools.lru_cache(maxsize=1024)
def key_expression(language: Dfa) -> Embed:
    """The texts of an automaton as JSON literals."""
    return Embed(language.json_string())


def literal_language(texts: Iterable[str]) -> Dfa:
    """Exactly these texts; those with lone surrogates cannot be written and are left out."""
    return Dfa.from_literals(text.encode() for text in texts if is_writable(text))


def _cheapest_first(tests: tuple[Test, ...]) -> list[Test]:
    order = {"among": 0, "format": 1, "pattern": 2, "not": 3, "length": 4}
    return sorted(tests, key=lambda test: order[cast(str, test[0])])


def _passing(test: Test) -> Dfa:
    kind: Any = test[0]
    argument: Any = test[1]
    if kind == "pattern":
        return pattern_language(argument)
    if kind == "length":
        return Dfa.length(argument, cast("int | None", test[2]))
    if kind == "format":
        return format_language(argument)
    if kind == "among":
        return literal_language(argument)
    assert kind == "not", kind
    return string_language(argument).complement_utf8()
