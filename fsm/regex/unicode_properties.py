"""Sets of code points by what Unicode says of them: `\\p{…}` of a regular expression.

General categories come from Python's `unicodedata` (`unicode_sets.py`). Scripts, script extensions, blocks and the
binary properties of ECMA-262 come from `unicode_properties.txt`, which `scripts/unicode_tables.py` writes: one line

    script greek|grek og 4 1 3 …

per set, with all its names and, in base 36, alternately the number of code points outside and inside it. A
script extension that is the same set as the script has no line. The file is read on first use (1 ms); a set is
unpacked when it is asked for.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from ..text.alphabet import complement
from ..text.unicode_sets import Intervals, general_category, loose

_TABLE = Path(__file__).with_name("unicode_properties.txt")
_CATEGORY = ("gc", "generalcategory", "category")
_KINDS = {
    "script": "script",
    "sc": "script",
    "scriptextensions": "extension",
    "scx": "extension",
    "block": "block",
    "blk": "block",
}
_YES, _NO = ("yes", "y", "true", "t"), ("no", "n", "false", "f")


@functools.lru_cache(maxsize=256)
def character_property(text: str) -> Intervals | None:
    """The code points that `\\p{text}` means, or None if nothing is called so.

    Args:
        text: `property=value` (or with a colon), or a value alone: a general category, a script, a block or a binary
            property, in this order; a prefix `Is` asks for the latter or a script, `In` for a block. Names are
            spelt loosely, and mean what they mean in the `regex` package.
    """
    names = [loose(name) for name in re.split("[=:]", text)]
    if len(names) > 2 or not all(names):
        return None
    if len(names) == 1:
        return _by_value(names[0])
    name, value = names
    if name in _CATEGORY:
        return general_category(value)
    if name in _KINDS:
        found = _set_of(_KINDS[name], value)
        return _set_of("script", value) if found is None and _KINDS[name] == "extension" else found
    found = _set_of("binary", name)
    if found is None or value not in _YES + _NO:
        return None
    return found if value in _YES else tuple(complement(found))


def _by_value(value: str) -> Intervals | None:
    found = general_category(value)
    asked = [("script", value), ("block", value), ("binary", value)]
    if value.startswith("is"):
        asked += [("binary", value[2:]), ("script", value[2:])]
    elif value.startswith("in"):
        asked.append(("block", value[2:]))
    for kind, name in asked:
        if found is None:
            found = _set_of(kind, name)
    return found


def _set_of(kind: str, name: str) -> Intervals | None:
    packed = _lines().get((kind, name))
    if packed is None:
        return None
    numbers = [int(number, 36) for number in packed.split()]
    intervals, end = [], 0
    for left_out, taken in zip(numbers[::2], numbers[1::2], strict=True):
        intervals.append((end + left_out, end + left_out + taken - 1))
        end += left_out + taken
    return tuple(intervals)


@functools.cache
def _lines() -> dict[tuple[str, str], str]:
    """By kind and name, the numbers of a set."""
    found: dict[tuple[str, str], str] = {}
    for line in _TABLE.read_text(encoding="ascii").splitlines():
        kind, names, packed = line.split(" ", 2)
        if kind != "#":
            found.update(((kind, name), packed) for name in names.split("|"))
    return found
