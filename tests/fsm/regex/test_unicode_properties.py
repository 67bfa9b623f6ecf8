"""`\\p{…}` against the `regex` package, over all code points, and its names."""

from __future__ import annotations

import functools
import unicodedata

import pytest
import regex
from regex import _regex_core

from phloem.errors import InvalidRegex
from phloem.fsm.regex.regex import regex_to_dfa
from phloem.fsm.regex.unicode_properties import character_property

ALL = "".join(map(chr, range(0x110000)))
BINARY = (
    "Alphabetic", "AHex", "Bidi_C", "Bidi_M", "CI", "Cased", "CWCF", "CWCM", "CWL", "CWT", "CWU", "Dash", "DI", "Dep",
    "Dia", "Emoji", "EComp", "EMod", "EBase", "EPres", "ExtPict", "Ext", "Gr_Base", "Gr_Ext", "Hex_Digit", "IDSB",
    "IDST", "ID_Continue", "ID_Start", "Ideographic", "Join_C", "LOE", "Lowercase", "Math", "NChar", "Pat_Syn",
    "Pat_WS", "QMark", "Radical", "RI", "STerm", "SD", "Term", "UIdeo", "Uppercase", "VS", "White_Space",
    "XIDC", "XIDS",
)  # fmt: skip


def points_of(name: str) -> set[int]:
    intervals = character_property(name)
    assert intervals is not None, name
    return {point for low, high in intervals for point in range(low, high + 1)}


def points_in_regex(name: str) -> set[int]:
    found: set[int] = set()
    for match in regex.finditer(rf"\p{{{name}}}+", ALL):
        found.update(range(*match.span()))
    return found


@functools.cache
def most_differences() -> int:
    """Zero where both know the same characters; a few if `regex` is of another version of Unicode."""
    return 0 if points_of("sc=Unknown") == points_in_regex("sc=Unknown") else 50


@functools.cache
def assigned() -> frozenset[int]:
    """What has been a character for long."""
    return frozenset(point for point, character in enumerate(ALL) if unicodedata.category(character) != "Cn")


def agrees(name: str) -> None:
    wrong = points_of(name) ^ points_in_regex(name)
    if most_differences():
        wrong &= assigned()
    assert len(wrong) <= most_differences(), (name, [hex(point) for point in sorted(wrong)[:20]])


@pytest.mark.parametrize("kind", ["SCRIPT", "SCRIPTEXTENSIONS", "BLOCK"])
def test_every_script_and_block_has_the_characters_that_regex_gives_it(kind: str) -> None:
    first_names = {number: name for name, number in reversed(_regex_core.PROPERTIES[kind][1].items())}
    for name in first_names.values():
        if name not in ("NOBLOCK", "NB"):
            agrees(f"{kind}={name}")
    assert len(first_names) > 150


@pytest.mark.parametrize("name", BINARY)
def test_every_binary_property_has_the_characters_that_regex_gives_it(name: str) -> None:
    agrees(name)


@pytest.mark.parametrize(
    "name",
    ["Greek", "greek", "Grek", "IsGreek", "InGreek", "InGreek_and_Coptic", "Greek and Coptic", "script=greek",
     "Script:Grek", "sc=Greek", "scx=Greek", "Script_Extensions=Grek", "blk=Greek", "Block=BasicLatin", "Arabic",
     "Han", "Emoji", "IsAlphabetic", "Alphabetic=Yes", "Alphabetic=No", "Hex=f", "lu", "LC", "gc=ll",
     "General_Category=Decimal_Number", "ASCII", "Any", "Latin-1 Supplement", "Latn", "scx=Kits"],
)  # fmt: skip
def test_names_mean_what_they_mean_in_regex(name: str) -> None:
    agrees(name) if name not in ("lu", "LC", "gc=ll", "General_Category=Decimal_Number") else None
    inside, outside = (regex_to_dfa(f"\\{letter}{{{name}}}", dialect="python") for letter in "pP")
    for point in [*range(0, 0x500, 3), 0x1F00, 0x342, 0x4E2D, 0x1F600, 0x10FFFF]:
        expected = bool(regex.match(rf"\p{{{name}}}", chr(point)))
        assert inside.accepts(chr(point)) == expected and outside.accepts(chr(point)) != expected, hex(point)


def test_properties_stand_in_classes_and_patterns_of_schemas() -> None:
    dfa = regex_to_dfa(r"^[\p{Script=Greek}\p{sc=Cyrillic}_&&]+[^\p{L}]\P{Greek}\p{^Greek}$")
    assert dfa.accepts("αж_&1ab") and not dfa.accepts("αa1ab") and not dfa.accepts("αж11αb")


@pytest.mark.parametrize(
    "name", ["Klingon", "sc=Klingon", "Script=", "=Greek", "foo=Greek", "sc=Greek=x", "blk=NB", ""]
)
def test_unknown_names_are_refused_with_their_offset(name: str) -> None:
    with pytest.raises(InvalidRegex) as caught:
        regex_to_dfa(f"ab\\p{{{name}}}")
    assert caught.value.pointer == "offset 2"
