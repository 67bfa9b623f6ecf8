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
from ..expression import Embed, Expression, Literal, Repeat, Sequence
from ..regex import regex_to_dfa
from .formats import format_language
from .parts import Test
from .texts import is_writable

ANY_STRING = Dfa.any_text()
ANY_STRING_EXPRESSION = Embed(string_text())

MAX_COUNTED = 40_000
"""Longest length that is counted by the states of an automaton; beyond it a counter is used."""


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
def string_expression(tests: tuple[Test, ...]) -> Expression | None:
    """The same strings as JSON literals; None if there are none."""
    if not tests:
        return ANY_STRING_EXPRESSION
    if len(tests) == 1 and tests[0][0] == "length":
        minimum, maximum = cast("tuple[int, int | None]", tests[0][1:])
        if max(minimum, maximum or 0) > MAX_COUNTED:
            return Sequence((Literal(b'"'), Repeat(_character(), minimum, maximum), Literal(b'"')))
    language = string_language(tests)
    return None if language.is_empty() else Embed(language.json_string())


@functools.lru_cache(maxsize=1024)
def key_expression(language: Dfa) -> Embed:
    """The texts of an automaton as JSON literals."""
    return Embed(language.json_string())


@functools.cache
def _character() -> Embed:
    """One character of a JSON string."""
    escaped = r"\\(?:[\"\\bfnrt]|u00(?:0[0-7bef]|1[0-9a-f]))"
    return Embed(regex_to_dfa(rf"[^\"\\\u0000-\u001f]|{escaped}", search=False))


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
