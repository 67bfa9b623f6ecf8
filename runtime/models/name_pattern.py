r"""Regular expressions for names of modules, as configuration files have them; matched in bounded time.

They come with a checkpoint or an adapter, from whatever source it has, and Python's `re` takes exponential time over
some of them while nothing else of the process runs. So the expression is read as Python reads it, but matched by
following the *set* of positions that it can have reached, one bit each (Thompson's simulation, with sets as integers)::

    one character  (reached & where it stands) << 1     a|b  union
    x*             until nothing new is reached         (?=x), (?!x)  keeps the positions where x matches, or does not
    one character, any number of times: a single addition, whose carries run through the positions where it stands

Single characters, classes and zero-width places (`^`, `\b`) are still judged by `re`. Results equal `re`'s for every
expression that is accepted. Refused by name: back references, conditions, look-behind, atomic and possessive parts,
inline flags, and whatever exceeds the bounds below. A match takes at most (size of the expression) x (length of the
name) ^ (depth of nested repetitions) operations, and those of all expressions of a file together at most `MOST_WORK`.

Knows no files and no models.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from ...errors import ModelError

MOST_CHARS = 4096
MOST_DEPTH = 32  # of groups
MOST_WORK = 1 << 24  # seconds; published expressions need less than 100 for a name
REMEDY = "list the names of the modules instead"

_PLAIN = re.compile(r"[\w.]*", re.ASCII)  # nothing repeats: `re` is linear
_REPEAT = re.compile(r"[*+?]|\{(?:(\d+)(,?)(\d*)|,(\d*))\}", re.ASCII)
_CLASS = re.compile(r"\[\^?\]?(?:[^\]\\]|\\.)*\]", re.DOTALL)
_GROUP = re.compile(r"\((?:\?(?:(?P<look>[=!])|:|P<\w+>)|(?!\?))")
_CHARACTER_ESCAPES, _PLACE_ESCAPES = "dDsSwWabfnrtv", "AZbB"  # "b" is a place outside a class


@dataclass(slots=True)
class Work:
    """How many operations the matches of a file's expressions have taken."""

    done: int = 0


