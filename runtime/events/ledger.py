"""From facts to events: what subscribers have, hence what to publish: each change once, in the order of the facts.

Events are of three kinds, as vLLM has them.

::

    facts      entered 1 2 3 · entered 1 2 4 · left 4 · entered 1 2 3 · disk has 2
    events     stored 1 2 3    stored 4        removed 4                stored 2 (DISK)

A block is known by the first 8 bytes of its digest, as an unsigned integer. It is published only once its
tokens are known: a tier may have it earlier, or from another process. Two blocks with equal first bytes would be taken
for one; with a million blocks that has a probability of 3e-8, and costs a router a wrong guess.

Belongs to one thread. Cost: O(blocks that are new, or leave); a few hundred bytes for each block that is anywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..offload import BlockKey
from ..offload.block_key import NO_PARENT
from .facts import POOL, Ended, Entered, Fact, Left, Medium, Remain, Scope, TierChanged

MOST_DEPARTED = 16_384  # blocks that are nowhere, but may be on their way to a tier, whose tokens are kept


@dataclass(slots=True)
class BlockStored:
    """A run of blocks, each the parent of the next.

    Attributes:
        hashes: unsigned 64-bit, of the whole prefix up to the end of each block.
        parent: of the block before the first; None: there is none.
        tokens: packed, of each block.
    """

    medium: Medium
    scope: Scope
    parent: int | None
    hashes: list[int] = field(default_factory=list)
    tokens: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class BlockRemoved:
    medium: Medium
    hashes: list[int] = field(default_factory=list)


@dataclass(slots=True)
class AllBlocksCleared:
    """In all media."""


Event = BlockStored | BlockRemoved | AllBlocksCleared


class _Block:
    """Attributes: media in which it is and those of them that were published; the rest is None or empty until known."""

    __slots__ = ("media", "parent", "published", "scope", "tokens")

    def __init__(self) -> None:
        self.media: tuple[Medium, ...] = ()
        self.published: tuple[Medium, ...] = ()
        self.scope: Scope | None = None
        self.parent: int | None = None
        self.tokens = b""


class Ledger:
    """From facts to events.

    Args:
        block_bytes: of a block's packed tokens.
        has_tiers: there are tiers below the pool.
    """

    def __init__(self, block_bytes: int, *, has_tiers: bool) -> None:
        self._block_bytes = block_bytes
        self._has_tiers = has_tiers
        self._blocks: dict[int, _Block] = {}
        self._departed: deque[int] = deque()
        self._events: list[Event] = []

    def apply(self, facts: Iterable[Fact]) -> list[Event]:
        """The events to publish for these facts; runs of events of a kind are one."""
        self._events = []
        for fact in facts:
            match fact:
                case Entered():
                    self._enter(fact.keys, fact.tokens, fact.scope)
                case Left():
                    self._leave(map(hash_of, fact.digests))
                    if fact.is_flush and not self._blocks and not self._has_tiers:
                        self._clear()
                case Remain():
                    kept = set(map(hash_of, fact.digests))
                    self._leave([name for name in self._blocks if name not in kept])
                case TierChanged():
                    self._change(fact.medium, fact.changes)
                case Ended():
                    self._clear()
        return self._events

    def _enter(self, keys: Sequence[BlockKey], tokens: bytes, scope: Scope) -> None:
        size = self._block_bytes
        for index, key in enumerate(keys):
            name = hash_of(key.digest)
            block = self._blocks.get(name)
            if block is None:
                block = self._blocks[name] = _Block()
            if block.scope is None:
                block.scope = scope
                block.parent = None if key.parent == NO_PARENT else hash_of(key.parent)
                block.tokens = tokens[index * size : (index + 1) * size]
            if POOL not in block.media:
                block.media = (POOL, *block.media)
                self._publish(name, block)
                if not self._has_tiers:
                    block.tokens = b""  # they will not be needed again

    def _leave(self, names: Iterable[int]) -> None:
        for name in names:
            block = self._blocks.get(name)
            if block is not None and POOL in block.media:
                self._lose(name, block, POOL)

    def _change(self, medium: Medium, changes: Sequence[tuple[bytes, bool]]) -> None:
        for digest, is_there in changes:
            name = hash_of(digest)
            block = self._blocks.get(name)
            if is_there:
                if block is None:
                    block = self._blocks[name] = _Block()
                if medium not in block.media:
                    block.media = (*block.media, medium)
                    self._publish(name, block)
            elif block is not None and medium in block.media:
                self._lose(name, block, medium)

    def _lose(self, name: int, block: _Block, medium: Medium) -> None:
        block.media = tuple(other for other in block.media if other != medium)
        if medium in block.published:
            block.published = tuple(other for other in block.published if other != medium)
            last = self._events[-1] if self._events else None
            if not isinstance(last, BlockRemoved) or last.medium != medium:
                last = BlockRemoved(medium)
                self._events.append(last)
            last.hashes.append(name)
        if block.media:
            return
        if not self._has_tiers or block.scope is None:
            del self._blocks[name]
            return
        self._departed.append(name)
        if len(self._departed) > MOST_DEPARTED:
            oldest = self._departed.popleft()
            if oldest in self._blocks and not self._blocks[oldest].media:
                del self._blocks[oldest]

    def _publish(self, name: int, block: _Block) -> None:
        """Publishes in which media it is, for those not published yet."""
        if block.scope is None:
            return
        for medium in block.media:
            if medium not in block.published:
                last = self._events[-1] if self._events else None
                if (
                    not isinstance(last, BlockStored)
                    or last.hashes[-1] != block.parent
                    or last.medium != medium
                    or last.scope != block.scope
                ):
                    last = BlockStored(medium, block.scope, block.parent)
                    self._events.append(last)
                last.hashes.append(name)
                last.tokens.append(block.tokens)
        block.published = block.media

    def _clear(self) -> None:
        """Nothing is anywhere. Events that this makes needless are dropped."""
        self._blocks.clear()
        self._departed.clear()
        self._events[:] = [AllBlocksCleared()]


def hash_of(digest: bytes) -> int:
    """A block's name for subscribers: unsigned, 64 bits."""
    return int.from_bytes(digest[:8], "big")
