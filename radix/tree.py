"""The radix tree: token prefixes → KV block ids.

::

    namespace "" ── [1 7 3 … 2,000 tokens | blocks 0-124] ──┬── [40 8 …  | 125-129]
                                                            └── [91 2 …  | 130-131] ──┬── …
                                                                                      └── …
    split:   ── [a b c d] ──          ── [a b] ──┬── [c d]     the lower part stays the node it was, so leases
                                                 └── [x y]     and pins hold; the upper part is new

A run carries whole blocks only: `block_size` tokens per block, at least one block per node. Two children of a node
differ somewhere within their first blocks. Each namespace (salt, adapter, model) has a root of its own; a root without
children is dropped.

The tree knows ints only: no tensors, no requests, no pool. Blocks given to `insert` belong to the tree until
`evict` hands them back. A path is protected by a lease on its end node: a node with a child is never evicted, so
a lease need not touch what is above it, except for the exact count of evictable blocks, which climbs until it
meets a path that is held already. For the same reason usage is written at the end of a path only, and handed to the
parent when a leaf goes: a node becomes a leaf only after all its descendants have handed theirs up, so at every leaf
the figures are what marking whole paths would have given.

Everything is in flat arrays (`memory`), and each operation is one call of one compiled function (`tree_kernels`); what
is here turns their answers into objects and errors. What it calls it takes out of its slots first: `self._find(…)`
would be looked for among the methods of the class, which takes a tenth of a match.

Invariants (`audit` checks them all):
    every block id is in the tree once;
    `num_cached_blocks = num_leased_blocks + num_evictable_blocks`;
    a node is protected while a lease or a pin ends at it or below it;
    every leaf without a lease is in the eviction queue, under a key not above its present one.

Cost: match and insert O(tokens), and O(log children) per node on the path; lease and release O(1) below a held
ancestor; evict O(log leaves) per leaf, amortised. Nothing recurses. Not thread-safe: one thread owns the tree.
"""

from __future__ import annotations

import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from .audit import audit_tree
from .draw import draw_tree
from .eviction import COST, POLICIES, BlockCost, equal_cost
from .evictor import Evictor, Spare
from .explain import Explanation, explain_miss
from .memory import FULL, NO_CELLS, NO_ROOT, STALE, Memory
from .operations import Int32s, compile_operations
from .pins import Pin, PinBook
from .results import NOTHING, Event, Inserted, Match, Node, Statistics
from .tokens import unpack_blocks
from .view import View

