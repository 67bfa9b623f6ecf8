"""Random patterns against the engines that people have: `re`, `regex`, `interegular`.

A pattern is drawn together with how the oracle must spell it where the two differ on purpose:

    $    the very end of the text for us; Python's also stands before a last line break    oracle: \\Z
    \\B   is not \\b; the empty text, of which Pythons differ, is left to `test_empty_text`   oracle: (?!\\b)

Texts are all short ones over a small alphabet, and some longer ones.
"""

from __future__ import annotations

import random
import re
import warnings
from itertools import product
from typing import Any

import interegular
import pytest
import regex
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from phloem.errors import ConstraintTooLarge, InvalidRegex
from phloem.fsm.regex.regex import regex_to_dfa

ALPHABET = "aAb1_ \né"
SHORT = ["".join(text) for length in range(4) for text in product(ALPHABET, repeat=length)]

Pattern = tuple[str, str]
"""As we read it, and as the oracle does."""


def same(*patterns: str) -> st.SearchStrategy[Pattern]:
    return st.sampled_from([(pattern, pattern) for pattern in patterns])


characters = same("a", "A", "b", "1", "_", " ", "é", "\\n", "\\x61", "\\u00e9", "\\.", "ab", "b1")
classes = same(
    *("[ab]", "[^a]", "[a-z]", "[^a-zA-Z]", "[\\w]", "[^\\W\\d]", "[^\\s_]", "[A-Z1]", "[\\d\\s]", "[^\\n]", "[]a]"),
    *(".", "\\w", "\\W", "\\d", "\\D", "\\s", "\\S", "[é-ü]", "[a\\-b]", "[\\x61-\\x62]", "[^\\S ]"),
)
edges = st.sampled_from([("^", "^"), ("$", "\\Z"), ("\\A", "\\A"), ("\\Z", "\\Z"), ("\\b", "\\b"), ("\\B", "(?!\\b)")])
quantifiers = st.sampled_from(
    ["*", "+", "?", "{2}", "{0,2}", "{1,}", "{,2}", "{,}", "{1,3}", "{0}", "*?", "+?", "??", "{2}?", "{0,2}?", "{1,}?"]
)
scopes = st.sampled_from(["(?:%s)", "(%s)", "(?P<x%d>%s)", "(?i:%s)", "(?s:%s)", "(?-i:%s)", "(?a:%s)", "(?#it)(?:%s)"])
fixed = characters.filter(lambda pair: pair[0] not in ("ab", "b1")) | classes
numbers = iter(range(10**9))


def both(form: Any, *parts: Pattern) -> Pattern:
    """The same form around the parts, for either reader."""
    return form(*(part[0] for part in parts)), form(*(part[1] for part in parts))


def scoped(scope: str, part: Pattern) -> Pattern:
    if "%d" in scope:  # names of groups are used once
        scope = scope.replace("%d", str(next(numbers)))
    return both(lambda inner: scope % inner, part)


def compound(inner: st.SearchStrategy[Pattern], *, looks: bool) -> st.SearchStrategy[Pattern]:
    parts = st.lists(inner, min_size=1, max_size=3)
    forms = [
        parts.map(lambda found: both(lambda *texts: "".join(texts), *found)),
        parts.map(lambda found: both(lambda *texts: f"(?:{'|'.join(texts)})", *found)),
        parts.map(lambda found: both(lambda *texts: f"(?:|{'|'.join(texts)})", *found)),
        st.builds(lambda part, times: both(lambda text: f"(?:{text}){times}", part), inner, quantifiers),
        st.builds(scoped, scopes, inner),
    ]
    if looks:
        ahead = st.sampled_from(["(?=%s)", "(?!%s)", "(?!%s$)"]).filter(lambda form: "$" not in form)
        forms.append(st.builds(scoped, ahead, inner))
        after = st.lists(fixed, min_size=1, max_size=2)
        forms.append(
            st.builds(
                lambda form, found: both(lambda *texts: form % "".join(texts), *found),
                st.sampled_from(["(?<=%s)", "(?<!%s)"]),
                after,
            )
        )
    return st.one_of(forms)


patterns = st.recursive(characters | classes | edges, lambda inner: compound(inner, looks=True), max_leaves=7)
plain = st.recursive(characters | classes, lambda inner: compound(inner, looks=False), max_leaves=7)
flags = st.sampled_from(["", "", "", "(?i)", "(?s)", "(?m)", "(?a)", "(?is)", "(?x)"])


def texts(seed: int) -> list[str]:
    generator = random.Random(seed)
    longer = ["".join(generator.choices(ALPHABET, k=generator.randint(4, 9))) for _ in range(60)]
    return [*generator.sample(SHORT, 150), "", *ALPHABET, *longer]


def spelt(flag: str, pattern: Pattern) -> Pattern:
    ours, theirs = pattern
    if "m" in flag:  # $ is the end of a line for both
        theirs = ours.replace("\\B", "(?!\\b)")
    # after (?=), since `re` looks for the first character of a match without the flags of a group: (?a:\W) finds no é
    return flag + ours, f"{flag}(?=)(?:{theirs})"


