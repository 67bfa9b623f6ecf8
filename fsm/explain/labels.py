"""Labels: what an edge reads, as a person writes it.

::

    '","age":'         these bytes           [0-9A-Fa-f]       one character out of these
    [0-9]{4}'-'        four digits, a dash   [^"\\\\\\x00-\\x1f]    one character out of all others
    character          one character of a JSON string, escapes included
    → value            the rule of that name; ‹…›: any text of a regular language

What is longer than `limit` gets a letter, which a `Legend` explains.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable

from ..any_json import any_number, any_string
from ..json_schema.numbers import integer_expression, number_expression
from ..text.counted import Counted
from ..text.dfa import Dfa
from ..text.extent import all_texts, max_length, shortest_text
from ..text.unicode_sets import unicode_digits, unicode_space, unicode_word
from .graph import Edge, Graph, Kind, Word, is_single

Ranges = list[tuple[int, int]]
MAX_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)
MAX_RANGES = 12
CONTINUATION = ((1 << 64) - 1) << 128
UNICODE_CLASSES = {
    "\\d": "digits of every script",
    "\\w": "letters, digits of every script and _",
    "\\s": "white space of every script",
}
_SHORT = {9: "\\t", 10: "\\n", 13: "\\r"}


class Legend:
    """Letters for labels that are too long to stand at an edge."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.entries: dict[str, str] = {}

    def label(self, edge: Edge) -> str:
        """The label of an edge, or the letter for it."""
        text = self._short(_plain(edge))
        return text if edge.most is None else f"{text} ≤ {edge.most}×"

    def _short(self, text: str) -> str:
        if len(text) <= self._limit or text.startswith(("→", "‹")):
            return shortened(text, self._limit)
        for letter, known in self.entries.items():
            if known == text:
                return letter
        letter = f"‹{_letter(len(self.entries))}›"
        self.entries[letter] = text
        return letter

    def lines(self) -> list[str]:
        return [f"{letter} = {text}" for letter, text in self.entries.items()]


def label(edge: Edge) -> str:
    """The label of an edge in full."""
    return _plain(edge) if edge.most is None else f"{_plain(edge)} ≤ {edge.most}×"


