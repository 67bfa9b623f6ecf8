"""The radix tree: token prefixes → KV block ids.

::

    namespace "" ── [1 7 3 … 2,000 tokens | blocks 0-124] ──┬── [40 8 …  | 125-129]
                                                            └── [91 2 …  | 130-131] ──┬── …
                                                                                      └── …
    split:   ── [a b c d] ──          ── [a b] ──┬── [c d]     the lower part stays the node it was, so leases
                                                 └── [x y]     and pins hold; the upper part is new

An edge carries whole blocks only: `block_size` tokens per block, at least one block per node. Children are found
by the bytes of their first block, so two children of a node differ somewhere within their first blocks. Each
namespace (salt, adapter, model) has a root of its own; a root without children is dropped.

The tree knows ints only: no tensors, no requests, no pool. Blocks given to `insert` belong to the tree until
`evict` hands them back. A path is protected by a lease on its end node: a node with a child is never evicted, so
a lease need not touch what is above it, except for the exact count of evictable blocks, which climbs until it
meets a path that is held already.

Invariants (`audit` checks them all):
    every block id is in the tree once;
    `num_cached_blocks = num_leased_blocks + num_evictable_blocks`;
    a node is protected while a lease or a pin ends at it or below it;
    every leaf without a lease is in the eviction queue, under a key not above its present one.

Cost: match and insert O(tokens) in memcmp and O(edges on the path) in Python steps, with shortcuts over chains of
short edges; lease and release O(1) below a held ancestor; evict O(log leaves) per leaf, amortised. Nothing
recurses. Not thread-safe: one thread owns the tree.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from .audit import audit_tree
from .draw import draw_tree
from .eviction import POLICIES, BlockCost, EvictionQueue, equal_cost
from .evictor import Evictor, Spare
from .explain import Explanation, explain_miss
from .node import Node, count_tail_bytes, pack_blocks, unpack_blocks
from .pins import Pin, PinBook
from .results import Event, Inserted, Match, Statistics
from .tokens import PADDING
from .walk import closest_child, differing_blocks, reach, split, walk


class RadixTree:
    """Maps token prefixes to block ids.

    Args:
        block_size: tokens per block.
        policy: which leaf is evicted first, a key of `POLICIES`.
        block_cost: for the policy "cost": what recomputing the block that ends at a token would cost, in any unit;
            must not fall with the position.
        clock: seconds; read once per match, insert and eviction.
        max_pinned_blocks: budget of all pins together; with 0 there are no pins.
        max_ghosts: evicted runs to be remembered for `explain`.
        on_event: told of every insertion and eviction, after the fact; None costs nothing.

    Attributes:
        evict_packed: `Evictor.evict`: takes blocks out of the tree, those of the leaves that the policy puts first.
    """

    __slots__ = (
        "_block_bytes",
        "_clock",
        "_evictor",
        "_num_asked_bytes",
        "_num_duplicates",
        "_num_leased",
        "_num_matched_bytes",
        "_num_matches",
        "_num_nodes",
        "_num_splits",
        "_on_event",
        "_pins",
        "_queue",
        "_roots",
        "block_size",
        "evict_packed",
    )

    def __init__(
        self,
        block_size: int,
        *,
        policy: str = "lru",
        block_cost: BlockCost = equal_cost,
        clock: Callable[[], float] = time.monotonic,
        max_pinned_blocks: int = 0,
        max_ghosts: int = 4096,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {block_size}")
        if policy not in POLICIES:
            raise ValueError(f"no eviction policy {policy!r}; there are {', '.join(POLICIES)}")
        self.block_size = block_size
        self._block_bytes = 4 * block_size
        self._clock = clock
        self._on_event = on_event
        self._roots: dict[str, Node] = {}
        self._pins = PinBook(max_pinned_blocks, clock=clock, lease=self.lease, release=self.release)
        self._queue = EvictionQueue(POLICIES[policy](block_cost), by_time=policy == "lru", clock=clock)
        self._evictor = Evictor(
            self._roots,
            self._queue,
            block_size=block_size,
            has_eras=policy == "cost",
            clock=clock,
            max_ghosts=max_ghosts,
            find_room=self._pins.give_up_expired,
            on_event=on_event,
        )
        self.evict_packed = self._evictor.evict
        self._num_leased = 0
        self._num_nodes = 0
        self._num_matches = 0
        self._num_asked_bytes = 0
        self._num_matched_bytes = 0
        self._num_duplicates = 0
        self._num_splits = 0

    # ---------------------------------------------------------------- counts

    @property
    def num_cached_blocks(self) -> int:
        """All blocks in the tree."""
        return self._evictor.num_cached_blocks

    @property
    def num_leased_blocks(self) -> int:
        """Blocks that a lease or a pin protects."""
        return self._num_leased

    @property
    def num_evictable_blocks(self) -> int:
        """Blocks that `evict` could hand back now, those under expired pins not counted. Exact."""
        return self.num_cached_blocks - self._num_leased

    @property
    def num_pinned_blocks(self) -> int:
        """Distinct blocks that pins protect (leases may protect some of them too)."""
        return self._pins.num_blocks

    @property
    def statistics(self) -> Statistics:
        """A snapshot of all counts."""
        return Statistics(
            num_matches=self._num_matches,
            num_asked_tokens=self._num_asked_bytes >> 2,
            num_matched_tokens=self._num_matched_bytes >> 2,
            num_inserted_blocks=self.num_cached_blocks + self._evictor.num_evicted_blocks,
            num_duplicate_blocks=self._num_duplicates,
            num_evicted_blocks=self._evictor.num_evicted_blocks,
            num_splits=self._num_splits,
            num_namespaces=len(self._roots),
            num_nodes=self._num_nodes - self._evictor.num_removed_nodes,
            num_cached_blocks=self.num_cached_blocks,
            num_leased_blocks=self._num_leased,
            num_pinned_blocks=self._pins.num_blocks,
        )

    # ---------------------------------------------------------------- match, insert

    def match(self, tokens: bytes, namespace: str) -> Match:
        """`find` for `tokens` (see `pack`); the answer also knows a donor for the block behind the prefix."""
        return Match(self.find(tokens, namespace), tokens, self._block_bytes)

    def find(self, tokens: bytes, namespace: str) -> Node:
        """The end of the longest cached prefix of whole blocks: `end` tokens, the ids of `path_blocks()`.

        Refreshes the recency of the prefix and counts as a hit on it. Splits a node if the prefix ends inside one.
        """
        node = self._roots.get(namespace)
        if node is None:
            node = Node(namespace)
        else:
            node, offset, edge, agreed = walk(node, tokens, self._block_bytes)
            if edge is not None:
                node, offset = self._split(edge, offset, agreed)
            if offset:
                node.num_hits += 1
                self._queue.mark_use(node)
                self._num_matched_bytes += offset
        self._num_matches += 1
        self._num_asked_bytes += len(tokens)
        return node

    def peek(self, tokens: bytes, namespace: str) -> int:
        """How many tokens a `match` would spare, those of the donor included. Changes and counts nothing."""
        root = self._roots.get(namespace)
        return 0 if root is None else reach(root, tokens, self._block_bytes)[1] >> 2

    def insert(
        self,
        tokens: bytes,
        blocks: Sequence[int],
        namespace: str,
        after: Node | None = None,
        *,
        priority: int = 0,
    ) -> Inserted:
        """Put a computed prefix into the tree, or find that it is there.

        Refreshes the recency of the prefix. May split.

        Args:
            tokens: packed int32, from the root on, or from `after` on.
            blocks: one id per whole block of `tokens`: a list, an `array('i')`, or bytes of packed int32. With one
                id more, the trailing tokens that do not fill a block come in as well: as a tail, which later matches
                find as a donor. Without it they are ignored.
            priority: for the policy of that name: a prefix keeps the highest that it was ever given.
            after: the end of a prefix that the caller has leased; `tokens` and `blocks` are what comes behind it.

        Raises:
            ValueError: the number of ids is not the number of blocks; nothing was changed.
        """
        block_bytes = self._block_bytes
        row = blocks if type(blocks) is bytes else pack_blocks(blocks)
        end = len(row) * self.block_size
        tail_bytes = 0
        if not 0 <= len(tokens) - end < block_bytes:
            tail_bytes = count_tail_bytes(tokens, len(row) >> 2, self.block_size)
            tokens += PADDING * ((block_bytes - tail_bytes) >> 2)
        node = after if after is not None and after.end else self._root(namespace, create=end > 0)
        offset = 0
        key = tokens[:block_bytes]
        duplicates: list[int] = []
        if node.children is not None and (tail_bytes or key in node.children):
            node, offset, edge, agreed = walk(node, tokens, block_bytes)
            if edge is not None:
                node, offset = self._split(edge, offset, agreed)
            if offset:
                duplicates = differing_blocks(row[: offset // self.block_size], node)
            if tail_bytes and offset == end - block_bytes:
                agreed = closest_child(node, tokens, offset, block_bytes)[1]
                if agreed == tail_bytes:  # some block that is there begins with the tail: it serves as well
                    duplicates.append(unpack_blocks(row[-4:])[0])
                    end = offset
            self._num_duplicates += len(duplicates)
            key = tokens[offset : offset + block_bytes]
        if offset >= end:  # nothing is new
            node.priority = max(node.priority, priority)
            self._queue.mark_use(node)
            return Inserted(node, 0, duplicates)
        leaf = Node(namespace, node, key, tokens[offset:end], row[offset // self.block_size :])
        if node.children is None:
            node.children = {key: leaf}
        else:
            node.children[key] = leaf
            if node.siblings is not None:
                node.siblings.add(key)
        self._num_nodes += 1
        self._evictor.num_cached_blocks += len(leaf.blocks) >> 2
        if priority > 0:
            leaf.priority = priority
        self._queue.enter(leaf)
        if self._on_event is not None:
            self._on_event(Event("inserted", namespace, leaf.path_tokens(), node.end, unpack_blocks(leaf.blocks)))
        if tail_bytes:
            end -= block_bytes - tail_bytes
        return Inserted(leaf, (end - offset) >> 2, duplicates)

    def _root(self, namespace: str, *, create: bool) -> Node:
        """The root of a namespace. One without children is in no tree, unless it is about to get one (`create`)."""
        root = self._roots.get(namespace) or Node(namespace)
        if create:
            self._roots[namespace] = root
        return root

    def touch(self, node: Node) -> None:
        """Count a use of the prefix that ends at `node`, as `match` does: for a tail that served as donor."""
        node.num_hits += 1
        self._queue.mark_use(node)

    def _split(self, edge: Node, offset: int, agreed: int) -> tuple[Node, int]:
        """Split a run, which begins at `offset`, where the last whole block of the `agreed` bytes ends."""
        agreed -= agreed % self._block_bytes
        self._num_nodes += 1
        self._num_splits += 1
        return split(edge, agreed, self._block_bytes), offset + agreed

    # ---------------------------------------------------------------- lease, release, pin

    def lease(self, node: Node) -> None:
        """Protect the prefix that ends at `node`. Counted: every lease needs its release."""
        if node.parent is None and node.blocks:
            raise ValueError("cannot lease an evicted prefix: lease it before evicting")
        node.num_leases += 1
        if node.num_leases > 1:
            return
        above: Node | None = node
        while above is not None and not above.num_holds:
            above.num_holds = 1
            above = above.parent
        assert above is not None
        above.num_holds += 1
        self._num_leased += (node.end - above.end) // self.block_size

    def release(self, node: Node) -> None:
        """Undo one `lease`; ValueError if there is none."""
        if not node.num_leases:
            raise ValueError("released more often than leased")
        node.num_leases -= 1
        if node.num_leases:
            return
        above = node
        above.num_holds -= 1
        while not above.num_holds:
            assert above.parent is not None
            above = above.parent
            above.num_holds -= 1
        self._num_leased -= (node.end - above.end) // self.block_size
        if not node.children and not node.num_holds:
            self._queue.push(node)

    def num_sole_blocks(self, node: Node) -> int:
        """How many blocks only the lease on `node` protects: what releasing it would make evictable. O(depth)."""
        above = node
        if node.num_leases == 1:
            while above.num_holds == 1 and above.parent is not None:
                above = above.parent
        return (node.end - above.end) // self.block_size

    def pin(self, tokens: bytes, ttl: float, namespace: str) -> Pin:
        """Keep the cached prefix of `tokens` for at least `ttl` seconds, whoever leases it or not.

        Counts as a match. A pin of 0 tokens (nothing was cached) holds nothing. After `ttl` the prefix stays
        until an eviction finds no other room.

        Raises:
            PinBudgetExceeded: the pinned blocks would exceed `max_pinned_blocks`; nothing was pinned.
        """
        return self._pins.add(self.find(tokens, namespace), ttl)

    def unpin(self, pin: Pin) -> bool:
        """End a pin; False if it held nothing or was given up already."""
        return self._pins.give_up(pin)

    def end_expired_pins(self) -> float:
        """End the pins whose time is over, room or no room; returns when the next one does (inf: none)."""
        return self._pins.end_expired()

    def give_up_pin(self) -> bool:
        """End the pin that would expire first, whether its time is over or not; False if there is none."""
        return self._pins.give_up_first()

    # ---------------------------------------------------------------- evict, clear

    def evict(self, num_blocks: int, spare: Spare | None = None) -> list[int]:
        """`evict_packed` as a list of ids."""
        return unpack_blocks(self.evict_packed(num_blocks, spare))

    def clear(self) -> list[int]:
        """Give up all pins and evict everything that is not leased; returns the ids."""
        for pin in list(self._pins):
            self.unpin(pin)
        return self.evict(self.num_cached_blocks)

    # ---------------------------------------------------------------- for people and tests

    def explain(self, tokens: bytes, namespace: str, *, elsewhere_too: bool = True) -> Explanation:
        """Where the longest cached prefix of `tokens` ends, and why. Changes and counts nothing.

        O(evictions on record), and with `elsewhere_too` one walk in every other namespace.
        """
        return explain_miss(
            self._roots,
            self._evictor.ghosts,
            tokens,
            namespace,
            self._block_bytes,
            now=self._clock(),
            elsewhere_too=elsewhere_too,
        )

    def draw(self, *, label: Callable[[list[int]], str] | None = None, max_lines: int = 200) -> str:
        """The tree as text; see `draw_tree`."""
        return draw_tree(self._roots, self._clock(), label=label, max_lines=max_lines)

    def audit(self) -> None:
        """Recompute every count and check every link; AssertionError names the place. O(tree)."""
        audit_tree(self._roots, self._queue, self._pins, self.statistics, self.block_size)
