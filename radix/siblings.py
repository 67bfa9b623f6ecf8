"""The children of one node, filed so that the closest one to some tokens is found without looking at them all.

Filed by first token, since a child that does not agree in that agrees in nothing; within a token in lexicographic
order, where one of the two neighbours of a probe shares the longest prefix with it. A system prompt may have tens
of thousands of children that all begin with the same turn marker, so the order is kept in chunks: entering and
striking out move at most one chunk's worth of pointers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

CHUNK_LEN = 512


class Siblings:
    """A set of first blocks (bytes of at least one token)."""

    __slots__ = ("_by_token",)

    def __init__(self, keys: Iterable[bytes]) -> None:
        # Most first tokens have one child: that is kept bare, a SortedKeys is made for the second.
        self._by_token: dict[bytes, bytes | SortedKeys] = {}
        for key in keys:
            self.add(key)

    def __iter__(self) -> Iterator[bytes]:
        for held in self._by_token.values():
            if isinstance(held, bytes):
                yield held
            else:
                yield from held

    def add(self, key: bytes) -> None:
        """Enter a key that is not there."""
        token = key[:4]
        held = self._by_token.setdefault(token, key)
        if held is key:
            return
        if isinstance(held, bytes):
            self._by_token[token] = SortedKeys(sorted((held, key)))
        else:
            held.add(key)

    def remove(self, key: bytes) -> None:
        """Strike out a key that is there."""
        token = key[:4]
        held = self._by_token[token]
        if isinstance(held, bytes) or held.remove(key):
            del self._by_token[token]

    def closest(self, probe: bytes) -> list[bytes]:
        """Up to two keys, one of which shares the longest prefix with `probe`; none if no first token agrees."""
        held = self._by_token.get(probe[:4])
        if held is None:
            return []
        return [held] if isinstance(held, bytes) else held.neighbours(probe)


class SortedKeys:
    """A sorted, never empty sequence in chunks of up to `2 * CHUNK_LEN` keys."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self, ordered: list[bytes]) -> None:
        self._chunks = [ordered]
        self._firsts = [ordered[0]]

    def __iter__(self) -> Iterator[bytes]:
        return (key for chunk in self._chunks for key in chunk)

    def add(self, key: bytes) -> None:
        """Enter a key."""
        at = self._chunk_index(key)
        chunk = self._chunks[at]
        insort(chunk, key)
        self._firsts[at] = chunk[0]
        if len(chunk) > 2 * CHUNK_LEN:
            self._chunks.insert(at + 1, chunk[CHUNK_LEN:])
            self._firsts.insert(at + 1, chunk[CHUNK_LEN])
            del chunk[CHUNK_LEN:]

    def remove(self, key: bytes) -> bool:
        """Strike out a key; True if it was the last one."""
        at = self._chunk_index(key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._firsts[at] = chunk[0]
            return False
        del self._chunks[at], self._firsts[at]
        return not self._chunks

    def neighbours(self, probe: bytes) -> list[bytes]:
        """The keys before and after the place of `probe`; only one at the ends."""
        at = self._chunk_index(probe)
        chunk = self._chunks[at]
        place = bisect_left(chunk, probe)
        found = chunk[max(place - 1, 0) : place + 1]
        if place == len(chunk) and at + 1 < len(self._firsts):
            found.append(self._firsts[at + 1])
        return found

    def _chunk_index(self, key: bytes) -> int:
        """The last chunk whose first key is not above `key`, or the first chunk."""
        return max(bisect_right(self._firsts, key) - 1, 0)
