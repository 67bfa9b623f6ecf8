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

from collections.abc import Callable, Sequence
from itertools import islice

from ..record import record

QUOTE = b'"'


class Keys:
    """Keys of one object in the order in which they were written, and what its forks wrote after them.

    Attributes:
        texts: the keys as they are written between quotes; numbers: where each is in the list.
        tokens: (number of a key, token that may write all of it, or end in it).
        longest: the number of bytes of the longest, or more.
    """

    __slots__ = ("longest", "numbers", "texts", "tokens")

    def __init__(self, texts: Sequence[bytes], tokens: Sequence[tuple[int, int]]) -> None:
        self.texts = list(texts)
        self.numbers = {text: number for number, text in enumerate(texts)}
        self.tokens = list(tokens)
        self.longest = max(map(len, texts), default=0)


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
        """Its keys that begin so, in order, with the quotes that end them. O(keys)."""
        return sorted([text + QUOTE for text in islice(self.keys.texts, self.count) if text.startswith(begun)])

    def tokens(self) -> list[int]:
        """Tokens that may write all of one of its keys, or end in it."""
        return [token for number, token in self.keys.tokens if number < self.count]

    def with_key(self, text: bytes, tokens: Sequence[int]) -> OpenObject:
        """The object with one more key; tokens: those that may write all of it, or end in it."""
        keys, number = self.keys, self.count
        if number == len(keys.texts):
            keys.tokens += [(number, token) for token in tokens]
            keys.texts.append(text)
        if keys.texts[number] != text or keys.numbers.setdefault(text, number) != number:
            # a fork, or another thread, was here first, or has written the key later
            known = [pair for pair in keys.tokens if pair[0] < number]
            keys = Keys([*keys.texts[:number], text], [*known, *((number, token) for token in tokens)])
        keys.longest = max(keys.longest, len(text))
        return OpenObject(keys, number + 1, self.below, self.gap)


@record
class Written:
    """One version of the memory.

    Attributes:
        num_tokens: of the text when it came to be.
        before: the version before it; None if there was no memory.
        objects: the innermost object with remembered keys; None if there is none any more.
        depth: how many objects and lists without remembered keys are open in it.
    """

    num_tokens: int
    before: Written | None
    objects: OpenObject | None
    depth: int = 0

    @property
    def innermost(self) -> OpenObject | None:
        """The object in which the text stands, if it has remembered keys."""
        return None if self.depth else self.objects


def added(
    objects: OpenObject | None, depth: int, text: bytes, tokens_of: Callable[[bytes], Sequence[int]]
) -> OpenObject | None:
    """The objects once a key of the innermost one has ended; None if it has that key already."""
    if objects is None or depth:
        return OpenObject(Keys((), ()), 0, objects, depth).with_key(text, tokens_of(text))
    return None if objects.has(text) else objects.with_key(text, tokens_of(text))


def since(version: Written | None, num_tokens: int) -> Written | None:
    """The version of a memory that held when the text had so many tokens."""
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
