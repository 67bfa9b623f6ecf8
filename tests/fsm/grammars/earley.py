"""Context-free grammars over characters, read by Earley's algorithm: which bytes may follow, and what is a sentence.

Knows nothing of the grammars and automata of the project: a second reading of the same description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Intervals = tuple[tuple[int, int], ...]
"""Code points, both ends included; without surrogates."""
Node = tuple[Any, ...]
"""("text", str), ("set", Intervals), ("rule", name), ("all", nodes), ("any", nodes), ("times", node, least, most)."""
Symbol = int | Intervals
Item = tuple[int, int, int]  # production, how much of it has been read, where it began

LAST = 0x10FFFF


def without(intervals: Iterable[tuple[int, int]]) -> Intervals:
    """All characters but these."""
    found, at = [], 0
    for first, last in sorted([*intervals, (0xD800, 0xDFFF)]):
        if at < first:
            found.append((at, first - 1))
        at = max(at, last + 1)
    return (*found, (at, LAST)) if at <= LAST else tuple(found)


ANY = without(())


def reach(data: bytes) -> tuple[int, int] | None:
    """The first and the last character whose UTF-8 begins so."""
    if len(data) == 1 and data[0] < 0x80:
        return data[0], data[0]
    length = 2 if 0xC2 <= data[0] < 0xE0 else 3 if 0xE0 <= data[0] < 0xF0 else 4 if 0xF0 <= data[0] < 0xF5 else 0
    if len(data) > length or any(byte & 0xC0 != 0x80 for byte in data[1:]):
        return None
    first = data[0] & (0xFF >> length + 1)
    for byte in data[1:]:
        first = first << 6 | byte & 0x3F
    open_bits = 6 * (length - len(data))
    first <<= open_bits
    last = min(first + (1 << open_bits) - 1, LAST)
    first = max(first, {2: 0x80, 3: 0x800, 4: 0x10000}[length])
    return (first, last) if first <= last else None


class ContextFree:
    """A grammar as productions; what derives nothing is left out, so whatever can be read can be completed."""

    def __init__(self, rules: Mapping[str, Node], start: str) -> None:
        self._productions: list[tuple[int, list[Symbol]]] = []
        self._numbers = {name: number for number, name in enumerate(rules)}
        self._count = len(rules)
        for name, body in rules.items():
            self._productions.append((self._numbers[name], self._symbols(body)))
        productive = self._closure(lambda symbol, found: symbol in found if isinstance(symbol, int) else bool(symbol))
        self._productions = [
            (left, right)
            for left, right in self._productions
            if all(symbol in productive if isinstance(symbol, int) else symbol for symbol in right)
        ]
        self._nullable = self._closure(lambda symbol, found: symbol in found)
        self.start = self._numbers[start]
        self.is_empty = self.start not in productive

    def _new(self, options: list[list[Symbol]], number: int | None = None) -> int:
        if number is None:
            number = self._count
            self._count += 1
        self._productions += [(number, option) for option in options]
        return number

    def _symbols(self, node: Node) -> list[Symbol]:
        kind, value = node[:2]
        if kind == "text":
            return [((ord(character), ord(character)),) for character in value]
        if kind == "set":
            return [value]
        if kind == "rule":
            return [self._numbers[value]]
        if kind == "all":
            return [symbol for part in value for symbol in self._symbols(part)]
        if kind == "any":
            return [self._new([self._symbols(option) for option in value])]
        item, least, most = self._new([self._symbols(value)]), node[2], node[3]
        more: list[Symbol] = []
        if most is None:
            more = [self._new([])]
            self._new([[item, *more], []], more[0])
        for _ in range((most or least) - least):
            more = [self._new([[item, *more], []])]
        return [item] * least + more

    def _closure(self, is_known: Callable[[Symbol, set[int]], bool]) -> set[int]:
        found: set[int] = set()
        size = -1
        while size < len(found):
            size = len(found)
            found |= {left for left, right in self._productions if all(is_known(symbol, found) for symbol in right)}
        return found

    def closed(self, chart: list[set[Item]]) -> list[set[Item]]:
        """The chart with everything in its last set that follows from what is there."""
        here, pending = chart[-1], list(chart[-1])
        for production, read, begin in pending:  # grows
            left, right = self._productions[production]
            if read == len(right):
                found = [(p, r + 1, b) for p, r, b in chart[begin] if self._productions[p][1][r : r + 1] == [left]]
            elif isinstance(asked := right[read], int):
                options = [number for number, (other, _) in enumerate(self._productions) if other == asked]
                found = [(number, 0, len(chart) - 1) for number in options]
                found += [(production, read + 1, begin)] if asked in self._nullable else []
            else:
                continue
            pending += [item for item in dict.fromkeys(found) if item not in here]
            here.update(found)
        return chart

    def begin(self) -> Reading:
        """Nothing has been read yet."""
        first = {(number, 0, 0) for number, (left, _) in enumerate(self._productions) if left == self.start}
        return Reading(self, self.closed([first]), b"")

    def expected(self, chart: list[set[Item]]) -> list[tuple[Item, Intervals]]:
        """The items that a character would take further, and which it may be."""
        found = []
        for item in chart[-1]:
            rest = self._productions[item[0]][1][item[1] :]
            if rest and not isinstance(rest[0], int):
                found.append((item, rest[0]))
        return found

    def is_complete(self, chart: list[set[Item]]) -> bool:
        """Whether a sentence ends here."""
        items = ((self._productions[production], read, begin) for production, read, begin in chart[-1])
        return any(left == self.start and read == len(right) and not begin for (left, right), read, begin in items)


class Reading:
    """What has been read so far: whole characters, and the bytes of one that has begun."""

    def __init__(self, grammar: ContextFree, chart: list[set[Item]], begun: bytes) -> None:
        self._grammar = grammar
        self._chart = chart
        self._begun = begun
        self._expected = grammar.expected(chart)

    @property
    def is_accepting(self) -> bool:
        return not self._begun and self._grammar.is_complete(self._chart)

    def after(self, data: bytes) -> Reading | None:
        """With more bytes read; None if no sentence goes on so."""
        here = self
        for byte in data:
            begun = here._begun + bytes((byte,))
            range_ = reach(begun)
            items = [] if range_ is None else [i for i, members in here._expected if _meets(members, *range_)]
            if not items or range_ is None:
                return None
            chart = here._chart
            if range_[0] == range_[1] and len(chr(range_[0]).encode()) == len(begun):
                taken = {(production, read + 1, begin) for production, read, begin in items}
                chart, begun = self._grammar.closed([*chart, taken]), b""
            here = Reading(self._grammar, chart, begun)
        return here

    def next_bytes(self) -> set[int]:
        """The bytes that some sentence goes on with."""
        ranges = ((byte, reach(self._begun + bytes((byte,)))) for byte in range(256))
        return {byte for byte, at in ranges if at and any(_meets(members, *at) for _, members in self._expected)}


def _meets(members: Intervals, first: int, last: int) -> bool:
    return any(begin <= last and first <= end for begin, end in members)
