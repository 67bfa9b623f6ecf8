"""Sets that ignore case match exactly what Python's `re` matches, whichever characters the text has."""

from __future__ import annotations

import functools
import re
from bisect import bisect_left, bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.fsm.regex.regex_syntax import parse
from phloem.fsm.regex.regex_tree import CharSet


@functools.cache
def characters() -> str:
    """All that have a case, what lies beside them, and some that have none."""
    points = [
        point for point in range(0x110000) if chr(point).lower() != chr(point) or chr(point).upper() != chr(point)
    ]
    near = {one for point in points for one in (point - 1, point, point + 1)}
    return "".join(map(chr, sorted(near | {*range(256), 0x345, 0x4E00, 0x1F600, 0x10FFFF} - {*range(0xD800, 0xE000)})))


ODD = "iIıİsSſßẞkK\u212aµμ\u0345ιΙ\u1fbeΰ\u1fe3ﬅﬆςσΣǅǆǄᲀвВθϑΘ𐐀𐐨azAZ09_\n-"
SINGLE = st.sampled_from(ODD) | st.characters(exclude_categories=["Cs"])
RANGES = st.tuples(SINGLE, SINGLE).map(lambda pair: f"{re.escape(min(pair))}-{re.escape(max(pair))}")
PARTS = st.one_of(SINGLE.map(re.escape), RANGES, st.sampled_from([rf"\{letter}" for letter in "dDsSwW"]))
SETS = st.tuples(st.sampled_from(["", "^"]), st.lists(PARTS, min_size=1, max_size=4).map("".join)).map(
    lambda parts: f"[{parts[0]}{parts[1]}]"
)
ATOMS = st.one_of(SINGLE.map(re.escape), SETS, st.sampled_from([".", *(rf"\{letter}" for letter in "dDsSwW")]))


def check(pattern: str) -> None:
    found = parse(pattern, "python")
    assert isinstance(found, CharSet)
    matched = {ord(one) for one in re.findall(pattern, characters())}
    said: set[int] = set()
    for low, high in found.intervals:
        said |= set(map(ord, characters()[bisect_left(characters(), chr(low)) : bisect_right(characters(), chr(high))]))
    assert said == matched, pattern


@settings(max_examples=60)
@given(st.sampled_from(["(?i)", "(?i)", "(?i)", "(?ai)"]), ATOMS)
def test_what_matches_is_what_re_matches(flags: str, atom: str) -> None:
    check(flags + atom)


@pytest.mark.parametrize(
    "pattern",
    [*(r"\w", r"\W", r"[\w]", r"[^\w]", "[^a-z]", "[^i]", "i", "İ", "[a-z]", "ﬅ", "ß", "k", "\u0345", "[a𐐀]", "[𐐀]")],
)
def test_odd_letters(pattern: str) -> None:
    check(f"(?i){pattern}")


@pytest.mark.parametrize("pattern", ["[i-𐐀]", "[^i-𐐀]", "[Ÿ-𐐀]", "[a𐐀]", "𐐀", "[K-𐐀z]", "[𐐀-𐐨]"])
def test_ranges_beyond_the_basic_plane_where_only_ascii_has_case(pattern: str) -> None:
    check(f"(?ai){pattern}")


def canonical(character: str) -> str:
    """ECMA-262's Canonicalize, without the u flag."""
    upper = character.upper()
    return character if len(upper) != 1 or (character > "\x7f" >= upper) else upper


@settings(max_examples=40)
@given(st.sampled_from(["", "^"]), st.lists(SINGLE, min_size=1, max_size=4))
def test_in_a_schema_both_readings_hold(negation: str, members: list[str]) -> None:
    found = parse(f"(?i)[{negation}{''.join(map(re.escape, members))}]", "json-schema")
    assert isinstance(found, CharSet)
    in_python = set(re.findall(f"(?i)[{negation}{''.join(map(re.escape, members))}]", characters()))
    folded, simply = {canonical(one) for one in members}, {one.casefold() for one in members}
    in_ecma = {one for one in characters() if (canonical(one) in folded) != bool(negation)}
    with_u = {one for one in characters() if (one.casefold() in simply) != bool(negation)}
    said = {
        one
        for low, high in found.intervals
        for one in characters()[bisect_left(characters(), chr(low)) : bisect_right(characters(), chr(high))]
    }
    assert said <= in_python & in_ecma & with_u
    assert said >= {one for one in members if not negation} & in_python
