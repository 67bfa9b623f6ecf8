"""The radix tree: token prefixes → KV block ids.

::

    namespace "" ── [1 7 3 … 2,000 tokens | blocks 0-124] ──┬── [40 8 …  | 125-129]
                                                            └── [91 2 …  | 130-131] ──┬── …
                                                                                      └── …
    split:   ── [a b c d] ──          ── [a b] ──┬── [c d]     the lower part stays the node it was, so leases on it
                                                 └── [x y]     and pins hold; the upper part is new

An edge carries whole blocks only: `block_size` tokens per block, at least one block per node. Children are found by
the bytes of their first block, so two children of a node differ somewhere within their first blocks. Each namespace
(salt, adapter, model) has a root of its own; a root without children is dropped.

The tree knows ints only: no tensors, no requests, no pool. Blocks given to `insert` belong to the tree until `evict`
hands them back. A path is protected by a lease on its end node: a node with a child is never evicted, so a lease need
not touch what is above it, except for the exact count of evictable blocks, which climbs until it meets a path that is
held already.

Invariants (`audit` checks them all):
    every block id is in the tree once;
    `num_cached_blocks = num_leased_blocks + num_evictable_blocks`;
    a node is protected while a lease or a pin ends at it or below it;
    every leaf without a lease is in the eviction queue, under a key not above its present one.

Cost: match and insert O(tokens) in memcmp and O(edges on the path) in Python steps; lease and release O(1) below a
held ancestor; evict O(log leaves) per leaf, amortised. Nothing recurses. Not thread-safe: one thread owns the tree.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .audit import audit_tree
from .draw import draw_tree
from .eviction import POLICIES, EvictionQueue
from .node import Node, unpack_blocks
from .pins import Pin, PinBook
from .tokens import common_prefix


class Match(NamedTuple):
    """The longest cached prefix of some tokens.

    Attributes:
        node: the end of the prefix, to be leased; a root if nothing matched.
        num_tokens: its length, a multiple of the block size.
        partial_node: the node whose first block agrees furthest with the tokens behind the prefix, or None.
        partial_block: that block, a donor for copy-on-write; -1 if there is none.
        num_partial_tokens: how many tokens of the donor agree, counted from its start: 0 to block_size - 1.

    The node is safe to use until the next `evict`; whoever needs it longer leases it.
    """

    node: Node
    num_tokens: int
    partial_node: Node | None
    partial_block: int
    num_partial_tokens: int

    @property
    def blocks(self) -> list[int]:
        """Ids of the whole blocks, root to leaf. Read off the tree at every access: ask before evicting."""
        return unpack_blocks(self.node.path_blocks())

    @property
    def packed_blocks(self) -> bytes:
        """`blocks` as packed int32, at memcpy speed: `numpy.frombuffer(match.packed_blocks, numpy.int32)`."""
        return self.node.path_blocks()


class Inserted(NamedTuple):
    """What became of an insert.

    Attributes:
        node: the end of the inserted prefix.
        num_new_tokens: tokens the tree did not have yet; their blocks are the tree's now.
        duplicates: given ids for positions that the tree holds under other ids: still the caller's, to be freed.
    """

    node: Node
    num_new_tokens: int
    duplicates: list[int]


class RadixTree:
    """Maps token prefixes to block ids.

    Args:
        block_size: tokens per block.
        policy: which leaf is evicted first, a key of `POLICIES`.
        clock: seconds; read once per match, insert and eviction.
        max_pinned_blocks: budget of all pins together; with 0 there are no pins.
    """

    __slots__ = (
        "_block_bytes",
        "_clock",
        "_num_cached",
        "_num_leased",
        "_pins",
        "_queue",
        "_roots",
        "_tick",
        "block_size",
    )

    def __init__(
        self,
        block_size: int,
        *,
        policy: str = "lru",
        clock: Callable[[], float] = time.monotonic,
        max_pinned_blocks: int = 0,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {block_size}")
        if policy not in POLICIES:
            raise ValueError(f"no eviction policy {policy!r}; there are {', '.join(POLICIES)}")
        self.block_size = block_size
        self._block_bytes = 4 * block_size
        self._clock = clock
        self._tick = 0
        self._num_cached = 0
        self._num_leased = 0
        self._roots: dict[str, Node] = {}
        self._queue = EvictionQueue(POLICIES[policy])
        self._pins = PinBook(max_pinned_blocks)

    # ------------------------------------------------------------------ counts

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
        """Blocks that `evict` could hand back now, expired pins not counted. Exact."""
        return self._num_cached - self._num_leased

    @property
    def num_pinned_blocks(self) -> int:
        """Distinct blocks that pins protect (leases may protect some of them too)."""
        return self._pins.num_blocks

    # ------------------------------------------------------------------ match, insert

    def match(self, tokens: bytes, namespace: str) -> Match:
        """Find the longest cached prefix of whole blocks, and how far the block behind it agrees.

        Refreshes the recency of the prefix and counts as a hit on it. Splits a node if the prefix ends inside one.

        Args:
            tokens: packed int32 (`pack`).
        """
        root = self._roots.get(namespace)
        if root is None:
            return Match(Node(namespace, None, b"", b""), 0, None, -1, 0)
        node, offset, edge, agreed = self._walk(root, tokens)
        if edge is not None:
            whole = agreed - agreed % self._block_bytes
            node = self._split(edge, whole)
            offset += whole
            donor, num_agreed = (edge, agreed - whole) if agreed > whole else (None, 0)
        else:
            donor, num_agreed = self._closest_child(node, tokens, offset)
        if node.parent is not None:
            self._use(node)
            node.num_hits += 1
        if donor is None:
            return Match(node, offset >> 2, None, -1, 0)
        return Match(node, offset >> 2, donor, unpack_blocks(donor.blocks[:4])[0], num_agreed >> 2)

    def insert(
        self, tokens: bytes, blocks: Sequence[int] | bytes, namespace: str, *, priority: int = 0
    ) -> Inserted:
        """Put a computed prefix into the tree, or find that it is there.

        Trailing tokens that do not fill a block are ignored. Refreshes the recency of the prefix.

        Args:
            tokens: packed int32.
            blocks: one id per whole block of `tokens`, from the very first (the matched part included): a list,
                an `array('i')` or packed int32.
            priority: for the policy of that name: the prefix keeps the highest it was ever given.

        Raises:
            ValueError: the number of ids is not the number of whole blocks; nothing was changed.
        """
        end = len(tokens) - len(tokens) % self._block_bytes
        row = blocks if isinstance(blocks, bytes) else _pack_blocks(blocks)
        if len(row) * self.block_size != end:
            raise ValueError(
                f"{len(row) >> 2} block ids for {len(tokens) >> 2} tokens,"
                f" which are {end // self._block_bytes} whole blocks of {self.block_size}"
            )
        root = self._roots.get(namespace)
        if root is None:
            if not end:
                return Inserted(Node(namespace, None, b"", b""), 0, [])
            root = self._roots[namespace] = Node(namespace, None, b"", b"")
        node, offset, edge, agreed = self._walk(root, tokens)
        if edge is not None:
            agreed -= agreed % self._block_bytes
            node = self._split(edge, agreed)
            offset += agreed
        known = offset // self.block_size
        duplicates = _differing(row, node, known)
        if offset < end:
            leaf = Node(namespace, node, tokens[offset:end], row[known:])
            node.children[leaf.tokens[: self._block_bytes]] = leaf
            self._num_cached += leaf.num_blocks
            node = leaf
            self._use(leaf)
            self._queue.push(leaf)
        elif node.parent is not None:
            self._use(node)
        if priority > node.priority:
            node.priority = priority
        return Inserted(node, (end - offset) >> 2, duplicates)

    def _walk(self, root: Node, tokens: bytes) -> tuple[Node, int, Node | None, int]:
        """Descend as far as whole edges agree.

        Returns (node, offset, edge, agreed): `node` is the end of the last whole edge, `offset` its end in bytes.
        If a child's first block agrees but not all of its run does, it is `edge`, and `agreed` (at least one block,
        less than the run) counts the agreeing bytes; else `edge` is None.
        """
        block_bytes = self._block_bytes
        node, offset = root, 0
        while True:
            child = node.children.get(tokens[offset : offset + block_bytes])
            if child is None:
                return node, offset, None, 0
            run = child.tokens
            if not tokens.startswith(run, offset):
                return node, offset, child, common_prefix(run, tokens, offset)
            node = child
            offset += len(run)

    def _split(self, lower: Node, at: int) -> Node:
        """Put a new node over the first `at` bytes of a run; returns it. `lower` keeps its leases and its identity."""
        parent = lower.parent
        assert parent is not None
        cut = at // self.block_size
        upper = Node(lower.namespace, parent, lower.tokens[:at], lower.blocks[:cut])
        parent.children[lower.tokens[: self._block_bytes]] = upper
        lower.tokens = lower.tokens[at:]
        lower.blocks = lower.blocks[cut:]
        lower.parent = upper
        upper.children[lower.tokens[: self._block_bytes]] = lower
        upper.num_holds = 1 if lower.num_holds else 0
        upper.last_used = lower.last_used
        upper.used_at = lower.used_at
        upper.priority = lower.priority
        return upper

    def _closest_child(self, node: Node, tokens: bytes, offset: int) -> tuple[Node | None, int]:
        """The child whose first block agrees with `tokens[offset:]` furthest, and in how many bytes."""
        first = tokens[offset : offset + 4]
        best, most = None, 0
        if len(first) == 4 and self.block_size > 1:
            for key, child in node.children.items():
                if key.startswith(first):
                    agreed = common_prefix(key, tokens, offset)
                    if agreed > most:
                        best, most = child, agreed
        return best, most

    def _use(self, node: Node) -> None:
        self._tick += 1
        node.last_used = self._tick
        node.used_at = self._clock()

    # ------------------------------------------------------------------ lease, release

    def lease(self, node: Node) -> None:
        """Protect the prefix that ends at `node`. Counted: every lease needs its release."""
        if node.is_evicted:
            raise ValueError("cannot lease an evicted prefix: lease it before evicting")
        node.num_leases += 1
        if node.num_leases > 1:
            return
        num_blocks = 0
        above: Node | None = node
        while above is not None:
            above.num_holds += 1
            if above.num_holds > 1:
                break
            num_blocks += len(above.blocks)
            above = above.parent
        self._num_leased += num_blocks >> 2

    def release(self, node: Node) -> None:
        """Undo one `lease`."""
        if not node.num_leases:
            raise ValueError("released more often than leased")
        node.num_leases -= 1
        if node.num_leases:
            return
        num_blocks = 0
        above: Node | None = node
        while above is not None:
            above.num_holds -= 1
            if above.num_holds:
                break
            num_blocks += len(above.blocks)
            above = above.parent
        self._num_leased -= num_blocks >> 2
        if not node.children and not node.num_holds and node.parent is not None:
            self._queue.push(node)

    # ------------------------------------------------------------------ pins

    def pin(self, tokens: bytes, ttl: float, namespace: str) -> Pin:
        """Keep the cached prefix of `tokens` for at least `ttl` seconds.

        Counts as a use. May split a node. A pin of 0 tokens (nothing was cached) holds nothing.

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
        """End a pin; False if it had been given up already."""
        if not self._pins.discard(pin):
            return False
        self.release(pin.node)
        return True

    def _unpin_expired(self) -> bool:
        """Give up pins whose time is over; False if there were none."""
        expired = self._pins.expired(self._clock()) if len(self._pins) else []
        for pin in expired:
            self.unpin(pin)
        return bool(expired)

    # ------------------------------------------------------------------ evict, clear

    def evict(self, num_blocks: int) -> list[int]:
        """Take `num_blocks` blocks out of the tree, from the ends of the leaves that the policy puts first.

        A leaf longer than needed is shortened from its end, so exactly `num_blocks` ids come back unless less
        is evictable. Never touches a leased or pinned path; when all else is gone, pins past their time go too.
        """
        freed: list[bytes] = []
        wanted = 4 * num_blocks
        while wanted > 0:
            leaf = self._queue.first()
            if leaf is None:
                if self._unpin_expired():
                    continue
                break
            blocks = leaf.blocks
            if len(blocks) > wanted:
                keep = len(blocks) - wanted
                freed.append(blocks[keep:])
                leaf.blocks = blocks[:keep]
                leaf.tokens = leaf.tokens[: keep * self.block_size]
                break
            freed.append(blocks)
            wanted -= len(blocks)
            self._queue.pop()
            self._remove(leaf)
        ids = unpack_blocks(b"".join(freed))
        self._num_cached -= len(ids)
        return ids

    def _remove(self, leaf: Node) -> None:
        """Unlink a leaf and hand its usage up; the parent may become a leaf, an empty root is dropped."""
        parent = leaf.parent
        assert parent is not None
        leaf.parent = None
        del parent.children[leaf.tokens[: self._block_bytes]]
        if parent.parent is None:
            if not parent.children:
                del self._roots[parent.namespace]
            return
        parent.num_hits += leaf.num_hits
        if leaf.last_used > parent.last_used:
            parent.last_used = leaf.last_used
            parent.used_at = leaf.used_at
        if leaf.priority > parent.priority:
            parent.priority = leaf.priority
        if not parent.children and not parent.num_holds:
            self._queue.push(parent)

    def clear(self) -> list[int]:
        """Evict everything that is not leased, pins included; returns the ids."""
        for pin in list(self._pins):
            self.unpin(pin)
        return self.evict(self._num_cached)

    # ------------------------------------------------------------------ for people and tests

    def draw(self, *, label: Callable[[list[int]], str] | None = None, max_lines: int = 200) -> str:
        """The tree as text; see `draw_tree`."""
        return draw_tree(self._roots, self._clock(), label=label, max_lines=max_lines)

    def audit(self) -> None:
        """Recompute every count and check every link; AssertionError names the place. O(tree)."""
        audit_tree(
            self._roots,
            self._queue,
            self._pins,
            block_size=self.block_size,
            tick=self._tick,
            num_cached_blocks=self._num_cached,
            num_leased_blocks=self._num_leased,
        )


def _pack_blocks(blocks: Sequence[int]) -> bytes:
    return (blocks if isinstance(blocks, array) and blocks.typecode == "i" else array("i", blocks)).tobytes()


def _differing(row: bytes, node: Node, known: int) -> list[int]:
    """Ids in `row[:known]` (bytes) other than those on the path to `node`."""
    duplicates: list[int] = []
    end = known
    while node.parent is not None:
        start = end - len(node.blocks)
        if not row.startswith(node.blocks, start):
            pairs = zip(unpack_blocks(row[start:end]), unpack_blocks(node.blocks), strict=True)
            duplicates[:0] = [given for given, held in pairs if given != held]
        end = start
        node = node.parent
    return duplicates
