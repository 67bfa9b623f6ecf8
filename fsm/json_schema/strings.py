"""Strings: tests become automata over the raw text, and those become JSON string literals.

Every combination of `pattern`, `format`, lengths, `enum` and their negations is one product of automata, so all are
exact at once. Characters are Unicode code points. In JSON every character has one spelling here: its own UTF-8
bytes, except `"`, `\\` and the control characters, which have the shortest escape that json.dumps writes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, cast

from ...errors import ConstraintTooLarge, InvalidRegex
from ..any_json import any_string
from ..compile_time import NO_LIMIT, CompileTime
from ..network.expression import Embed, Expression
from ..regex.regex import long_run, regex_to_dfa
from ..regex.regex_syntax import Dialect
from ..remembered import remembered
from ..text.counted import Counted, counted
from ..text.dfa import MAX_STATES, Dfa, Span, any_text, of_length, of_lengths
from ..text.extent import all_texts, is_finite, num_texts
from ..text.json_strings import JsonStrings
from ..text.literals import literal_dfa
from .algebra import Test
from .formats import format_language
from .lengths import joined
from .texts import is_writable

DENSE_STATES = 8_000
"""Most states of an automaton with lengths in it; beyond that lengths are counted separately."""
DENSE_LENGTH = 1_000
SMALL_LENGTH = 16
"""A least length up to this one is always a part of the automaton."""
MAX_LEAST_LENGTH = 1 << 24
MAX_PRODUCTS = 200_000
"""States of all the products that the conditions on one string take."""
MAX_COUNTED = 1 << 20
"""A language of this many texts counts as infinite."""
MAX_LENGTH = 1 << 29
"""A greatest length of this or more is no bound: no text is that long."""
_READ_TWICE = re.compile(r"\{,\d*\}|\[\^?\]", re.ASCII)


@functools.cache
def any_string_expression() -> Embed:
    """Any string (one shared object)."""
    return Embed(any_string())


@functools.cache
def any_key() -> Embed:
    """Any key of an object (one shared object)."""
    return Embed(any_string(), is_key=True)


def pattern_language(pattern: str, *, for_all: bool = True, compile_time: CompileTime = NO_LIMIT) -> Dfa:
    """The strings in which the pattern is found by all validators (or, if not `for_all`, by some; see `regex_syntax`).

    Raises:
        InvalidRegex: the pattern does not parse, is not regular, or no string could satisfy all validators.
        ConstraintTooLarge: its automaton is too large, or the time is over.
    """
    return _pattern_language(pattern, for_all, compile_time)


def _is_read_twice(pattern: str) -> bool:
    """Whether Python and ECMA-262 might take some of the pattern's characters for different things.

    `[^]a]` is one character for one of them and two for the other, `a{,2}` a repetition or the text itself.
    """
    return _READ_TWICE.search(pattern) is not None


@remembered(1024)
def _pattern_language(pattern: str, for_all: bool, compile_time: CompileTime) -> Dfa:
    dialect: Dialect = "json-schema" if for_all else "json-schema-possible"
    language = regex_to_dfa(pattern, search=True, dialect=dialect, compile_time=compile_time)
    if not _is_read_twice(pattern):  # nearly always
        return language
    try:
        other = regex_to_dfa(pattern, search=True, dialect="python", compile_time=compile_time)
    except InvalidRegex:
        return language  # only readers of ECMA-262 can
    if not for_all:
        return language.union(other)
    both = language.intersect(other)
    if both.is_empty() and not (language.is_empty() and other.is_empty()):
        error = InvalidRegex(
            f"{pattern!r} means one thing in ECMA-262 and another in Python; write {{0,n}} for {{,n}}, and \\] for a ] "
            "that belongs to a class"
        )
        error.is_malformed = False
        raise error
    return both


def string_language(tests: tuple[Test, ...], *, for_all: bool = True, compile_time: CompileTime = NO_LIMIT) -> Dfa:
    """The strings that pass every test for all validators (or, if not `for_all`, for some), as raw text."""
    return _string_language(tests, for_all, compile_time)


@remembered(1024)
def _string_language(tests: tuple[Test, ...], for_all: bool, compile_time: CompileTime) -> Dfa:
    language = any_text()
    listed = _listed(tests)
    if listed is not None:
        texts = list(listed[0])
        for test in _cheapest_first(listed[1]):
            texts = _passing(test, for_all, compile_time).among(texts)
        return literal_dfa(texts)
    num_states = 0
    for test in _cheapest_first(tests):
        other = _passing(test, for_all, compile_time)
        compile_time.check_here()
        language = other if language is any_text() else language.intersect(other)
        num_states += language.num_states
        if num_states > MAX_PRODUCTS:
            raise ConstraintTooLarge(
                f"{len(tests)} conditions on one string need automata of more than {MAX_PRODUCTS} states; say fewer"
            )
    return language


@remembered(1024)
def string_expression(tests: tuple[Test, ...], compile_time: CompileTime = NO_LIMIT) -> Expression | None:
    """The same strings as JSON literals; None if there are none.

    Long bounds on the length are counted (`counted.py`) instead of being multiplied into the automaton.
    """
    if not tests:
        return any_string_expression()
    return _expression(tests, any_text(), _quoted, compile_time)


def joined_lengths(
    alternatives: Iterable[tuple[Test, ...]], compile_time: CompileTime = NO_LIMIT
) -> list[tuple[Test, ...]]:
    """The same strings: alternatives that differ in bounds on the length alone are one, where that is not too large."""

    def longest(tests: tuple[Test, ...]) -> int:
        others = _lengths_apart(tests)[0]
        language = string_language(others, compile_time=compile_time) if others else any_text()
        # a product has at most a state for each of the language's at each length
        return MAX_LENGTH if language is any_text() else MAX_STATES // language.num_states - 2

    return joined(alternatives, longest)


@remembered(1024)
def raw_expression(tests: tuple[Test, ...], among: Dfa, compile_time: CompileTime = NO_LIMIT) -> Expression | None:
    """The same strings as they are, without quotes, as far as they belong to a language; None if there are none."""
    return _expression(tests, among, lambda language: language, compile_time)


def _quoted(language: Dfa) -> JsonStrings:
    return any_string() if language is any_text() else JsonStrings(language)


def _expression(
    tests: tuple[Test, ...],
    among: Dfa,
    spelt: Callable[[Dfa], Dfa | JsonStrings],
    compile_time: CompileTime,
    *,
    for_all: bool = True,
) -> Expression | None:
    """The strings of a language that pass every test (or, if not `for_all`, more than might), spelt in some way."""
    others, minimum, maximum = _lengths_apart(tests, for_all=for_all)
    if _listed(tests) is not None:  # lengths and all
        others = tests
    language = string_language(others, for_all=for_all, compile_time=compile_time)
    compile_time.check_here()
    if among is not any_text():
        language = among if language is any_text() else language.intersect(among)
    if others == tests:
        return None if language.is_empty() else Embed(spelt(language))
    if 0 < minimum <= SMALL_LENGTH:
        language, minimum = _within(language, minimum, None), 0
    bound = minimum if maximum is None else maximum
    if not _is_dense(language, bound):
        found = counted(spelt(language), minimum, maximum)
        if found is not None:
            return None if found.is_empty() else Embed(found)
    language = _within(language, minimum, maximum)
    return None if language.is_empty() else Embed(spelt(language))


def _within(language: Dfa, minimum: int, maximum: int | None) -> Dfa:
    """The texts of a language with a number of characters between two bounds."""
    lengths = of_length(minimum, maximum)
    return lengths if language is any_text() else language.intersect(lengths)


@remembered(1024)
def distinct_strings(tests: tuple[Test, ...], compile_time: CompileTime = NO_LIMIT) -> tuple[Embed | None, int | None]:
    """The same strings, each of them once in a list, and how many there are; see `arrays.DistinctStrings`."""
    expression = string_expression(tests, compile_time)
    if expression is None:
        return None, 0
    assert isinstance(expression, Embed)
    is_counted = isinstance(expression.language, Counted)
    if is_counted and not is_finite(string_language(_lengths_apart(tests)[0], compile_time=compile_time)):
        return replace(expression, is_item=True), None
    return replace(expression, is_item=True), num_strings([string_language(tests, compile_time=compile_time)])


def num_strings(languages: Iterable[Dfa]) -> int | None:
    """How many texts there are in all; None if they are endlessly many, or as good as."""
    total = 0
    for language in languages:
        total += num_texts(language, MAX_COUNTED)
        if total >= MAX_COUNTED:
            return None
    return total


def asks_for_lengths(tests: tuple[Test, ...]) -> bool:
    """Whether some test is about the length, alone or with others."""
    return _lengths_apart(tests)[0] != tests


def are_apart(left: tuple[Test, ...], right: tuple[Test, ...], compile_time: CompileTime = NO_LIMIT) -> bool:
    """Whether no string that passes the tests of one side for all validators passes those of the other for some.

    Quick where none of them asks for a length, or one lists strings. False may also mean that it is not known.
    """
    listed = _listed(left + right)
    if listed is not None:
        texts, rest = listed
        return not any(map(is_writable, texts)) or (
            rest != () and _string_language(left + right, False, compile_time).is_empty()
        )
    if asks_for_lengths(left) or asks_for_lengths(right):
        return _expression(left + right, any_text(), _quoted, compile_time, for_all=False) is None
    return all(
        _string_language(left, for_all, compile_time).is_disjoint_from(
            _string_language(right, not for_all, compile_time)
        )
        for for_all in (True, False)
    )


def few_strings(tests: tuple[Test, ...], limit: int, compile_time: CompileTime = NO_LIMIT) -> list[str] | None:
    """All strings that pass every test; None if they are more than `limit`."""
    others, minimum, maximum = _lengths_apart(tests)
    if others != tests:
        language = string_language(others, compile_time=compile_time)
        bound = minimum if maximum is None else maximum
        if not _is_dense(language, bound) and not is_finite(language):
            found = counted(language, minimum, maximum)
            if found is not None and not found.is_empty():
                return None  # more than a few, or too long to be listed
    return all_texts(string_language(tests, compile_time=compile_time), limit)


def _listed(tests: tuple[Test, ...]) -> tuple[frozenset[str], tuple[Test, ...]] | None:
    """The strings that pass all tests about lists and lengths, and the other tests; None if no test lists strings.

    Constants of which some are excluded, one after the other, need no automata.
    """
    allowed = [cast("frozenset[str]", test[1]) for test in tests if test[0] == "among"]
    if not allowed:
        return None
    others, minimum, maximum = _lengths_apart(tests)
    refused: list[frozenset[str]] = []
    rest: list[Test] = []
    for test in others:
        if test[0] == "not" and len(inner := cast("tuple[Test, ...]", test[1])) == 1 and inner[0][0] == "among":
            refused.append(cast("frozenset[str]", inner[0][1]))
        elif test[0] != "among":
            rest.append(test)
    texts = allowed[0].intersection(*allowed[1:]).difference(*refused)
    if others != tests:
        most = MAX_LENGTH if maximum is None else maximum
        texts = frozenset([text for text in texts if minimum <= len(text) <= most])
    return texts, tuple(rest)


def _is_dense(language: Dfa, bound: int) -> bool:
    return bound <= DENSE_LENGTH and (language.num_states - 1) * bound <= DENSE_STATES


def _lengths_apart(tests: tuple[Test, ...], *, for_all: bool = True) -> tuple[tuple[Test, ...], int, int | None]:
    """The tests that are not about the length, and the bounds of all the others together."""
    minimum, maximum = 0, MAX_LENGTH
    others: list[Test] = []
    for test in tests:
        bounds: tuple[int, int | None] | None = None
        if test[0] == "length":
            bounds = cast("tuple[int, int | None]", test[1:])
        elif test[0] == "pattern" and (run := long_run(cast(str, test[1]))) is not None:
            low, high = run[1:]
            others.append(("run" if for_all else "possible-run", test[1]))
            bounds = low, high if for_all or high is None else high + 1
        else:
            others.append(test)
        if bounds is not None:
            low, high = bounds
            minimum, maximum = max(minimum, low), min(maximum, MAX_LENGTH if high is None else high)
    if minimum > MAX_LEAST_LENGTH:
        raise ConstraintTooLarge(f"a string of at least {minimum} characters is too long; at most {MAX_LEAST_LENGTH}")
    return tuple(others), minimum, None if maximum == MAX_LENGTH else maximum


@remembered(1024)
def key_expression(language: Dfa) -> Embed:
    """The texts of an automaton as keys of an object."""
    return Embed(JsonStrings(language), is_key=True)


def _cheapest_first(tests: tuple[Test, ...]) -> list[Test]:
    order = {"among": 0, "format": 1, "run": 1, "possible-run": 1, "pattern": 2, "not": 3, "length": 4, "lengths": 4}
    return sorted(tests, key=lambda test: order[cast(str, test[0])])


def _passing(test: Test, for_all: bool, compile_time: CompileTime) -> Dfa:
    kind: Any = test[0]
    argument: Any = test[1]
    if kind == "pattern":
        return _pattern_language(argument, for_all, compile_time)
    if kind == "run":
        run = long_run(argument)
        assert run is not None
        return run[0]
    if kind == "possible-run":
        run = long_run(argument, for_all=False)
        return any_text() if run is None else run[0].concatenate(regex_to_dfa(r"\n?"))
    if kind == "length":
        return of_length(argument, cast("int | None", test[2]))
    if kind == "lengths":
        return of_lengths(cast("tuple[Span, ...]", argument))
    if kind == "format":
        return format_language(argument, for_all=for_all)
    if kind == "among":
        return literal_dfa(argument)
    assert kind == "not", kind
    return any_text().difference(_string_language(argument, not for_all, compile_time))
