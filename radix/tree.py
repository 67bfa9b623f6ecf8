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

from .attached import attach
from .audit import audit_tree
from .draw import draw_tree
from .eviction import POLICIES, BlockCost, equal_cost
from .evictor import Evictor, Spare
from .explain import Explanation, explain_miss
from .node import Node, pack_blocks, unpack_blocks
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
    """

    __slots__ = (
        "_block_bytes",
        "_clock",
        "_evictor",
        "_num_asked_bytes",
        "_num_attached_bytes",
        "_num_cached",
        "_num_duplicates",
        "_num_leased",
        "_num_matched_bytes",
        "_num_matches",
        "_num_nodes",
        "_num_splits",
        "_on_event",
        "_pins",
        "_roots",
        "block_size",
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
        self._pins = PinBook(max_pinned_blocks)
        self._evictor = Evictor(
            self._roots,
            block_size,
            policy=policy,
            block_cost=block_cost,
            clock=clock,
            max_ghosts=max_ghosts,
            find_room=self._unpin_expired,
            on_event=on_event,
        )
        self._num_cached = 0
        self._num_leased = 0
        self._num_nodes = 0
        self._num_matches = 0
        self._num_asked_bytes = 0
        self._num_attached_bytes = 0
        self._num_matched_bytes = 0
        self._num_duplicates = 0
        self._num_splits = 0

    # ---------------------------------------------------------------- counts

    @property
    def num_cached_blocks(self) -> int:
        """All blocks in the tree."""
        return self._num_cached

    @property
    def num_leased_blocks(self) -> int:
        """Blocks that a lease or a pin protects."""
        return self._num_leased

    @property
    def num_evictable_blocks(self) -> int:
        """Blocks that `evict` could hand back now, those under expired pins not counted. Exact."""
        return self._num_cached - self._num_leased

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
            num_inserted_blocks=self._num_cached + self._evictor.num_evicted_blocks,
            num_duplicate_blocks=self._num_duplicates,
            num_evicted_blocks=self._evictor.num_evicted_blocks,
            num_splits=self._num_splits,
            num_namespaces=len(self._roots),
            num_nodes=self._num_nodes - self._evictor.num_removed_nodes,
            num_cached_blocks=self._num_cached,
            num_leased_blocks=self._num_leased,
            num_pinned_blocks=self._pins.num_blocks,
            num_attached_bytes=self._num_attached_bytes - self._evictor.num_dropped_bytes,
        )

    # ---------------------------------------------------------------- match, insert

    def match(self, tokens: bytes, namespace: str) -> Match:
        """Find the longest cached prefix of whole blocks; the answer also knows a donor for the block behind it.

        Refreshes the recency of the prefix and counts as a hit on it. Splits a node if the prefix ends inside
        one. `tokens` are packed int32 (`pack`).
        """
        block_bytes = self._block_bytes
        offset = 0
        node = self._roots.get(namespace)
        if node is None:
            node = Node(namespace)
        else:
            node, offset, edge, agreed = walk(node, tokens, block_bytes)
            if edge is not None:
                agreed -= agreed % block_bytes
                node = self._split(edge, agreed)
                offset += agreed
            if offset:
                self.touch(node)
        self._num_matches += 1
        self._num_asked_bytes += len(tokens)
        self._num_matched_bytes += offset
        return Match(node, offset >> 2, tokens, block_bytes)

    def peek(self, tokens: bytes, namespace: str) -> int:
        """How many tokens a `match` would spare, those of the donor included. Changes and counts nothing."""
        root = self._roots.get(namespace)
        return 0 if root is None else reach(root, tokens, self._block_bytes)[1] >> 2

    def insert(
        self,
        tokens: bytes,
        blocks: Sequence[int],
        namespace: str,
        *,
        priority: int = 0,
        after: tuple[Node, int] | None = None,
    ) -> Inserted:
        """Put a computed prefix into the tree, or find that it is there.

        Refreshes the recency of the prefix. May split.

        Args:
            tokens: packed int32.
            blocks: one id per whole block of `tokens`, from the very first (the matched part included): a list,
                an `array('i')`, or bytes of packed int32. With one id more, the trailing tokens that do not fill
                a block come in as well: as a tail, which later matches find as a donor. Without it they are ignored.
            priority: for the policy of that name: a prefix keeps the highest that it was ever given.
            after: (node, number of tokens), a prefix of the same tokens that the caller has leased: the way to it
                is not walked again, and the ids up to it are taken to be the tree's own.

        Raises:
            ValueError: the number of ids is not the number of blocks; nothing was changed.
        """
        block_bytes = self._block_bytes
        row = blocks if isinstance(blocks, bytes) else pack_blocks(blocks)
        end = len(row) * self.block_size
        tail_bytes = 0
        if len(row) != len(tokens) // block_bytes << 2:
            tail_bytes = self._tail_bytes(tokens, len(row) >> 2)
            tokens += PADDING * ((block_bytes - tail_bytes) >> 2)
        if after is not None and after[1]:
            node, known = after[0], after[1] << 2
        else:
            root, known = self._roots.get(namespace), 0
            if root is None:
                root = Node(namespace)
                if end:
                    self._roots[namespace] = root
            node = root
        node, offset, edge, agreed = walk(node, tokens, block_bytes, known)
        if edge is not None:
            agreed -= agreed % block_bytes
            node = self._split(edge, agreed)
            offset += agreed
        duplicates = differing_blocks(row, node, offset // self.block_size) if offset > known else []
        if tail_bytes and offset == end - block_bytes:
            agreed = closest_child(node, tokens, offset, block_bytes)[1]
            if agreed == tail_bytes:  # some block that is there begins with the tail: it serves as well
                duplicates.append(unpack_blocks(row[-4:])[0])
                end = offset
        if offset < end:
            start = offset // self.block_size
            key = tokens[offset : offset + block_bytes]
            parent = node
            node = Node(namespace, parent, key, tokens[offset:end], row[start:])
            children = parent.children
            if children is None:
                parent.children = {key: node}
            else:
                children[key] = node
                if parent.siblings is not None:
                    parent.siblings.add(key)
            self._num_nodes += 1
            self._num_cached += (len(row) - start) >> 2
        if duplicates:
            self._num_duplicates += len(duplicates)
        if priority > node.priority:
            node.priority = priority
        self._evictor.mark_use(node)
        if offset < end:
            self._evictor.queue.push(node)
            if self._on_event is not None:
                run = unpack_blocks(node.blocks)
                self._on_event(Event("inserted", namespace, tokens[:end], offset >> 2, run))
            return Inserted(node, (end - offset - (block_bytes - tail_bytes if tail_bytes else 0)) >> 2, duplicates)
        return Inserted(node, 0, duplicates)

    def _tail_bytes(self, tokens: bytes, num_blocks: int) -> int:
        """Length of the part that does not fill a block, if `num_blocks` has one for it; ValueError if not."""
        num_whole, num_bytes = divmod(len(tokens), self._block_bytes)
        if num_bytes and num_blocks == num_whole + 1:
            return num_bytes
        raise ValueError(
            f"{num_blocks} block ids for {len(tokens) >> 2} tokens, which are {num_whole} whole blocks"
            f" of {self.block_size}{' and a tail' if num_bytes else ''}"
        )

    def touch(self, node: Node) -> None:
        """Count a use of the prefix that ends at `node`, as `match` does: for a tail that served as donor."""
        node.num_hits += 1
        self._evictor.mark_use(node)

    def attach(self, node: Node, start: int, values: bytes) -> None:
        """Keep floats with the tokens from `start` on, in the prefix that ends at `node`: `Match.attached` has them.

        They are split with their nodes and go with them. A value given again replaces the older one.

        Args:
            start: the token, counted from the root, that the first value is about.
            values: packed native float32, one per token; not-a-number says that it is not known.

        Raises:
            ValueError: they reach beyond the prefix, or it has been evicted; nothing was changed.
        """
        self._num_attached_bytes += attach(node, start << 2, values)

    def _split(self, lower: Node, at: int) -> Node:
        self._num_nodes += 1
        self._num_splits += 1
        return split(lower, at, self._block_bytes)

    # ---------------------------------------------------------------- lease, release, pin

    def lease(self, node: Node) -> None:
        """Protect the prefix that ends at `node`. Counted: every lease needs its release."""
        if node.parent is None and node.blocks:
            raise ValueError("cannot lease an evicted prefix: lease it before evicting")
        node.num_leases += 1
        if node.num_leases > 1:
            return
        num_bytes = 0
        above: Node | None = node
        while above is not None:
            above.num_holds += 1
            if above.num_holds > 1:
                break
            num_bytes += len(above.blocks)
            above = above.parent
        self._num_leased += num_bytes >> 2

    def release(self, node: Node) -> None:
        """Undo one `lease`; ValueError if there is none."""
        if not node.num_leases:
            raise ValueError("released more often than leased")
        node.num_leases -= 1
        if node.num_leases:
            return
        num_bytes = 0
        above: Node | None = node
        while above is not None:
            above.num_holds -= 1
            if above.num_holds:
                break
            num_bytes += len(above.blocks)
            above = above.parent
        self._num_leased -= num_bytes >> 2
        if not node.children and node.parent is not None:
            self._evictor.queue.push(node)

    def num_sole_blocks(self, node: Node) -> int:
        """How many blocks only the lease on `node` protects: what releasing it would make evictable. O(depth)."""
        num_bytes = 0
        above: Node | None = node if node.num_leases == 1 else None
        while above is not None and above.num_holds == 1:
            num_bytes += len(above.blocks)
            above = above.parent
        return num_bytes >> 2

    def pin(self, tokens: bytes, ttl: float, namespace: str) -> Pin:
        """Keep the cached prefix of `tokens` for at least `ttl` seconds, whoever leases it or not.

        Counts as a match. A pin of 0 tokens (nothing was cached) holds nothing. After `ttl` the prefix stays
        until an eviction finds no other room.

        Raises:
            PinBudgetExceeded: the pinned blocks would exceed `max_pinned_blocks`; nothing was pinned.
        """
        match = self.match(tokens, namespace)
        pin = Pin(match.node, match.num_tokens, self._clock() + ttl)
        if match.num_tokens:
            self._pins.add(pin)
            self.lease(match.node)
        return pin

    def unpin(self, pin: Pin) -> bool:
        """End a pin; False if it held nothing or was given up already."""
        if not self._pins.discard(pin):
            return False
        self.release(pin.node)
        return True

    def give_up_pin(self) -> bool:
        """End the pin that would expire first, whether its time is over or not; False if there is none."""
        first = min(self._pins, key=lambda pin: pin.expires_at, default=None)
        return first is not None and self.unpin(first)

    def _unpin_expired(self) -> bool:
        """Give up the pins whose time is over; False if there were none."""
        expired = self._pins.expired(self._clock()) if len(self._pins) else []
        for pin in expired:
            self.unpin(pin)
        return bool(expired)

    # ---------------------------------------------------------------- evict, clear

    def evict(self, num_blocks: int, *, spare: Spare | None = None) -> list[int]:
        """`evict_packed` as a list of ids."""
        return unpack_blocks(self.evict_packed(num_blocks, spare=spare))

    def evict_packed(self, num_blocks: int, *, spare: Spare | None = None) -> bytes:
        """Take at least `num_blocks` blocks out of the tree, those of the leaves that the policy puts first.

        Fewer come back only if all else is leased or pinned; expired pins are given up before that. A leaf goes
        whole if it holds no more than twice what is wanted, or `MAX_SURPLUS_BLOCKS` more: the next eviction would
        take the rest anyway. A longer one is shortened from its end, exactly.
        The answer is packed int32, like `Match.packed_blocks`.

        Args:
            spare: says of a leaf how many tokens of its prefix, from the root, will soon be needed. The whole blocks
                of these stay, in up to `MAX_SPARED` leaves, as if they had just been used; what is beyond them goes.
                If nothing else is left they go as well.
        """
        packed = self._evictor.evict(num_blocks, spare)
        self._num_cached -= len(packed) >> 2
        return packed

    def clear(self) -> list[int]:
        """Give up all pins and evict everything that is not leased; returns the ids."""
        for pin in list(self._pins):
            self.unpin(pin)
        return self.evict(self._num_cached)

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
        audit_tree(
            self._roots,
            self._evictor.queue,
            self._pins,
            block_size=self.block_size,
            last_use=self._evictor.last_use,
            num_nodes=self._num_nodes - self._evictor.num_removed_nodes,
            num_cached_blocks=self._num_cached,
            num_leased_blocks=self._num_leased,
            num_attached_bytes=self._num_attached_bytes - self._evictor.num_dropped_bytes,
        )
