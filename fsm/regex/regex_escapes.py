"""Reads one escape of a regular expression: the set of characters that a backslash and what follows it stand for.

Functions of the pattern and an offset that give the set and the offset after it; what surrounds the escape
(groups, quantifiers, classes, flags) is read by `regex_syntax.py`.

Two families of readings differ in \\d \\w \\s and in unknown escapes: Python's and ECMA-262's. For the latter a class
is asked for twice: with what belongs to it for all engines that may read the pattern, and for any of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ...errors import InvalidRegex
from ..text.alphabet import MAX_CODE_POINT, complement, normalised
from ..text.unicode_sets import (
    ASCII_DIGITS,
    ASCII_WORD,
    ECMA_SPACE,
    Intervals,
    unicode_digits,
    unicode_space,
    unicode_word,
)
from .unicode_properties import character_property

# of \d \w \s: what belongs to it in ECMA-262 and in Python, and what belongs to it in Python
_CLASSES: dict[str, tuple[Intervals, Callable[[], Intervals]]] = {
    "d": (ASCII_DIGITS, unicode_digits),
    "w": (ASCII_WORD, unicode_word),
    "s": (tuple(interval for interval in ECMA_SPACE if interval != (0xFEFF, 0xFEFF)), unicode_space),
}
_ASCII_CLASSES: dict[str, Intervals] = {"d": ASCII_DIGITS, "w": ASCII_WORD, "s": ((9, 13), (32, 32))}
_CONTROL = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13, "a": 7, "e": 27}
_OCTAL = re.compile("[0-7]{1,3}")
_BRACED = re.compile(r"\{([0-9A-Fa-f]{1,8})\}")
_LOW_SURROGATE = re.compile(r"\\u([dD][c-fC-F][0-9A-Fa-f]{2})")
_PROPERTY = re.compile(r"\{(\^?)([^{}]*)\}|([A-Z])")


def syntax_error(pattern: str, message: str, offset: int) -> InvalidRegex:
    """The error that says what is wrong at an offset of a pattern, and shows the pattern."""
    shown = pattern if len(pattern) <= 80 else pattern[:77] + "..."  # as it is: in a repr backslashes double
    return InvalidRegex(f"{message} at offset {offset} of the pattern '{shown}'", pointer=f"offset {offset}")


def unsupported(pattern: str, message: str, offset: int) -> InvalidRegex:
    """The same for what is well formed, and cannot be enforced."""
    error = syntax_error(pattern, message, offset)
    error.is_malformed = False
    return error


def read_escape(
    pattern: str, offset: int, *, in_class: bool, is_python: bool, ascii_only: bool, for_all: bool
) -> tuple[Intervals, int]:
    """The set, often of one, that the escape whose backslash stands at `offset` means, and the offset after it."""
    position = offset + 1
    c = pattern[position : position + 1]
    if not c:
        raise syntax_error(pattern, "a backslash at the very end", offset)
    position += 1
    if c in "dDwWsS":
        return _named_class(c, is_python=is_python, ascii_only=ascii_only, for_all=for_all), position
    if c in "pP":
        return _property(pattern, offset)
    if c in _CONTROL:
        point = _CONTROL[c]
    elif c == "b" and in_class:
        point = 8
    elif c in "xuU":
        point, position = _hexadecimal(pattern, offset)
    elif c == "c" and re.match("[A-Za-z]", pattern[position : position + 1]):
        point = ord(pattern[position]) & 31
        position += 1
    elif c.isdigit() and c.isascii():
        point, position = _octal(pattern, offset, in_class=in_class)
    elif c == "k" and pattern.startswith("<", position):
        raise unsupported(pattern, "a backreference is not regular", offset)
    elif c.isalpha() and c.isascii() and is_python:
        raise syntax_error(pattern, f"an unknown escape \\{c}", offset)
    else:
        point = ord(c)
    return ((point, point),), position


def _named_class(c: str, *, is_python: bool, ascii_only: bool, for_all: bool) -> Intervals:
    """What \\d \\w \\s, or a capital that asks for the rest, holds."""
    narrow, wide = _CLASSES[c.lower()]
    if is_python:
        intervals = _ASCII_CLASSES[c.lower()] if ascii_only else wide()
    elif for_all == c.islower():
        intervals = narrow
    else:
        intervals = tuple(normalised((*wide(), *ECMA_SPACE))) if c in "sS" else wide()
    return tuple(complement(intervals)) if c.isupper() else intervals


def _octal(pattern: str, offset: int, *, in_class: bool) -> tuple[int, int]:
    match = _OCTAL.match(pattern, offset + 1)
    if match is None or (pattern[offset + 1] != "0" and len(match[0]) < 3 and not in_class):
        raise unsupported(pattern, "a backreference is not regular", offset)
    if int(match[0], 8) > 0xFF:
        raise syntax_error(pattern, "an octal escape beyond 377", offset)
    return int(match[0], 8), match.end()


def _hexadecimal(pattern: str, offset: int) -> tuple[int, int]:
    position = offset + 2
    num_digits = {"x": 2, "u": 4, "U": 8}[pattern[offset + 1]]
    match = _BRACED.match(pattern, position)
    digits = match[1] if match else pattern[position : position + num_digits]
    if (len(digits) != num_digits and not match) or not re.fullmatch("[0-9A-Fa-f]+", digits):
        raise syntax_error(pattern, f"an escape that needs {num_digits} hexadecimal digits", offset)
    position = match.end() if match else position + num_digits
    point = int(digits, 16)
    if 0xD800 <= point < 0xDC00 and num_digits == 4:
        low = _LOW_SURROGATE.match(pattern, position)
        if low is not None:
            position = low.end()
            point = 0x10000 + ((point - 0xD800) << 10) + int(low[1], 16) - 0xDC00
    if point > MAX_CODE_POINT:
        raise syntax_error(pattern, "a code point beyond 10FFFF", offset)
    return point, position


def _property(pattern: str, offset: int) -> tuple[Intervals, int]:
    match = _PROPERTY.match(pattern, offset + 2)
    if match is None:
        raise syntax_error(pattern, "a Unicode class without a name", offset)
    name = match[3] or match[2]
    intervals = character_property(name)
    if intervals is None:
        raise unsupported(
            pattern,
            f"the unknown Unicode class {name!r} (neither a general category nor a script, block or binary property)",
            offset,
        )
    negated = (pattern[offset + 1] == "P") != bool(match[1])
    return tuple(complement(intervals)) if negated else intervals, match.end()