# An operation asks for no more nodes than these at a time.
MAX_NEW_NODES = 4
# What `Statistics` has from the head of the memory
COUNTED = (
    "num_matches",
    "num_asked_tokens",
    "num_matched_tokens",
    "num_duplicate_blocks",
    "num_evicted_blocks",
    "num_splits",
    "num_cached_blocks",
    "num_leased_blocks",
)


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
        room: how many blocks are expected, at most: so many come in without a stop to move to larger arrays. (Memory is
            taken up when it is used.)
        on_event: told of every insertion and eviction, after the fact; None costs nothing.

    Attributes:
        evict_packed: `Evictor.evict`: takes blocks out of the tree, those of the leaves that the policy puts first.
    """

    __slots__ = (
        "_address",
        "_clock",
        "_evictor",
        "_find",
        "_find_blocks",
        "_head",
        "_insert",
        "_lease",
        "_memory",
        "_on_event",
        "_operations",
        "_pins",
        "_release",
        "_roots",
        "_view",
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
        room: int = 0,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {block_size}")
        if policy not in POLICIES:
            raise ValueError(f"no eviction policy {policy!r}; there are {', '.join(POLICIES)}")
        self.block_size = block_size
        self._clock = clock
        self._on_event = on_event
        self._memory = Memory(
            block_size,
            policy=POLICIES[policy],
            max_ghosts=max_ghosts,
            room=room,
            block_cost=block_cost if POLICIES[policy] == COST else None,
        )
        self._address, self._head = self._memory.address, self._memory.head
        self._operations = operations = compile_operations()
        self._find, self._insert = operations.find, operations.insert
        self._find_blocks = operations.find_blocks
        self._lease, self._release = operations.lease, operations.release
        self._view = View(self._memory, operations, block_size)
        self._roots = self._view.roots
        self._pins = PinBook(max_pinned_blocks, clock=clock, lease=self.lease, release=self.release, view=self._view)
        self._evictor = Evictor(
            self._view,
            operations,
            clock=clock,
            max_ghosts=max_ghosts,
            find_room=self._pins.give_up_expired,
            on_event=on_event,
        )
        self.evict_packed = self._evictor.evict

    # ---------------------------------------------------------------- counts

    @property
    def num_cached_blocks(self) -> int:
        """All blocks in the tree."""
        return int(self._head["num_cached_blocks"])

    @property
    def num_leased_blocks(self) -> int:
        """Blocks that a lease or a pin protects."""
        return int(self._head["num_leased_blocks"])

    @property
    def num_evictable_blocks(self) -> int:
        """Blocks that `evict` could hand back now, those under expired pins not counted. Exact."""
        return self.num_cached_blocks - self.num_leased_blocks

    @property
    def num_pins(self) -> int:
        """Pins that have not ended."""
        return sum(1 for _ in self._pins)

    @property
    def num_pinned_blocks(self) -> int:
        """Distinct blocks that pins protect (leases may protect some of them too)."""
        return self._pins.num_blocks

    @property
    def statistics(self) -> Statistics:
        """A snapshot of all counts."""
        counted = {name: int(self._head[name]) for name in COUNTED}
        return Statistics(
            **counted,
            num_inserted_blocks=counted["num_cached_blocks"] + counted["num_evicted_blocks"],
            num_namespaces=len(self._roots),
            num_nodes=int(self._head["num_nodes"]) - len(self._roots),
            num_pinned_blocks=self._pins.num_blocks,
        )

    # ---------------------------------------------------------------- match, insert

    def match(self, tokens: bytes, namespace: str) -> Match:
        """The longest cached prefix of whole blocks of `tokens` (see `pack`), and a donor for the block behind it.

        Refreshes the recency of the prefix and counts as a hit on it. Splits a node if the prefix ends inside one.
        """
        return Match(self.packed_blocks, *self.find(tokens, namespace))

    def find(self, tokens: bytes, namespace: str) -> tuple[int, Node, Node, int, int]:
        """`match` as a tuple: number of tokens, node, partial node, number of partial tokens, partial block."""
        find, clock = self._find, self._clock
        found = find(self._address, self._roots.get(namespace, 0), tokens, clock())
        if found[0] < 0:
            self._memory.grow(num_nodes=MAX_NEW_NODES)
            return self.find(tokens, namespace)
        return found  # type: ignore[return-value]  # the kernel knows no `Node`

    def peek(self, tokens: bytes, namespace: str) -> int:
        """How many tokens a `match` would spare, those of the donor included. Changes and counts nothing."""
        num_tokens, _, _, num_partial = self._operations.look(self._address, self._roots.get(namespace, 0), tokens)
        return num_tokens + num_partial

    def continuation(self, tokens: bytes, namespace: str, count: int) -> bytes:
        """At most `count` tokens that follow `tokens` in the tree, as far as they can be followed in one way only.

        Changes and counts nothing.
        """
        node, num_before = self._operations.find_way(self._address, self._roots.get(namespace, 0), tokens)
        return self._view.way_on(node, num_before, count)

    def insert(
        self,
        tokens: bytes,
        blocks: Sequence[int] | Int32s,
        namespace: str,
        after: Node = NOTHING,
        *,
        priority: int = 0,
    ) -> Inserted:
        """Put a computed prefix into the tree, or find that it is there.

        Refreshes the recency of the prefix. May split.

        Args:
            tokens: packed int32, from the root on, or from `after` on.
            blocks: one id per whole block of `tokens`: a list, an `array('i')`, an array of int32 or packed int32. With
                one id more, the trailing tokens that do not fill a block come in as well: as a tail, which later
                matches find as a donor. Without it they are ignored.
            after: the end of a prefix that the caller has leased; `tokens` and `blocks` are what comes behind it.
            priority: for the policy of that name: a prefix keeps the highest that it was ever given. What is not in
                0 … 2^31 - 1 counts as the nearer of the two.

        Raises:
            ValueError: the number of ids is not the number of blocks, or `after` was evicted; nothing was changed.
        """
        num_new, node, duplicates = self.put(tokens, _as_int32s(blocks), namespace, after, priority)
        return Inserted(node, num_new, unpack_blocks(duplicates))

    def put(
        self, tokens: bytes, blocks: Int32s, namespace: str, after: Node = NOTHING, priority: int = 0
    ) -> tuple[int, Node, bytes]:
        """`insert` of an array of int32, as a tuple: number of new tokens, node, packed duplicates."""
        insert, clock = self._insert, self._clock
        done = insert(self._address, self._roots.get(namespace, 0), after, tokens, blocks, priority, clock())
        if done[0] < 0:
            self._make_way(done[0], tokens, blocks, namespace, after)
            return self.put(tokens, blocks, namespace, after, priority)
        if self._on_event is not None and done[0]:
            self._tell_of(Node(done[1]), namespace)
        return done  # type: ignore[return-value]  # the kernel knows no `Node`

    def _tell_of(self, leaf: Node, namespace: str) -> None:
        """Tells who follows the events of a new leaf."""
        assert self._on_event is not None
        path, blocks = self._view.path_tokens(leaf), self._view.run_blocks(self._view.open(leaf))
        start = (len(path) >> 2) - len(blocks) * self.block_size
        self._on_event(Event("inserted", namespace, path, start, blocks))

    def _make_way(self, obstacle: int, tokens: bytes, row: Int32s, namespace: str, after: Node) -> None:
        """Does what an insert asks for before it can be done; or says why it cannot."""
        if obstacle == FULL:
            start = self._view.field(self._view.open(after), "end") * self.block_size
            self._memory.grow(num_nodes=MAX_NEW_NODES, end=start + len(row) * self.block_size)
        elif obstacle == NO_CELLS:
            self._memory.grow(num_cells=len(row))
        elif obstacle == NO_ROOT:
            root = self._operations.make_root(self._address)
            if root == FULL:
                self._memory.grow(num_nodes=MAX_NEW_NODES)
                root = self._operations.make_root(self._address)
            self._roots[namespace] = root
            self._view.namespaces[root] = namespace
        elif obstacle == STALE:
            raise ValueError("cannot insert behind an evicted prefix: lease it before evicting")
        else:
            num_whole, num_rest = divmod(len(tokens) >> 2, self.block_size)
            raise ValueError(
                f"{len(row)} block ids for {len(tokens) >> 2} tokens, which are {num_whole} whole blocks"
                f" of {self.block_size}{' and a tail' if num_rest else ''}"
            )

    def touch(self, node: Node) -> None:
        """Count a use of the prefix that ends at `node`, as `match` does: for a tail that served as donor."""
        self._operations.touch(self._address, node, 1, self._clock())

    # ---------------------------------------------------------------- what a node stands for

    def packed_blocks(self, node: Node) -> bytes:
        """The packed ids from the root to the end of a node; ValueError if it was evicted. O(depth)."""
        find_blocks = self._find_blocks
        number, blocks = find_blocks(self._address, node)
        if number < 0:
            raise ValueError("the prefix has been evicted since it was matched: lease it before evicting")
        return blocks

    def is_tail(self, node: Node) -> bool:
        """Whether a prefix ends in a block that is not full. O(depth)."""
        return self._view.is_tail(node)

    # ---------------------------------------------------------------- lease, release, pin

    def lease(self, node: Node) -> None:
        """Protect the prefix that ends at `node`. Counted: every lease needs its release."""
        lease = self._lease
        if lease(self._address, node) < 0:
            raise ValueError("cannot lease an evicted prefix: lease it before evicting")

    def release(self, node: Node) -> None:
        """Undo one `lease`; ValueError if there is none."""
        release = self._release
        if release(self._address, node) < 0:
            raise ValueError("released more often than leased")

    def end_leases(self) -> None:
        """Ends every lease except those of pins, for an owner that does not know any more which it has. O(nodes)."""
        self._pins.recount()
        view, pinned = self._view, Counter(self._view.open(pin.node) for pin in self._pins)
        for node in view.nodes():
            surplus = view.field(node, "num_leases") - pinned[node]
            for _ in range(surplus):
                self.release(Node(view.handle(node)))

    def blocks(self) -> list[int]:
        """The ids of all blocks in the tree. O(blocks)."""
        return [block for node in self._view.nodes() for block in self._view.run_blocks(node)]

    def num_sole_blocks(self, node: Node) -> int:
        """How many blocks only the lease on `node` protects: what releasing it would make evictable. O(depth)."""
        return self._operations.count_sole_blocks(self._address, node)

    def pin(self, tokens: bytes, ttl: float, namespace: str) -> Pin:
        """Keep the cached prefix of `tokens` for at least `ttl` seconds, whoever leases it or not.

        Counts as a match. A pin of 0 tokens (nothing was cached) holds nothing. After `ttl` the prefix stays
        until an eviction finds no other room.

        Raises:
            PinBudgetExceeded: the pinned blocks would exceed `max_pinned_blocks`; nothing was pinned.
        """
        num_tokens, node, *_ = self.find(tokens, namespace)
        return self._pins.add(node, num_tokens, ttl)

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
            self._view,
            self._operations,
            self._evictor.former_roots,
            tokens,
            namespace,
            now=self._clock(),
            elsewhere_too=elsewhere_too,
        )

    def draw(self, *, label: Callable[[list[int]], str] | None = None, max_lines: int = 200) -> str:
        """The tree as text; see `draw_tree`."""
        return draw_tree(self._view, self._clock(), label=label, max_lines=max_lines)

    def audit(self) -> None:
        """Recompute every count and check every link; AssertionError names the place. O(tree)."""
        audit_tree(self._view, self._pins, self.statistics)


def _as_int32s(blocks: Sequence[int] | Int32s) -> Int32s:
    """Block ids as an array that may be handed to a kernel; bytes are taken to be packed already."""
    if isinstance(blocks, np.ndarray):
        if blocks.dtype != np.int32 or blocks.ndim != 1:
            raise ValueError(f"block ids are int32 in a row, not {blocks.dtype} of shape {blocks.shape}")
        return blocks
    return np.frombuffer(blocks if isinstance(blocks, bytes) else array("i", blocks), np.int32)
