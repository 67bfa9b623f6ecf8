"""The algebra of text automata against sets of texts."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge
from phloem.fsm.regex.regex import regex_to_dfa
from phloem.fsm.text.counted import counted
from phloem.fsm.text.dfa import Dfa, any_text, no_text, of_length
from phloem.fsm.text.extent import all_texts, is_finite, max_length, num_texts, shortest_text
from phloem.fsm.text.json_strings import JsonStrings
from phloem.fsm.text.language import Language
from phloem.fsm.text.literals import literal_dfa
from phloem.fsm.text.text_table import text_table

LETTERS = 'ab"\\\né中😀\x01'
UNIVERSE = ["".join(t) for n in range(4) for t in itertools.product('ab"é', repeat=n)]
words = st.sets(st.text(alphabet=LETTERS, max_size=4), max_size=8)
texts = st.text(alphabet=LETTERS, max_size=5)


def of(found: set[str]) -> Dfa:
    return literal_dfa(found)


def spells(language: Language, data: bytes) -> bool:
    """Whether its bytes, one after the other, lead to where the text may end."""
    state = language.start
    for byte in data:
        state = int(language.row(state)[byte])
    return language.is_accepting(state)


@settings(deadline=None)
@given(words, words, texts)
def test_algebra_is_that_of_sets(left: set[str], right: set[str], text: str) -> None:
    a, b = of(left), of(right)
    for probe in (text, *left, *right):
        mine, theirs = probe in left, probe in right
        assert a.intersect(b).accepts(probe) == (mine and theirs)
        assert a.union(b).accepts(probe) == (mine or theirs)
        assert a.difference(b).accepts(probe) == (mine and not theirs)
        assert any_text().difference(a).accepts(probe) == (not mine)
    probes = [text, *sorted(right), *sorted(left)]
    assert a.among(probes) == [probe for probe in probes if probe in left]
    assert a.difference(b).is_empty() == (left <= right)
    assert a.is_disjoint_from(b) == left.isdisjoint(right)
    assert num_texts(a.union(b), 100) == len(left | right)
    assert sorted(all_texts(a, 100) or []) == sorted(left)
    assert a.is_empty() == (not left)
    assert max_length(a) == max((len(word) for word in left), default=-1)


@settings(deadline=None)
@given(words, words)
def test_concatenation_is_that_of_sets(left: set[str], right: set[str]) -> None:
    found = all_texts(of(left).concatenate(of(right)), 1000)
    assert set(found or []) == {a + b for a in left for b in right}


@settings(deadline=None)
@given(words)
def test_minimised_is_the_same_language(found: set[str]) -> None:
    dfa = of(found)
    small = dfa.minimised()
    assert small.num_states <= dfa.num_states
    assert small.difference(dfa).is_empty() and dfa.difference(small).is_empty()


@settings(deadline=None)
@given(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 5)), texts)
def test_length_counts_code_points(minimum: int, maximum: int | None, text: str) -> None:
    expected = minimum <= len(text) and (maximum is None or len(text) <= maximum)
    assert of_length(minimum, maximum).accepts(text) == expected


@settings(deadline=None)
@given(texts, texts)
def test_json_strings_are_spelt_as_json_dumps_does(member: str, other: str) -> None:
    language = JsonStrings(of({member}))
    for text in (member, other):
        assert spells(language, json.dumps(text, ensure_ascii=False).encode()) == (text == member)
    escaped = json.dumps(member)
    assert spells(language, escaped.encode()) == (escaped == json.dumps(member, ensure_ascii=False))


@settings(deadline=None)
@given(st.sets(st.text(st.sampled_from('abcXY09"\\é中'), max_size=3), min_size=1, max_size=20), st.integers(1, 25))
def test_a_table_has_no_more_texts_than_the_language_and_knows_those_in_ascii(found: set[str], enough: int) -> None:
    for language in (of(found), JsonStrings(of(found))):
        assert not text_table(language).surely_has(enough) or enough <= len(found)
    if all(text.isalnum() and text.isascii() for text in found):
        assert text_table(of(found)).surely_has(len(found))


def test_texts_of_a_length_are_counted_within_its_bounds() -> None:
    few = counted(JsonStrings(regex_to_dfa("a*")), 3, 100)
    assert few is not None
    assert text_table(few).surely_has(98) and not text_table(few).surely_has(99)


@settings(deadline=None)
@given(texts)
def test_byte_automaton_agrees_with_the_character_automaton(text: str) -> None:
    raw = regex_to_dfa(r"[a\\é]*[^b]?|中+")
    for language, data in ((raw, text.encode()), (JsonStrings(raw), json.dumps(text, ensure_ascii=False).encode())):
        assert spells(language, data) == raw.accepts(text)


def test_bytes_that_are_not_utf8_lead_nowhere() -> None:
    everything = any_text()
    for data in (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xe0\x80\x80", b"\xf4\x90\x80\x80", b"a\x80"):
        state = everything.start
        for byte in data:
            state = int(everything.row(state)[byte])
        assert state == 0
        assert not everything.accepts(data)


def test_shortest_is_a_member_and_no_longer_than_any() -> None:
    for pattern in ("a{3}|bb", "x*y", "[^a]{2}", ""):
        dfa = regex_to_dfa(pattern)
        assert dfa.accepts(shortest_text(dfa))
        assert all(not dfa.accepts(text) for text in UNIVERSE if len(text) < len(shortest_text(dfa).decode()))
    with pytest.raises(ValueError, match="empty"):
        shortest_text(no_text())


def test_infinite_languages_are_known_as_such() -> None:
    assert not is_finite(regex_to_dfa("a*"))
    assert num_texts(regex_to_dfa("a*"), 50) == 50
    assert all_texts(regex_to_dfa("a*"), 50) is None
    assert num_texts(regex_to_dfa("a{0,9}"), 50) == 10
    assert num_texts(regex_to_dfa("."), 10**9) == 0x110000 - 2048 - 4


def test_too_large_products_are_refused() -> None:
    left, right = regex_to_dfa("(?:a{401})*"), regex_to_dfa("(?:a{403})*")
    with pytest.raises(ConstraintTooLarge):
        left.intersect(right)
    with pytest.raises(ConstraintTooLarge):
        of_length(0, 10**9)
