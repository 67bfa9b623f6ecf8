"""Taking leaves out of the tree: which go, how much of them, and what is handed up when they do.

Knows the queue of leaves and the record of what went (`explain` reads it); leases, pins and counts are the tree's.
Invariant: only leaves are taken, from the end of their run; a parent is at least as recent, as often hit and of as high
a priority as any of its children that went. Cost: O(log leaves) per leaf at most, and nothing per leaf that stays.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

from .eviction import POLICIES, BlockCost, EvictionQueue
from .explain import GhostRecord
from .node import Node, unpack_blocks
from .results import Event
from .walk import drop_skip

# Up to so many blocks a leaf may be longer than what is wanted and still be evicted whole.
MAX_SURPLUS_BLOCKS = 16
# So many leaves one eviction spares at most, wholly or in part, because they will soon be needed.
MAX_SPARED = 64

Spare = Callable[[Node], int]


class Evictor:
    """Evicts from one tree.

    Attributes:
        queue: the leaves that may go.
        ghosts: what went, the last `max_ghosts` runs.
        num_evicted_blocks, num_removed_nodes, num_dropped_bytes: counted since the beginning; the last is of what
            the nodes carried.

    Args:
        roots: those of the tree; one that loses its last child is dropped.
        find_room: called when no leaf is left; whether it made any evictable (expired pins).
    """

    __slots__ = (
        "_block_size",
        "_clock",
        "_era",
        "_find_room",
        "_has_eras",
        "_last_use",
        "_on_event",
        "_roots",
        "ghosts",
        "num_dropped_bytes",
        "num_evicted_blocks",
        "num_removed_nodes",
        "queue",
    )

    def __init__(
        self,
        roots: dict[str, Node],
        block_size: int,
        *,
        policy: str,
        block_cost: BlockCost,
        clock: Callable[[], float],
        max_ghosts: int,
        find_room: Callable[[], bool],
        on_event: Callable[[Event], None] | None,
    ) -> None:
        self.queue = EvictionQueue(POLICIES[policy](block_cost))
        self.ghosts: GhostRecord = deque(maxlen=max_ghosts)
        self.num_evicted_blocks = 0
        self.num_removed_nodes = 0
        self.num_dropped_bytes = 0
        self._roots = roots
        self._block_size = block_size
        self._clock = clock
        self._find_room = find_room
        self._on_event = on_event
        self._has_eras = policy == "cost"
        self._era = 0.0
        self._last_use = -math.inf

    @property
    def last_use(self) -> float:
        """Time of the last `mark_use`."""
        return self._last_use

    def mark_use(self, node: Node) -> None:
        """The prefix that ends at `node` is used now.

        The time of a use is the clock's, but later than that of any use before, so that no two uses tie.
        """
        now = self._clock()
        if now <= self._last_use:
            now = math.nextafter(self._last_use, math.inf)
        node.last_used = self._last_use = now
        node.era = self._era

    def evict(self, num_blocks: int, spare: Spare | None) -> bytes:
        """See `RadixTree.evict_packed`."""
        freed: list[bytes] = []
        aside: list[Node] = []
        wanted = 4 * num_blocks
        now = self._clock()
        while wanted > 0:
            leaf = self.queue.take()
            if leaf is None:
                if self._find_room():
                    continue
                if not aside:
                    break
                spare = None
                self._put_back(aside)
                continue
            kept = self._spared_bytes(leaf, spare) if spare is not None and len(aside) < MAX_SPARED else 0
            if kept == len(leaf.blocks):
                aside.append(leaf)
                continue
            blocks = leaf.blocks[kept:]
            if len(blocks) > 2 * wanted and len(blocks) > wanted + 4 * MAX_SURPLUS_BLOCKS:
                blocks = blocks[-wanted:]
            if self._has_eras:
                self._era = max(self._era, self.queue.policy(leaf)[0])
            if self._on_event is not None:
                self._on_event(_evicted(leaf, blocks))
            if len(blocks) == len(leaf.blocks):
                self._remove(leaf, now)
            else:
                self._shorten(leaf, len(leaf.blocks) - len(blocks), now)
                if len(leaf.blocks) == kept:
                    aside.append(leaf)
                else:
                    self.queue.push(leaf)
            freed.append(blocks)
            wanted -= len(blocks)
        if aside:
            self._put_back(aside)
        packed = freed[0] if len(freed) == 1 else b"".join(freed)
        self.num_evicted_blocks += len(packed) >> 2
        return packed

    def _spared_bytes(self, leaf: Node, spare: Spare) -> int:
        """How many bytes of the leaf's block ids are to be spared, from the first."""
        num_tokens = spare(leaf) - leaf.end + (len(leaf.tokens) >> 2)
        return min(max(num_tokens // self._block_size, 0), leaf.num_blocks) << 2

    def _put_back(self, aside: list[Node]) -> None:
        """Into the queue, as used now: so the next eviction does not come upon them first again."""
        for leaf in aside:
            self.mark_use(leaf)
            self.queue.push(leaf)
        aside.clear()

    def _shorten(self, leaf: Node, kept: int, now: float) -> None:
        """Cut the run of a leaf down to `kept` bytes of block ids."""
        cut = kept * self._block_size
        leaf.end -= (len(leaf.tokens) - cut) >> 2
        self.ghosts.append((leaf, leaf.tokens[cut : cut + 4 * self._block_size], now))
        leaf.blocks = leaf.blocks[:kept]
        leaf.tokens = leaf.tokens[:cut]
        if leaf.attached is not None:
            self.num_dropped_bytes += len(leaf.attached) - cut
            leaf.attached = leaf.attached[:cut]
        if leaf.skipped_by is not None:
            drop_skip(leaf)

    def _remove(self, leaf: Node, now: float) -> None:
        """Unlink a leaf and hand its usage up; its parent may become a leaf, an empty root is dropped."""
        parent = leaf.parent
        assert parent is not None
        self.ghosts.append((parent, leaf.key, now))
        self.num_removed_nodes += 1
        if leaf.skipped_by is not None:
            drop_skip(leaf)
        assert parent.children is not None
        del parent.children[leaf.key]
        if parent.siblings is not None:
            parent.siblings.remove(leaf.key)
        leaf.parent = None
        leaf.tokens = b""  # the record of what was evicted may keep the node
        if leaf.attached is not None:
            self.num_dropped_bytes += len(leaf.attached)
            leaf.attached = None
        if parent.parent is None:
            if not parent.children:
                del self._roots[parent.namespace]
            return
        parent.num_hits += leaf.num_hits
        if leaf.last_used > parent.last_used:
            parent.last_used = leaf.last_used
        if leaf.era > parent.era:
            parent.era = leaf.era
        if leaf.priority > parent.priority:
            parent.priority = leaf.priority
        if not parent.children and not parent.num_holds:
            self.queue.push(parent)


def _evicted(leaf: Node, blocks: bytes) -> Event:
    """The event for the end of a leaf's run, before it is cut off."""
    tokens = leaf.path_tokens()
    start = len(tokens) - len(blocks) * len(leaf.tokens) // len(leaf.blocks)
    return Event("evicted", leaf.namespace, tokens, start >> 2, unpack_blocks(blocks))