def parts(edge: Edge, limit: int) -> tuple[str, str] | None:
    """The label of a single word in two parts, what is chosen and what is then forced, at most about `limit` long.

    None if the edge has several words or none, or a class that is too long. The middle of long text is left out.
    """
    if len(edge.words) != 1:
        return None
    text, word = _plain(edge), edge.words[0]
    cut = len(text) - len(_forced_text(text, word, edge.num_forced))
    times = "" if edge.most is None else f" ≤ {edge.most}×"
    first, last = text[:cut], text[cut:]
    if len(text) <= limit:
        return first + (times if not last else ""), last + (times if last else "")
    if not text.endswith("'"):
        return None
    room = max(limit - len(first), limit // 2) if last else limit
    return shortened(first, max(limit - room, limit // 2) if last else room), shortened(last, room) + times


def _forced_text(text: str, word: Word, num_forced: int) -> str:
    """The end of a label that spells the forced end of its word, from a whole character on."""
    tail = word[len(word) - num_forced :]
    data = bytes(mask.bit_length() - 1 for mask in tail).lstrip(bytes(range(0x80, 0xC0)))
    if not data:
        return ""
    is_opened = len(data) == len(word) or not is_single(word[-1 - len(data)])  # by the quote
    spelt = quoted(data) if is_opened else quoted(data)[1:]
    return spelt if text.endswith(spelt) else ""


def legend_of(graphs: Iterable[Graph], limit: int) -> Legend:
    """A legend for all edges of some graphs, in order."""
    legend = Legend(limit)
    for graph in graphs:
        for edge in graph.edges:
            legend.label(edge)
    return legend


def _plain(edge: Edge) -> str:
    if edge.kind is Kind.CALL:
        return f"→ {edge.name}"
    if edge.kind is not Kind.BYTES:
        return edge.name if edge.name.startswith("[") else f"‹{edge.name}›"
    return words_label(edge.words)


@functools.lru_cache(maxsize=4096)
def words_label(words: tuple[Word, ...]) -> str:
    """Several ways along an edge."""
    if words == any_character():
        return "character"
    ranges: Ranges = []
    others: list[str] = []
    for word in words:
        found = _code_points(word)
        if found is None:
            others.append(_sequence(word))
        else:
            ranges += found
    listed = [class_label(ranges)] if ranges else []
    return " or ".join([*listed, *others])


@functools.cache
def any_character() -> tuple[Word, ...]:
    """The words of one character of any JSON string."""
    language = any_string()
    inside = int(language.row(language.start)[0x22])
    return _ways(language.row, inside)


def _ways(row: object, start: int) -> tuple[Word, ...]:
    assert callable(row)
    masks: dict[Word, int] = {}

    def walk(state: int, before: Word) -> None:
        groups: dict[int, int] = {}
        for byte, target in enumerate(row(state).tolist()):
            if target:
                groups[target] = groups.get(target, 0) | 1 << byte
        for target, mask in groups.items():
            if target == start:
                masks[(*before, mask)] = 1
            elif target != 0 and len(before) < 6 and not (not before and mask == 1 << 0x22):
                walk(target, (*before, mask))

    walk(start, ())
    return _merged(masks)


def _merged(words: Iterable[Word]) -> tuple[Word, ...]:
    """Words that differ in the first set only, as one."""
    firsts: dict[Word, int] = {}
    for first, *rest in words:
        firsts[tuple(rest)] = firsts.get(tuple(rest), 0) | first
    found = [(first, *rest) for rest, first in firsts.items()]
    return tuple(sorted(found, key=lambda word: (len(word), tuple(mask & -mask for mask in word))))


def class_label(ranges: Ranges) -> str:
    """A set of characters: `x`, `[a-z]`, `[^"]` or `any character`."""
    ranges = joined(ranges)
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return quoted(chr(ranges[0][0]).encode())
    rest = _complement(ranges)
    if not rest:
        return "any character"
    if len(ranges) > MAX_RANGES:
        for name, points in zip(UNICODE_CLASSES, (unicode_digits(), unicode_word(), unicode_space()), strict=True):
            if ranges == joined(list(points)):
                return name
    if ranges[-1][1] == MAX_CODE_POINT and len(rest) <= len(ranges):
        return f"[^{_listed(rest)}]"
    return f"[{_listed(ranges)}]"


def _listed(ranges: Ranges) -> str:
    shown = ranges if len(ranges) <= MAX_RANGES else ranges[: MAX_RANGES - 4]
    parts = [
        _inside(first) if first == last else f"{_inside(first)}{'' if last == first + 1 else '-'}{_inside(last)}"
        for first, last in shown
    ]
    more = "" if len(shown) == len(ranges) else f"… {len(ranges) - len(shown)} more ranges"
    return "".join(parts) + more


def _inside(code_point: int) -> str:
    """A character inside brackets."""
    character = chr(code_point)
    return "\\" + character if character in "\\]^-" else _visible(code_point)


def _visible(code_point: int) -> str:
    if code_point in _SHORT:
        return _SHORT[code_point]
    character = chr(code_point)
    if character.isprintable():
        return character
    if code_point < 0x80:
        return f"\\x{code_point:02x}"
    return f"\\u{code_point:04x}" if code_point <= 0xFFFF else f"\\u{{{code_point:x}}}"


def quoted(data: bytes) -> str:
    """Bytes in quotes; what is not text in hexadecimal."""
    text = data.decode(errors="surrogateescape")
    shown = "".join(
        f"\\x{ord(c) - 0xDC00:02x}" if 0xDC80 <= ord(c) <= 0xDCFF else _visible(ord(c)) if c != "\\" else "\\\\"
        for c in text
    )
    return f"'{shown}'"


def _sequence(word: Word) -> str:
    """One set after the other, equal neighbours counted, single bytes in quotes."""
    parts: list[str] = []
    literal = bytearray()
    index = 0
    while index < len(word):
        mask = word[index]
        if is_single(mask):
            literal.append(mask.bit_length() - 1)
            index += 1
            continue
        if literal:
            parts.append(quoted(bytes(literal)))
            literal.clear()
        count = 1
        while index + count < len(word) and word[index + count] == mask:
            count += 1
        parts.append(byte_class(mask) + (f"{{{count}}}" if count > 1 else ""))
        index += count
    if literal:
        parts.append(quoted(bytes(literal)))
    return "".join(parts)


def byte_class(mask: int) -> str:
    """A set of bytes; those beyond ASCII in hexadecimal."""
    if mask >> 128:
        found = [byte for byte in range(256) if mask >> byte & 1]
        ranges = joined([(byte, byte) for byte in found])
        return "[" + "".join(f"\\x{a:02x}" + ("" if a == b else f"-\\x{b:02x}") for a, b in ranges) + "]"
    return class_label([(byte, byte) for byte in range(128) if mask >> byte & 1])


def joined(ranges: Ranges) -> Ranges:
    """Sorted, overlapping and adjacent ranges as one; the surrogates, which no text has, separate nothing."""
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and (first <= found[-1][1] + 1 or (found[-1][1] + 1, first - 1) == SURROGATES):
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return found


def _complement(ranges: Ranges) -> Ranges:
    found, begin = [], 0
    for first, last in ranges:
        if first > begin:
            found.append((begin, first - 1))
        begin = last + 1
    if begin <= MAX_CODE_POINT:
        found.append((begin, MAX_CODE_POINT))
    return [pair for pair in found if pair != SURROGATES]


def _code_points(word: Word) -> Ranges | None:
    """The code points of which the word is the UTF-8 spelling, None if it spells something else."""
    lead = _byte_ranges(word[0])
    if len(word) == 1:
        return lead if lead[-1][1] < 0x80 else None
    low, high, bits = {2: (0xC2, 0xDF, 0x1F), 3: (0xE0, 0xEF, 0x0F), 4: (0xF0, 0xF4, 0x07)}.get(len(word), (1, 0, 0))
    if lead[0][0] < low or lead[-1][1] > high or any(mask & ~CONTINUATION for mask in word[1:]):
        return None
    found = [(byte & bits, byte & bits) for first, last in lead for byte in range(first, last + 1)]
    for mask in word[1:]:
        following = [(a & 0x3F, b & 0x3F) for a, b in _byte_ranges(mask)]
        grown: Ranges = []
        for first, last in found:
            if following == [(0, 63)]:
                grown.append((first << 6, last << 6 | 0x3F))
            else:
                grown += [(c << 6 | a, c << 6 | b) for c in range(first, last + 1) for a, b in following]
        found = grown
    return found


def _byte_ranges(mask: int) -> Ranges:
    found: Ranges = []
    while mask:
        first = (mask & -mask).bit_length() - 1
        run = mask >> first
        count = (~run & run + 1).bit_length() - 1
        found.append((first, first + count - 1))
        mask &= ~(((1 << count) - 1) << first)
    return found


def language_label(language: object) -> str:
    """What a text automaton writes, in a few words."""
    if language is any_string():
        return "string"
    if language is any_number() or language is number_expression().language:
        return "number"
    if language is integer_expression().language:
        return "integer"
    if isinstance(language, Dfa):
        if max_length(language) == 1 and not language.accepting[language.start_state]:
            return class_label(_characters(language))
        texts = all_texts(language, 4)
        if texts is not None:
            return " or ".join(quoted(text.encode()) for text in sorted(texts))
        if language.accepting[language.start_state]:
            return f"text of {language.num_states - 1} states, or nothing"
        return f"text like {shortened(quoted(shortest_text(language)), 24)}"
    if isinstance(language, Counted):
        low, high = language.minimum, language.maximum
        bounds = f"{low}+" if high is None else f"{low}–{high}" if low else f"at most {high}"
        return f"{language_label(language.language)}, {bounds} characters"
    shortest = getattr(language, "shortest", None)
    return f"string like {shortened(shortest().decode(), 24)}" if shortest is not None else "text"


def _characters(language: Dfa) -> Ranges:
    """The texts of one character of a language."""
    alphabet = language.alphabet
    ends = [*(int(start) - 1 for start in alphabet.starts[1:]), MAX_CODE_POINT]
    targets = language.table[language.start_state]
    return [
        (int(first), last)
        for first, last, class_id in zip(alphabet.starts, ends, alphabet.classes, strict=True)
        if language.accepting[targets[class_id]]
    ]


def columns(text: str) -> int:
    """The width of a text in columns of a monospaced font."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shortened(text: str, limit: int) -> str:
    """The text, or its beginning and end."""
    if len(text) <= limit:
        return text
    tail = limit // 3
    return f"{text[: limit - tail - 1]}…{text[-tail:]}"


def _letter(index: int) -> str:
    return chr(65 + index) if index < 26 else f"{chr(65 + index % 26)}{index // 26}"
