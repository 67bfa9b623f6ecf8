"""The children of one node in the order of their first blocks, so that the closest one is found by bisection.

Of keys in lexicographic order, one of the two neighbours of a probe shares the longest prefix with it. A system
prompt may have tens of thousands of children, so the order is kept in chunks: adding and removing move at most
one chunk's worth of pointers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

CHUNK_LEN = 512


class Siblings:
    """A sorted set of byte strings with O(log n + CHUNK_LEN pointers moved) updates."""

    __slots__ = ("_chunks", "_firsts")

    def __init__(self, keys: Iterable[bytes]) -> None:
        ordered = sorted(keys)
        self._chunks = [ordered[i : i + CHUNK_LEN] for i in range(0, len(ordered), CHUNK_LEN)] or [[]]
        self._firsts = [chunk[0] if chunk else b"" for chunk in self._chunks]

    def __iter__(self) -> Iterator[bytes]:
        return (key for chunk in self._chunks for key in chunk)

    def add(self, key: bytes) -> None:
        """Enter a key that is not there."""
        at = self._chunk_index(key)
        chunk = self._chunks[at]
        insort(chunk, key)
        if len(chunk) > 2 * CHUNK_LEN:
            self._chunks.insert(at + 1, chunk[CHUNK_LEN:])
            self._firsts.insert(at + 1, chunk[CHUNK_LEN])
            del chunk[CHUNK_LEN:]
        self._firsts[at] = chunk[0]

    def remove(self, key: bytes) -> None:
        """Strike out a key that is there."""
        at = self._chunk_index(key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._firsts[at] = chunk[0]
        elif len(self._chunks) > 1:
            del self._chunks[at], self._firsts[at]

    def neighbours(self, probe: bytes) -> list[bytes]:
        """The keys before and after the place of `probe`; one or none at the ends."""
        at = self._chunk_index(probe)
        chunk = self._chunks[at]
        place = bisect_left(chunk, probe)
        found = []
        if place:
            found.append(chunk[place - 1])
        if place < len(chunk):
            found.append(chunk[place])
        elif at + 1 < len(self._chunks):
            found.append(self._firsts[at + 1])
        return found

    def _chunk_index(self, key: bytes) -> int:
        """The chunk that holds the place of `key`: the last one whose first key is not above it."""
        return max(bisect_right(self._firsts, key) - 1, 0)
