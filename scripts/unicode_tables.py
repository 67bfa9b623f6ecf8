"""Writes `fsm/regex/unicode_properties.txt`: which characters have which script, block or binary property.

    python scripts/unicode_tables.py

The facts are those of the installed `regex` package, which carries the Unicode Character Database; Python's own
`unicodedata` knows neither scripts nor blocks. `fsm/regex/unicode_properties.py` reads the file and describes its form.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import regex
from regex import _regex_core

TABLE = Path(__file__).resolve().parents[1] / "fsm" / "regex" / "unicode_properties.txt"
ALL = "".join(map(chr, range(0x110000)))
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

# The binary properties that ECMA-262 names, as far as `regex` has them and they need a table.
BINARY = (
    "ASCII_Hex_Digit", "Alphabetic", "Bidi_Control", "Bidi_Mirrored", "Case_Ignorable", "Cased",
    "Changes_When_Casefolded", "Changes_When_Casemapped", "Changes_When_Lowercased", "Changes_When_Titlecased",
    "Changes_When_Uppercased", "Dash", "Default_Ignorable_Code_Point", "Deprecated", "Diacritic", "Emoji",
    "Emoji_Component", "Emoji_Modifier", "Emoji_Modifier_Base", "Emoji_Presentation", "Extended_Pictographic",
    "Extender", "Grapheme_Base", "Grapheme_Extend", "Hex_Digit", "IDS_Binary_Operator", "IDS_Trinary_Operator",
    "ID_Continue", "ID_Start", "Ideographic", "Join_Control", "Logical_Order_Exception", "Lowercase", "Math",
    "Noncharacter_Code_Point", "Pattern_Syntax", "Pattern_White_Space", "Quotation_Mark", "Radical",
    "Regional_Indicator", "Sentence_Terminal", "Soft_Dotted", "Terminal_Punctuation", "Unified_Ideograph",
    "Uppercase", "Variation_Selector", "White_Space", "XID_Continue", "XID_Start",
)  # fmt: skip

HEADER = """\
# Scripts, script extensions, blocks and binary properties of characters; written by scripts/unicode_tables.py.
# Derived from the Unicode Character Database, (c) Unicode, Inc., under the Unicode License v3.
"""


def main() -> None:
    TABLE.write_text(HEADER + "".join(f"{line}\n" for line in lines()), encoding="ascii")


def lines() -> Iterator[str]:
    """One line per property and value."""
    for kind, property_ in (("script", "SCRIPT"), ("block", "BLOCK")):
        for names in synonyms(_regex_core.PROPERTIES[property_][1]):
            if names[0] not in ("noblock", "nb"):
                yield f"{kind} {'|'.join(names)} {packed(f'{property_}={names[0]}')}"
    for names in synonyms(_regex_core.PROPERTIES["SCRIPTEXTENSIONS"][1]):
        extended = packed(f"scx={names[0]}")
        if extended != packed(f"sc={names[0]}"):
            yield f"extension {'|'.join(names)} {extended}"
    ids = {name: found[0] for name, found in _regex_core.PROPERTIES.items()}
    for names in synonyms(ids):
        if any(name.replace("_", "").lower() in names for name in BINARY):
            yield f"binary {'|'.join(names)} {packed(names[0])}"


def synonyms(ids: dict[str, int]) -> list[list[str]]:
    """Names, in small letters without underscores, that mean the same."""
    found: dict[int, list[str]] = {}
    for name, number in ids.items():
        found.setdefault(number, []).append(name.lower())
    return list(found.values())


def packed(name: str) -> str:
    """The intervals as numbers to base 36: how many code points are left out, how many are taken, and so on."""
    numbers, end = [], 0
    for match in regex.finditer(rf"\p{{{name}}}+", ALL):
        numbers += [match.start() - end, match.end() - match.start()]
        end = match.end()
    return " ".join(map(base_36, numbers))


def base_36(number: int) -> str:
    text = ""
    while number or not text:
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return text


if __name__ == "__main__":
    main()
