"""Taking leaves out of the tree: which go, how much of them, and what is handed up when they do.

Knows the queue of leaves and the record of what went (`explain` reads it); leases, pins and counts are the tree's.
Invariant: only leaves are taken, from the end of their run; a parent is at least as recent, as often hit and of as high
a priority as any of its children that went. Cost: O(log leaves) per leaf at most, and nothing per leaf that stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from .eviction import EvictionQueue
from .explain import GhostRecord
from .node import Node, unpack_blocks
from .results import Event
from .walk import drop_skip

# A leaf that is longer than what is wanted is still evicted whole, up to so many blocks more, or this share (as a power
# of two) of the cache: the next eviction would take the rest anyway.
MAX_SURPLUS_BLOCKS = 16
MAX_SURPLUS_SHIFT = 6
# So many leaves one eviction spares at most, wholly or in part, because they will soon be needed.
MAX_SPARED = 64

Spare = Callable[[Node], int]


class Evictor:
    """Evicts from one tree.

    Attributes:
        ghosts: what went, the last `max_ghosts` runs.
        num_cached_blocks: in the tree now; whoever inserts adds to it.
        num_evicted_blocks, num_removed_nodes: counted since the beginning.

    Args:
        roots: those of the tree; one that loses its last child is dropped.
        queue: the leaves that may go.
        has_eras: whether the policy needs the queue's era to be kept.
        find_room: called when no leaf is left; whether it made any evictable (expired pins).
    """

    __slots__ = (
        "_block_size",
        "_clock",
        "_find_room",
        "_has_eras",
        "_on_event",
        "_queue",
        "_roots",
        "ghosts",
        "num_cached_blocks",
        "num_evicted_blocks",
        "num_removed_nodes",
    )

    def __init__(
        self,
        roots: dict[str, Node],
        queue: EvictionQueue,
        *,
        block_size: int,
        has_eras: bool,
        clock: Callable[[], float],
        max_ghosts: int,
        find_room: Callable[[], bool],
        on_event: Callable[[Event], None] | None,
    ) -> None:
        self.ghosts: GhostRecord = deque(maxlen=max_ghosts)
        self.num_cached_blocks = 0
        self.num_evicted_blocks = 0
        self.num_removed_nodes = 0
        self._roots = roots
        self._queue = queue
        self._block_size = block_size
        self._clock = clock
        self._find_room = find_room
        self._on_event = on_event
        self._has_eras = has_eras

    def evict(self, num_blocks: int, spare: Spare | None = None) -> bytes:
        """Take at least `num_blocks` blocks out of the tree, those of the leaves that the policy puts first.

        Fewer come back only if all else is leased or pinned; expired pins are given up before that. A leaf goes
        whole if it holds no more than twice what is wanted, or `MAX_SURPLUS_BLOCKS` or a 64th of the cache more:
        the next eviction would take the rest anyway. A longer one is shortened from its end, exactly.
        The answer is packed int32, like `Match.packed_blocks`.

        Args:
            spare: says of a leaf how many tokens of its prefix, from the root, will soon be needed. The whole blocks
                of these stay, in up to `MAX_SPARED` leaves, as if they had just been used; what is beyond them goes.
                If nothing else is left they go as well.
        """
        freed: list[bytes] = []
        aside: list[Node] = []
        wanted = 4 * num_blocks
        now = self._clock()
        queue = self._queue
        while wanted > 0:
            leaf = queue.take()
            if leaf is None:
                if self._find_room():
                    continue
                if not aside:
                    break
                spare = None
                self._put_back(aside)
                continue
            blocks, kept = leaf.blocks, 0
            if spare is not None and len(aside) < MAX_SPARED:
                kept = self._spared_bytes(leaf, spare)
                if kept == len(blocks):
                    aside.append(leaf)
                    continue
                blocks = blocks[kept:]
            size = len(blocks)
            if size > 2 * wanted and size - wanted > 4 * max(
                MAX_SURPLUS_BLOCKS, self.num_cached_blocks >> MAX_SURPLUS_SHIFT
            ):
                size = wanted
                blocks = blocks[-size:]
            if self._has_eras:
                queue.era = max(queue.era, queue.policy(leaf)[0])
            if self._on_event is not None:
                self._on_event(_evicted(leaf, blocks))
            freed.append(blocks)
            wanted -= size
            if size == len(leaf.blocks):
                self._remove(leaf, now)
                continue
            self._shorten(leaf, len(leaf.blocks) - size, now)
            if len(leaf.blocks) == kept:
                aside.append(leaf)
            else:
                queue.put_back(leaf)
        if aside:
            self._put_back(aside)
        packed = freed[0] if len(freed) == 1 else b"".join(freed)
        num_evicted = len(packed) >> 2
        self.num_cached_blocks -= num_evicted
        self.num_evicted_blocks += num_evicted
        return packed

    def _spared_bytes(self, leaf: Node, spare: Spare) -> int:
        """How many bytes of the leaf's block ids are to be spared, from the first."""
        num_tokens = spare(leaf) - leaf.end + (len(leaf.tokens) >> 2)
        return min(max(num_tokens // self._block_size, 0), leaf.num_blocks) << 2

    def _put_back(self, aside: list[Node]) -> None:
        """Into the queue, as used now: so the next eviction does not come upon them first again."""
        for leaf in aside:
            self._queue.mark_use(leaf)
            self._queue.push(leaf)
        aside.clear()

    def _shorten(self, leaf: Node, kept: int, now: float) -> None:
        """Cut the run of a leaf down to `kept` bytes of block ids."""
        cut = kept * self._block_size
        leaf.end -= (len(leaf.tokens) - cut) >> 2
        self.ghosts.append((leaf, leaf.tokens[cut : cut + 4 * self._block_size], now))
        leaf.blocks = leaf.blocks[:kept]
        leaf.tokens = leaf.tokens[:cut]
        if leaf.skipped_by is not None:
            drop_skip(leaf)

    def _remove(self, leaf: Node, now: float) -> None:
        """Unlink a leaf and hand its usage up; its parent may become a leaf, an empty root is dropped."""
        parent = leaf.parent
        assert parent is not None and parent.children is not None
        children = parent.children
        key = leaf.key
        del children[key]
        self.ghosts.append((parent, key, now))
        self.num_removed_nodes += 1
        if parent.siblings is not None:
            parent.siblings.remove(key)
        if leaf.skipped_by is not None:
            drop_skip(leaf)
        leaf.parent = None
        leaf.tokens = b""  # the record of what was evicted may keep the node
        if parent.parent is None:
            if not children:
                del self._roots[parent.namespace]
            return
        parent.num_hits += leaf.num_hits
        if leaf.last_used > parent.last_used:
            parent.last_used = leaf.last_used
        if leaf.era > parent.era:
            parent.era = leaf.era
        if leaf.priority > parent.priority:
            parent.priority = leaf.priority
        if not children and not parent.num_holds:
            self._queue.push(parent)


def _evicted(leaf: Node, blocks: bytes) -> Event:
    """The event for the end of a leaf's run, before it is cut off."""
    tokens = leaf.path_tokens()
    start = len(tokens) - len(blocks) * len(leaf.tokens) // len(leaf.blocks)
    return Event("evicted", leaf.namespace, tokens, start >> 2, unpack_blocks(blocks))