@dataclass(slots=True)
class _Walk:
    """One match under way: the name, and where single characters and places match it, by their text."""

    pattern: NamePattern
    name: str
    found: dict[str, int] = field(default_factory=dict)

    def where(self, text: str, expression: re.Pattern[str]) -> int:
        """The positions where a character or a place matches."""
        if text not in self.found:
            self.found[text] = sum(1 << match.start() for match in expression.finditer(self.name))
            self.pattern.count(1 + len(self.name) // 8)
        return self.found[text]


# From the set of positions before a part to the set of those after it.
_Part = Callable[[_Walk, int], int]


class NamePattern:
    """One regular expression.

    Attributes:
        text: the expression.
        place: where it stands, for messages.
    """

    __slots__ = ("_part", "_plain", "_work", "place", "text")

    def __init__(self, text: object, place: str, work: Work) -> None:
        """`work`: shared by all expressions of a file. Raises ModelError: it is no regular expression, or not read."""
        if not isinstance(text, str) or len(text) > MOST_CHARS:
            raise ModelError(
                f"{place}: {_short(text)}: expected a regular expression of at most {MOST_CHARS} characters"
            )
        self.text, self.place, self._work = text, place, work
        try:
            compiled = re.compile(text)
        except (re.error, RecursionError, OverflowError, ValueError) as error:
            raise ModelError(f"{place}: {_short(text)} is not a regular expression ({str(error)[:80]})") from None
        self._plain = compiled if _PLAIN.fullmatch(text) else None
        self._part = _Reader(self).whole()

    def ends(self, name: str, start: int = 0) -> list[int]:
        """Where a match of `name` that begins at `start` can end, ascending; as `re`, `^` is the name's beginning.

        Raises:
            ModelError: the matches have taken too much work.
        """
        if self._plain is not None:
            match = self._plain.match(name, start)
            return [match.end()] if match else []
        reached = self._part(_Walk(self, name), 1 << start)
        return [index for index in range(len(name) + 1) if reached >> index & 1]

    def fits(self, name: str, start: int = 0) -> bool:
        """Whether all of `name` from `start` on matches. Raises as `ends` does."""
        return len(name) in self.ends(name, start)

    def __repr__(self) -> str:
        return f"re:{self.text}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamePattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def count(self, operations: int = 1) -> None:
        """Counts operations. Raises ModelError: they are too many."""
        self._work.done += operations
        if self._work.done > MOST_WORK:
            raise ModelError(f"{self.place}: {_short(self.text)} takes too long to match; {REMEDY}")

    def refuse(self, what: str) -> NoReturn:
        raise ModelError(f"{self.place}: {_short(self.text)}: {what} not supported in names of modules; {REMEDY}")


class _Reader:
    """Recursive descent over an expression that `re` has accepted."""

    def __init__(self, pattern: NamePattern) -> None:
        self._pattern = pattern
        self._text = pattern.text
        self._at = 0

    def whole(self) -> _Part:
        return self._choice(0)

    def _choice(self, depth: int) -> _Part:
        if depth > MOST_DEPTH:
            self._pattern.refuse(f"groups more than {MOST_DEPTH} deep are")
        branches = [self._sequence(depth)]
        while self._text[self._at : self._at + 1] == "|":
            self._at += 1
            branches.append(self._sequence(depth))
        return branches[0] if len(branches) == 1 else _either(branches)

    def _sequence(self, depth: int) -> _Part:
        parts: list[_Part] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            begin = self._at
            part = self._single(depth)
            parts.append(self._repeated(part, self._text[begin : self._at]))
        return parts[0] if len(parts) == 1 else _one_after_another(parts)

    def _repeated(self, part: _Part, text: str) -> _Part:
        """`text`: that of `part`."""
        match = _REPEAT.match(self._text, self._at)
        if not match:
            return part
        self._at = match.end()
        if self._text[self._at : self._at + 1] == "+":
            self._pattern.refuse("possessive repetition is")
        if self._text[self._at : self._at + 1] == "?":  # the shortest first: the same ends
            self._at += 1
        if match[0] == "*" and not text.startswith("("):
            return _run(text, re.compile(text))
        least, comma, most, most_alone = match.groups()
        if match[0] in "*+?":
            return _repeat(part, int(match[0] == "+"), 1 if match[0] == "?" else None)
        if least is None:
            return _repeat(part, 0, int(most_alone) if most_alone else None)
        return _repeat(part, int(least), int(most) if most else None if comma else int(least))

    def _single(self, depth: int) -> _Part:
        first = self._text[self._at]
        if first == "(":
            return self._group(depth)
        if first == "[":
            match = _CLASS.match(self._text, self._at)
            assert match is not None
            return self._leaf(match[0], _character)
        if first == "\\":
            escaped = self._text[self._at + 1]
            if escaped in _PLACE_ESCAPES:
                return self._leaf(first + escaped, _place)
            if escaped.isalnum() and escaped not in _CHARACTER_ESCAPES:
                self._pattern.refuse(f"\\{escaped} is")
            return self._leaf(first + escaped, _character)
        if first in "^$":
            return self._leaf(first, _place)
        return self._leaf(first, _character, re.compile(first if first == "." else re.escape(first)))

    def _leaf(
        self,
        text: str,
        kind: Callable[[str, re.Pattern[str]], _Part],
        expression: re.Pattern[str] | None = None,
    ) -> _Part:
        self._at += len(text)
        return kind(text, expression or re.compile(text))

    def _group(self, depth: int) -> _Part:
        match = _GROUP.match(self._text, self._at)
        if not match:
            self._pattern.refuse(f"{self._text[self._at : self._at + 3]} is")
        self._at = match.end()
        inner = self._choice(depth + 1)
        self._at += 1  # the ")"
        return _look(inner, match["look"] == "!") if match["look"] else inner


def _character(text: str, expression: re.Pattern[str]) -> _Part:
    def step(walk: _Walk, reached: int) -> int:
        walk.pattern.count()
        return (reached & walk.where(text, expression)) << 1

    return step


def _run(text: str, expression: re.Pattern[str]) -> _Part:
    """One character any number of times (Myers, 1999: the carries of an addition run through neighbouring ones)."""

    def step(walk: _Walk, reached: int) -> int:
        walk.pattern.count()
        where = walk.where(text, expression)
        return (((reached & where) + where) ^ where) | reached

    return step


def _place(text: str, expression: re.Pattern[str]) -> _Part:
    def step(walk: _Walk, reached: int) -> int:
        walk.pattern.count()
        return reached & walk.where(text, expression)

    return step


def _one_after_another(parts: list[_Part]) -> _Part:
    def step(walk: _Walk, reached: int) -> int:
        for part in parts:
            if not reached:
                break
            reached = part(walk, reached)
        return reached

    return step


def _either(branches: list[_Part]) -> _Part:
    def step(walk: _Walk, reached: int) -> int:
        ends = 0
        for branch in branches:
            ends |= branch(walk, reached)
        return ends

    return step


def _repeat(part: _Part, least: int, most: int | None) -> _Part:
    def step(walk: _Walk, reached: int) -> int:
        # after one round per position, what is still reached has stood still in some round: nothing changes any more
        for _ in range(min(least, len(walk.name) + 2)):
            walk.pattern.count()
            reached = part(walk, reached)
        new, rounds = reached, None if most is None else most - least
        while new and (rounds is None or rounds > 0):
            walk.pattern.count()
            new = part(walk, new) & ~reached
            reached |= new
            rounds = None if rounds is None else rounds - 1
        return reached

    return step


def _look(part: _Part, is_negative: bool) -> _Part:
    def step(walk: _Walk, reached: int) -> int:
        kept = 0
        while reached:
            start = reached & -reached
            reached ^= start
            walk.pattern.count()
            if bool(part(walk, start)) != is_negative:
                kept |= start
        return kept

    return step


def _short(text: object) -> str:
    return repr(text[:80] if isinstance(text, str) else text)[:90]
