"""Internationalised host names: a regular part of IDNA 2008 (RFC 5890 to 5893).

Whether a label is allowed depends on its normal form, on its direction and on the length of its Punycode, none of
which an automaton can tell in general. So only labels are written for which all three hold in any case:

    characters    letters and digits of the basic plane that NFKC and case folding leave alone and that are written
                  from left to right; marks after them that never compose, none reordered with its neighbour
    hyphens       neither first nor last, nor third and fourth together
    lengths       MAX_WIDE characters, which take at most 58 in Punycode, or MAX_NARROW in ASCII; MAX_LABELS labels

Facts about characters come from Python's `unicodedata`. It takes half a second, once.
"""

from __future__ import annotations

import unicodedata

from ..regex.regex import regex_to_dfa
from ..text.dfa import Dfa, of_length

MAX_WIDE = 14
MAX_NARROW = 62
MAX_LABELS = 4  # of at most 62 characters each, encoded, and the dots between them: 253 is allowed
_LAST = 0xFFFF
_OLD_JAMO = ((0x1100, 0x11FF), (0xA960, 0xA97F), (0xD7B0, 0xD7FF))
_EXCEPTIONS = {0x302E, 0x302F, 0x303B, *range(0x3031, 0x3036)}  # disallowed by RFC 5892, 2.6
_FOR_SYMBOLS = range(0x20D0, 0x2100)  # combining marks that belong to no letter
_INVISIBLE = {0x034F, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10)}  # default ignorable
_NEVER = frozenset((*_EXCEPTIONS, *_INVISIBLE, *_FOR_SYMBOLS))
_ASCII_LABEL = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"


def idn_hostname() -> Dfa:
    """The host names, at least one character, at most 253 when they are encoded."""
    letters, marks, reordered = _characters()
    first = f"[a-z0-9{letters}]"
    wide = rf"{first}[{reordered}]?(?:[a-z0-9{letters}{marks}-][{reordered}]?)*"
    hyphens = regex_to_dfa(r"(?:[^]*-|[^]{2}--[^]*)", search=False)
    label = regex_to_dfa(wide, search=False).intersect(of_length(1, MAX_WIDE)).difference(hyphens)
    narrow = regex_to_dfa(_ASCII_LABEL, search=False).difference(hyphens)
    narrow = narrow.intersect(of_length(1, MAX_NARROW))
    either, dot = label.union(narrow), regex_to_dfa(r"\.", search=False)
    names = either
    for _ in range(MAX_LABELS - 1):
        names = either.union(either.concatenate(dot).concatenate(names))
    return names.minimised()


def _characters() -> tuple[str, str, str]:
    """As insides of a class: letters and digits, marks that stay where they are, marks that could change places."""
    composing = _composing()
    letters: list[int] = []
    marks: list[int] = []
    reordered: list[int] = []
    for point in range(0x80, _LAST + 1):
        character = chr(point)
        category = unicodedata.category(character)
        is_mark = category in ("Mn", "Mc")
        if not is_mark and category not in ("Ll", "Lo", "Lm", "Nd"):
            continue
        if point in _NEVER or any(low <= point <= high for low, high in _OLD_JAMO):
            continue
        direction = unicodedata.bidirectional(character)
        if (direction != "L" and not (is_mark and direction == "NSM")) or not _is_stable(character):
            continue
        if not is_mark:
            letters.append(point)
        elif character not in composing:
            (reordered if unicodedata.combining(character) else marks).append(point)
    return _class(letters), _class(marks), _class(reordered)


def _composing() -> set[str]:
    """The characters that may join the one before them."""
    found = set()
    for point in range(0x110000):
        parts = unicodedata.decomposition(chr(point)).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            found.add(chr(int(parts[1], 16)))
    return found


def _is_stable(character: str) -> bool:
    """Whether compatibility decomposition and case folding leave the character alone."""
    folded = unicodedata.normalize("NFKC", character).casefold()
    return unicodedata.normalize("NFKC", folded) == character


def _class(points: list[int]) -> str:
    """The inside of a class of the points, in order."""
    runs: list[list[int]] = []
    for point in points:
        if runs and runs[-1][1] == point - 1:
            runs[-1][1] = point
        else:
            runs.append([point, point])
    return "".join(rf"\u{low:04X}-\u{high:04X}" for low, high in runs)
