"""Sets of code points by name: \\d \\w \\s, general categories.

The facts come from Python's own `unicodedata`, so they are those of the Unicode version that Python was built
with. Every table is computed on first use (5 to 40 ms) and kept; runs of characters that are alike are found by `re`,
which is five times as fast as a loop. What Python does not know (scripts, blocks, binary
properties) is in `unicode_properties.py`.
"""

from __future__ import annotations

import functools
import re
import unicodedata

import numpy as np

from .alphabet import MAX_CODE_POINT, Interval, complement, normalised

Intervals = tuple[Interval, ...]

ASCII_DIGITS: Intervals = ((0x30, 0x39),)
ASCII_WORD: Intervals = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
ECMA_SPACE: Intervals = (
    (0x09, 0x0D),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
)

# Planes 4 to 13 hold no assigned character, planes 15 and 16 only private ones.
SCANNED = ((0, 0x3FFFF), (0xE0000, 0xE0FFF))

_LONG_NAMES = {
    "letter": "L",
    "uppercaseletter": "Lu",
    "lowercaseletter": "Ll",
    "titlecaseletter": "Lt",
    "modifierletter": "Lm",
    "otherletter": "Lo",
    "mark": "M",
    "combiningmark": "M",
    "nonspacingmark": "Mn",
    "spacingmark": "Mc",
    "enclosingmark": "Me",
    "number": "N",
    "decimalnumber": "Nd",
    "digit": "Nd",
    "letternumber": "Nl",
    "othernumber": "No",
    "punctuation": "P",
    "punct": "P",
    "connectorpunctuation": "Pc",
    "dashpunctuation": "Pd",
    "openpunctuation": "Ps",
    "closepunctuation": "Pe",
    "initialpunctuation": "Pi",
    "finalpunctuation": "Pf",
    "otherpunctuation": "Po",
    "symbol": "S",
    "mathsymbol": "Sm",
    "currencysymbol": "Sc",
    "modifiersymbol": "Sk",
    "othersymbol": "So",
    "separator": "Z",
    "spaceseparator": "Zs",
    "lineseparator": "Zl",
    "paragraphseparator": "Zp",
    "other": "C",
    "control": "Cc",
    "format": "Cf",
    "surrogate": "Cs",
    "privateuse": "Co",
    "unassigned": "Cn",
}


@functools.cache
def _categories() -> dict[str, Intervals]:
    """The intervals of every two-letter general category."""
    found: dict[str, list[Interval]] = {}
    for low, high in SCANNED:
        names = "".join(map(unicodedata.category, _characters(low, high)))  # each has two letters
        for run in re.finditer(r"(..)\1*", names):
            found.setdefault(run[1], []).append((low + run.start() // 2, low + run.end() // 2 - 1))
    found["Cn"].extend([(0x40000, 0xDFFFF), (0xE1000, 0xEFFFF), (0xFFFFE, 0xFFFFF), (0x10FFFE, 0x10FFFF)])
    found["Co"].extend([(0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)])
    return {name: tuple(normalised(intervals)) for name, intervals in found.items()}


def loose(name: str) -> str:
    """A name of Unicode as it is compared: case, spaces, hyphens and underscores make no difference."""
    return name.replace("_", "").replace(" ", "").replace("-", "").lower()


@functools.lru_cache(maxsize=256)
def general_category(name: str) -> Intervals | None:
    """The set of a general category, or None if it is none.

    Args:
        name: short or long (`Lu`, `L`, `LC`, `Uppercase_Letter`), or `Any`, `ASCII`, `Assigned`; loosely spelt.
    """
    plain = loose(name)
    if plain == "any":
        return ((0, MAX_CODE_POINT),)
    if plain == "ascii":
        return ((0, 0x7F),)
    if plain == "assigned":
        return tuple(complement(_categories()["Cn"]))
    name = _LONG_NAMES.get(plain, plain.capitalize())
    wanted = ("Lu", "Ll", "Lt") if plain in ("lc", "l&", "casedletter") else None
    members = [
        interval
        for category, intervals in _categories().items()
        if (category in wanted if wanted else category == name or category[0] == name)
        for interval in intervals
    ]
    return tuple(normalised(members)) if members else None


@functools.cache
def unicode_digits() -> Intervals:
    """What Python's `\\d` matches: general category Nd."""
    return _runs(r"\d+")


@functools.cache
def unicode_letters() -> Intervals:
    """General category L, which `str.isalpha` tells; a third of the time of asking for the names of all categories."""
    points: list[Interval] = []
    for low, high in _runs(r"[^\W\d_]+"):  # letters, and numbers that are no digits
        if _characters(low, high).isalpha():
            points.append((low, high))
        else:
            points.extend((point, point) for point in range(low, high + 1) if chr(point).isalpha())
    return tuple(normalised(points))


@functools.cache
def unicode_word() -> Intervals:
    """What Python's `\\w` matches: letters, numbers with a value as text, and the underscore."""
    return _runs(r"\w+")


@functools.cache
def unicode_space() -> Intervals:
    """What Python's `\\s` matches."""
    return _runs(r"\s+")


def _runs(pattern: str) -> Intervals:
    points: list[Interval] = []
    for low, high in SCANNED:
        runs = re.finditer(pattern, _characters(low, high))
        points.extend((low + run.start(), low + run.end() - 1) for run in runs)
    return tuple(normalised(points))


def _characters(low: int, high: int) -> str:
    """All characters from `low` to `high`, surrogates among them."""
    return np.arange(low, high + 1, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
