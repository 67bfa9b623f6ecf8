"""Written: which keys the open objects of a text have so far, as far as the automaton cannot know them.

Keys that a schema names are part of the automaton's states. Others may be any text, and no automaton remembers which
texts it has read. So the place of a request is two things, the automaton's state and this memory:

    {"a":1,"x":2,"y":{"p":[{"q":      objects   ┌ keys q             gap 2 ─► ┌ keys p        gap 1 ─► ┌ keys x, y
                                                └ of 1 in its list            └ ..                     └ ..

An object is in the memory once such a key of it has ended, and leaves it with its brace; objects and lists between two
of them that have no such key are only counted (`gap`, `depth`). A list whose items must differ (`uniqueItems`) is an
object here as well, and its strings are keys. A string has one spelling, so keys are compared as they are written. As
long as nothing is remembered there is no memory (None), and everything is as if there were no such keys.

Versions are immutable and lead to the version before: taking back tokens walks along them, a fork shares them. A list
of keys is shared by all versions of its object, each of which knows how many of them are its own; only a fork that goes
on differently copies it. It knows keys and brackets, no automaton and no tokens; `repeats` says what it forbids.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from ..record import record
from .open_lists import OpenList

QUOTE = b'"'
NO_BYTE = b"\xff"  # of UTF-8


class Keys:
    """Keys of one object in the order in which they were written, and what its forks wrote after them.

    Attributes:
        texts: the keys as they are written between quotes; numbers: where each is in the list.
        ordered: the keys with the quotes that end them, sorted, each with its number.
        tokens: by token that may write all of a key, or end in it, the number of the first such key.
        longest: the number of bytes of the longest, or more.
        lock: forks, in other threads, may add keys.
    """

    __slots__ = ("lock", "longest", "numbers", "ordered", "texts", "tokens")

    def __init__(self) -> None:
        self.texts: list[bytes] = []
        self.numbers: dict[bytes, int] = {}
        self.ordered: list[tuple[bytes, int]] = []
        self.tokens: dict[int, int] = {}
        self.longest = 0
        self.lock = threading.Lock()

    def add(self, text: bytes, tokens: Iterable[int]) -> None:
        """One more key; tokens: those that may write all of it, or end in it."""
        number = self.numbers[text] = len(self.texts)
        insort(self.ordered, (text + QUOTE, number))
        for token in tokens:
            self.tokens.setdefault(token, number)
        self.longest = max(self.longest, len(text))
        self.texts.append(text)

    def beginning(self, count: int) -> Keys:
        """The first keys in a list of their own."""
        keys = Keys()
        for text in self.texts[:count]:
            keys.add(text, ())
        keys.tokens = {token: number for token, number in self.tokens.items() if number < count}
        return keys


@record
class OpenObject:
    """An object with keys that are remembered.

    Attributes:
        keys: the first `count` of them are its own.
        below: the next such object that it lies in.
        gap: how many objects and lists lie between the two, itself included; 0 without `below`.
    """

    keys: Keys
    count: int
    below: OpenObject | None
    gap: int

    def has(self, text: bytes) -> bool:
        """Whether it has a key."""
        number = self.keys.numbers.get(text)
        return number is not None and number < self.count

    def beginning_with(self, begun: bytes) -> list[bytes]:
        """Its keys that begin so, in order, with the quotes that end them; none if a quote is in what has begun."""
        ordered = self.keys.ordered
        first = bisect_left(ordered, (begun,))
        after = bisect_left(ordered, (begun + NO_BYTE,), first)
        return [text for text, number in ordered[first:after] if number < self.count and len(text) > len(begun)]

    def tokens(self) -> list[int]:
        """Tokens that may write all of one of its keys, or end in it."""
        return [token for token, number in self.keys.tokens.copy().items() if number < self.count]

    def with_key(self, text: bytes, tokens: Iterable[int]) -> OpenObject:
        """The object with one more key; tokens: those that may write all of it, or end in it."""
        keys, number = self.keys, self.count
        with keys.lock:
            if number < len(keys.texts) and keys.texts[number] != text:  # a fork was here first
                keys = keys.beginning(number)
            if number == len(keys.texts):
                keys.add(text, tokens)
        return OpenObject(keys, number + 1, self.below, self.gap)


@record
class Written:
    """One version of the memory.

    Attributes:
        num_tokens: of the text when it came to be.
        before: the version before it; None if there was no memory.
        objects: the innermost object with remembered keys; None if there is none any more.
        depth: how many objects and lists without remembered keys are open in it.
        lists: the innermost list whose items must differ, whatever they are (`open_lists`).
    """

    num_tokens: int
    before: Written | None
    objects: OpenObject | None
    depth: int = 0
    lists: OpenList | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is remembered any more."""
        return self.objects is None and self.lists is None

    @property
    def innermost(self) -> OpenObject | None:
        """The object in which the text stands, if it has remembered keys."""
        return None if self.depth else self.objects


KeyPlace = tuple[Written | None, int, bytes]
"""Memory, state, and what is written of the key that the state stands in."""


def added(
    objects: OpenObject | None, depth: int, text: bytes, tokens_of: Callable[[bytes], Iterable[int]]
) -> OpenObject | None:
    """The objects once a key of the innermost one has ended; None if it has that key already."""
    if objects is None or depth:
        return OpenObject(Keys(), 0, objects, depth).with_key(text, tokens_of(text))
    return None if objects.has(text) else objects.with_key(text, tokens_of(text))


def since(version: Written | None, num_tokens: int) -> Written | None:
    """The version of a memory that was current when the text had `num_tokens` tokens."""
    while version is not None and version.num_tokens > num_tokens:
        version = version.before
    return version


def in_string(tail: bytes, is_all: bool) -> bytes | None:
    """What follows the last quote that opened a string, the text being in that string; None if more has to be known.

    Args:
        tail: the end of the text; is_all: it is the whole text.
    """
    end = len(tail)
    while (end := tail.rfind(b'"', 0, end)) >= 0:
        num_escapes = end - len(tail[:end].rstrip(b"\\"))
        if num_escapes == end and not is_all:
            return None  # what is before it decides
        if num_escapes % 2 == 0:
            return tail[end + 1 :]
    assert not is_all, "the text is not inside a string"
    return None
