"""Which replica has which blocks of KV: what their events say, asked for all replicas at once.

::

    block    replicas that have it, a bit each         matches of the chain a b c d
    a        1 1 1 0                                   after a: 1 1 1 0
    b        1 1 0 0                                   after b: 1 1 0 0      the third matches 1 block
    c        1 0 0 1                                   after c: 1 0 0 0      the second matches 2
    d        -                                         the first matches 3; the fourth none, since it has no a

A block is known by the hash of its events, which stands for the whole prefix up to its end. A replica has it as long as
one of its media does (GPU, host memory, disk …).

Knows no tokens, no sockets and no Ray. Not thread-safe. Cost: storing, removing and forgetting O(blocks); a match
O(blocks of the chain), however many replicas there are; about 200 bytes for a block, and 100 more for each replica that
has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Match = tuple[int, int]
"""How many blocks of a chain match, and the replicas of which that is true, as a mask of their numbers."""


class PrefixIndex:
    """Blocks by replica.

    Attributes:
        numbers: of the replicas that are known, by name: each one's bit in a mask. That of a replica which was
            forgotten is given again.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._free: list[int] = []
        self._masks: dict[int, int] = {}
        self._media: dict[str, dict[int, int]] = {}  # by replica and block, the media that have it, a bit each
        self._bits: dict[str, int] = {}  # of media

    def add(self, replica: str) -> int:
        """Takes in a replica that has nothing yet; returns its number. One that is known stays as it is."""
        if replica not in self.numbers:
            self.numbers[replica] = self._free.pop() if self._free else len(self.numbers)
            self._media[replica] = {}
        return self.numbers[replica]

    def store(self, replica: str, medium: str, hashes: Sequence[int]) -> None:
        """A medium of a replica has these blocks."""
        bit, mine = 1 << self.add(replica), self._media[replica]
        kind = self._bits.setdefault(medium, 1 << len(self._bits))
        known = [block for block in hashes if block in mine]
        if known:
            mine.update([(block, mine[block] | kind) for block in known])
            hashes = [block for block in hashes if block not in mine]
        mine.update(dict.fromkeys(hashes, kind))
        masks, get = self._masks, self._masks.get
        for block in hashes:
            masks[block] = get(block, 0) | bit

    def remove(self, replica: str, medium: str, hashes: Iterable[int]) -> None:
        """A medium of a replica does not have these blocks any more; those that it never had are passed over."""
        mine, kind = self._media.get(replica, {}), self._bits.get(medium, 0)
        for block in hashes:
            media = mine.get(block, 0) & ~kind
            if media:
                mine[block] = media
            elif mine.pop(block, 0):
                self._drop(replica, block)

    def clear(self, replica: str) -> None:
        """A replica has nothing any more, or what it has is not known."""
        mine = self._media.get(replica, {})
        for block in mine:
            self._drop(replica, block)
        mine.clear()

    def forget(self, replica: str) -> None:
        """A replica is gone."""
        if replica in self.numbers:
            self.clear(replica)
            del self._media[replica]
            self._free.append(self.numbers.pop(replica))

    def num_blocks(self, replica: str) -> int:
        """How many different blocks a replica has."""
        return len(self._media.get(replica, ()))

    def matches(self, chain: Sequence[int], among: int) -> list[Match]:
        """How much of a chain each replica has, the longest match first; the last may be of 0 blocks.

        Args:
            chain: hashes of the blocks of a prompt, from the first.
            among: a mask of the replicas that are asked.
        """
        found: list[Match] = []
        before: int | None = -1
        for depth, mask in enumerate(map(self._masks.get, chain)):
            if mask == before:  # mostly: so a block costs a look-up and a comparison
                continue
            before = mask
            left = among & mask if mask else 0
            if left != among:
                found.append((depth, among & ~left))
                among = left
                if not among:
                    break
        if among:
            found.append((len(chain), among))
        found.reverse()
        return found

    def _drop(self, replica: str, block: int) -> None:
        left = self._masks[block] & ~(1 << self.numbers[replica])
        if left:
            self._masks[block] = left
        else:
            del self._masks[block]