def agree(ours: str, whole: Any, somewhere: Any, seed: int) -> None:
    """Compares with what an oracle says of a whole text, and of a match somewhere in it."""
    try:
        matches = regex_to_dfa(ours, dialect="python")
        contains = regex_to_dfa(ours, search=True, dialect="python")
    except ConstraintTooLarge:
        return
    except InvalidRegex as error:
        assert "inside a look-" in str(error)
        return
    for text in texts(seed):
        if not text and "\\B" in ours:
            continue  # readers differ: `test_empty_text`
        assert matches.accepts(text) == bool(whole(text)), text
        assert somewhere is None or contains.accepts(text) == bool(somewhere(text)), text


@settings(max_examples=450, deadline=None)
@given(flags, patterns, st.integers(0, 2**16))
@example("", ("(?a:\\W)", "(?a:\\W)"), 0)
def test_random_patterns_mean_what_they_mean_in_re(flag: str, pattern: Pattern, seed: int) -> None:
    ours, theirs = spelt(flag, pattern)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        oracle = re.compile(theirs)
    agree(ours, oracle.fullmatch, oracle.search, seed)


def is_read_alike(pair: Pattern) -> bool:
    """Whether ECMA-262 has all forms of a pattern, and they mean the same."""
    return "(?" not in re.sub(r"\(\?(:|=|!|<=|<!)", "", pair[0]) and "{," not in pair[0] and "[]" not in pair[0]


letters = same("a", "A", "b", "1", "_", " ", "é", "\\n", "[ab]", "[^a]", "[a-z]", "[^\\n]", "^", "$", "\\b")
shorthands = same(".", "\\w", "\\W", "\\d", "\\D", "\\s", "\\S", "[^\\W\\d]", "[\\s\\d]")
of_schemas = st.recursive(
    letters | shorthands | st.just(("\\B", "(?!\\b)")), lambda inner: compound(inner, looks=True), max_leaves=5
).filter(is_read_alike)


@settings(max_examples=200, deadline=None)
@given(of_schemas, st.integers(0, 2**16))
def test_what_a_schema_lets_through_re_finds_and_what_it_rules_out_re_does_not(pattern: Pattern, seed: int) -> None:
    ours, theirs = pattern
    oracle = re.compile(theirs)
    try:
        certain = regex_to_dfa(ours, search=True)
        possible = regex_to_dfa(ours, search=True, dialect="json-schema-possible")
    except (ConstraintTooLarge, InvalidRegex):
        return
    for text in texts(seed):
        found = bool(oracle.search(text))
        assert certain.accepts(text) <= found <= possible.accepts(text), text


behinds = st.builds(
    lambda form, body: both(lambda text: form % text, body),
    st.sampled_from(["(?<=%s)", "(?<!%s)", "(?<=^|%s)", "a(?<=^%s)", "(?<!^%s)b"]),
    plain,
)


def for_regex(pattern: str) -> str:
    """With sets in groups, so that `regex` joins no two: 2026.11.19 reads (?:[^a]|[^b]) as a set without a and b."""
    return re.sub(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\[WDS]", r"(\g<0>)", pattern)


@settings(max_examples=80, deadline=None)
@given(st.lists(behinds | characters | classes, min_size=2, max_size=3), st.integers(0, 2**16))
@example([("(?<=a)", "(?<=a)"), ("(?<=(?:[^a]|[^\\n]))", "(?<=(?:[^a]|[^\\n]))")], 0)
def test_look_behinds_of_any_width_mean_what_they_mean_in_regex(found: list[Pattern], seed: int) -> None:
    ours, theirs = both(lambda *parts: "".join(parts), *found)
    assume("(?a:" not in ours)  # in which `regex` reads some sets as Unicode's
    oracle = regex.compile(for_regex(theirs), regex.V0)
    agree(ours, oracle.fullmatch, oracle.search, seed)


INTEREGULAR_IS_WRONG = {
    "\\w": ("é", "letters of ASCII only"),
    "\\W": ("é", "the same, the other way round"),
    "\\d": ("٣", "digits of ASCII only"),
    "\\s": ("\u2003", "white space of ASCII only"),
    "[]a]": ("]", "a bracket that comes first closes the class"),
}
"""Patterns, a text that it judges otherwise than Python, and why. Anchors, \\b and look-behinds it cannot read."""


@pytest.mark.parametrize("pattern", INTEREGULAR_IS_WRONG)
def test_where_interegular_differs_it_differs_from_python_as_well(pattern: str) -> None:
    text = INTEREGULAR_IS_WRONG[pattern][0]
    theirs = bool(interegular.parse_pattern(pattern).to_fsm().accepts(text))
    assert theirs != bool(re.fullmatch(pattern, text)) == regex_to_dfa(pattern, dialect="python").accepts(text)


for_interegular = st.recursive(
    same("a", "A", "b", "1", "_", " ", "é", "\\n", "\\x61", "[ab]", "[^a]", "[^a-zA-Z]", ".", "[é-ü]", "[^\\n]"),
    lambda inner: compound(inner, looks=False),
    max_leaves=5,
).filter(lambda pair: not any(form in pair[0] for form in ("(?a:", "(?#")))


@settings(max_examples=60, deadline=None)
@given(for_interegular, st.integers(0, 2**16))
def test_random_patterns_mean_what_they_mean_in_interegular(pattern: Pattern, seed: int) -> None:
    agree(pattern[0], interegular.parse_pattern(pattern[1]).to_fsm().accepts, None, seed)
