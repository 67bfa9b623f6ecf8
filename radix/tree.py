"""The radix tree of RadixAttention (SGLang, arXiv 2312.07104): prefixes of token ids → KV block ids.

A request's prompt is matched (`match`): the KV of its longest cached prefix is reused, and a lease on that prefix,
the paper's reference count, protects it while the request runs. What the request computes is inserted (`insert`); nodes
are split where prefixes diverge. When the pool is full, leaves without leases are evicted (`evict`), by default the
least recently used first, so common prefixes outlive the requests that share them.

Structure, invariants and costs: `core/tree.h`. This module adds a clock, pins, events, explanations and Python types.
It knows token ids and block ids only: no tensors, no requests, no pool. A block given to `insert` belongs to the tree
until `evict` returns it.

Not thread-safe: one thread owns the tree. Callbacks (`block_cost`, `spare`, `on_event`) must not use it: while one
runs, every method that reads the tree raises RuntimeError, in every thread; only counts can be read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable

from .._core import radix as core
from .explain import Explanation, explain_miss
from .pins import PinBook
from .results import NOTHING, Columns, Event, Inserted, Match, Node, Statistics
from .snapshot import NodeRecord, Snapshot
from .tokens import pack, unpack

# The leaf with the lowest rank is evicted first. lru: all ranks are 0; lfu: its hits; priority: the highest that was
# given; cost: GreedyDual-Size-Frequency (hits x the cost of recomputing a block + the highest rank evicted so far).
POLICIES: tuple[str, ...] = core.POLICIES
# The cost of computing the block that ends at a position (in tokens), in any unit.
BlockCost = Callable[[int], float]
# How many tokens of a prefix (its namespace, its packed tokens) will be needed soon.
Spare = Callable[[str, bytes], int]


def equal_cost(end: int) -> float:
    """Every block costs the same."""
    return 1.0


class RadixTree(core.Tree):
    """Maps token prefixes to block ids: prefix matching, insertion, leases, eviction of leaves.

    Args:
        block_size: tokens per block.
        policy: which leaf is evicted first, one of `POLICIES`; of equal ones the least recently used.
        block_cost: for the policy "cost"; must not decrease with the position.
        clock: returns seconds; read once per match, insertion and eviction.
        max_pinned_blocks: most blocks that all pins together may hold; 0: no pins.
        max_ghosts: how many evicted runs are remembered for `explain`.
        on_event: called after every insertion and eviction. An exception that it raises is reported by
            `sys.unraisablehook`; the operation has happened, and returns its result.

    Attributes:
        pins: prefixes that it protects though no request uses them.

    Raises:
        ValueError: the policy is unknown, or `block_size` is less than 1.
    """

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
        super().__init__(block_size, policy, max_ghosts)
        self.block_size = block_size
        self._block_cost = block_cost if policy == "cost" else None
        self._clock = clock
        self._tell = None if on_event is None else lambda *fields: on_event(Event(*fields))
        self.pins = PinBook(self, max_pinned_blocks, clock)

    # ---------------------------------------------------------------- counts

    @property
    def num_evictable_blocks(self) -> int:
        """Blocks that `evict` could return now, without those of expired pins. Exact."""
        return self.num_cached_blocks - self.num_leased_blocks

    @property
    def statistics(self) -> Statistics:
        """A snapshot of all counts."""
        return Statistics(**self._counts(), num_pinned_blocks=self.pins.num_blocks)

    # ---------------------------------------------------------------- match, insert

    def match(self, tokens: bytes, namespace: str) -> Match:
        """Prefix matching: the longest cached prefix of `tokens` in whole blocks, and a donor for the block after it.

        Counts as a use of the prefix and as a hit on it. Splits a node if the prefix ends inside its run.

        Args:
            tokens: packed int32 (see `pack`).
        """
        return Match(*self._match(tokens, namespace, self._clock()), self)

    def peek(self, tokens: bytes, namespace: str) -> int:
        """How many tokens `match` would find, those of the donor included. Changes and counts nothing."""
        return sum(self._peek(tokens, namespace))

    def insert(
        self,
        tokens: bytes,
        blocks: Iterable[int] | bytes,
        namespace: str,
        after: Node = NOTHING,
        *,
        priority: int = 0,
    ) -> Inserted:
        """Insert a computed prefix. What the tree has already keeps its blocks.

        Counts as a use of the prefix. Splits a node if the prefix leaves the tree inside its run.

        Args:
            tokens: packed int32, from the root, or from the end of `after`.
            blocks: one id per whole block of `tokens`: ints, or packed int32. With one id more, the last tokens, which
                do not fill a block, are inserted too, as a tail: later matches find it as a donor. Without it they are
                ignored.
            after: the end of a prefix that the caller has leased; `tokens` and `blocks` are what follows it.
            priority: int32, for the policy "priority": a prefix keeps the highest that it was given, at least 0.

        Raises:
            ValueError: the number of ids is not that of the blocks, the packed bytes are no multiple of 4, `after` was
                evicted, or `block_cost` returned no finite number.
            TypeError: `block_cost` returned no number. After any exception the tree holds the same prefixes as before.
        """
        packed = blocks if isinstance(blocks, bytes) else pack(blocks)
        num_new, node, duplicates = self._insert(
            tokens, packed, namespace, after, priority, self._clock(), self._block_cost, self._tell
        )
        return Inserted(num_new, node, unpack(duplicates))

    def touch(self, node: Node) -> None:
        """Count a use of the prefix that ends at `node`, as `match` does: for a tail that served as a donor."""
        self._touch(node, self._clock())

    # ---------------------------------------------------------------- leases

    def end_leases(self) -> None:
        """End every lease except those of pins, for an owner that has lost track of its leases. O(nodes)."""
        self.pins.num_blocks = self.pins.count_blocks()
        pinned = Counter(pin.node for pin in self.pins)
        for node in self._snapshot().nodes:
            for _ in range(node.num_leases - pinned[Node(node.id)]):
                self.release(Node(node.id))

    # ---------------------------------------------------------------- evict, clear

    def evict(self, num_blocks: int, spare: Spare | None = None) -> list[int]:
        """Evict at least `num_blocks` blocks, leaf by leaf in the order of the policy; returns their ids.

        A parent whose last child is evicted becomes a leaf, and a candidate. Fewer blocks are returned only if all
        others are leased or pinned; expired pins end before that. A leaf is evicted whole if it has at most twice the
        blocks wanted, or at most 16 blocks or 1/64 of the cache more: the next eviction would take the rest anyway. A
        longer leaf is shortened from its end, by exactly what is wanted.

        Args:
            spare: the whole blocks that it says are needed stay, in up to 64 leaves, and count as just used; the rest
                of such a leaf is evicted. If nothing else is left they are evicted too. If it raises, or memory runs
                out, blocks evicted before have left the tree and are not returned: `blocks()` lists the others.

        Raises:
            TypeError: `spare` did not return an int.
        """
        freed = self._evict_leaves(num_blocks, spare)
        if len(freed) < num_blocks and self.pins.end_expired():
            freed += self._evict_leaves(num_blocks - len(freed), spare)
        if len(freed) < num_blocks and spare is not None:
            freed += self._evict_leaves(num_blocks - len(freed), None)
        return freed

    def _evict_leaves(self, num_blocks: int, spare: Spare | None) -> list[int]:
        return unpack(self._evict(max(0, min(num_blocks, self.num_cached_blocks)), self._clock(), spare, self._tell))

    def clear(self) -> list[int]:
        """End all pins and evict everything that is not leased; returns the ids."""
        while self.pins.end_first():
            pass
        return self.evict(self.num_cached_blocks)

    # ---------------------------------------------------------------- for people and tests

    def blocks(self) -> list[int]:
        """The ids of all blocks in the tree. O(blocks)."""
        return [block for node in self._snapshot().nodes for block in node.blocks]

    def columns(self, most: int) -> Columns:
        """The nodes as columns of numbers; of more than `most` those with the most tokens in and below them. O(nodes).

        20,000 nodes take 4 ms.
        """
        return Columns(*self._columns(self._clock(), most, [pin.node for pin in self.pins]))

    def explain(self, tokens: bytes, namespace: str, *, elsewhere_too: bool = True) -> Explanation:
        """Where the longest cached prefix of `tokens` ends, and why. Changes and counts nothing.

        O(recorded evictions), and with `elsewhere_too` one walk in every other namespace.
        """
        return explain_miss(self, tokens, namespace, self.block_size, self._clock(), elsewhere_too)

    def draw(self, *, label: Callable[[list[int]], str] | None = None, max_lines: int = 200) -> str:
        """The tree as text; see `Snapshot.draw`."""
        return self._snapshot().draw(self._clock(), label, max_lines)

    def audit(self) -> None:
        """Recompute every count and check every link; an AssertionError names the first that is wrong. O(tree)."""
        self._snapshot().audit(self.pins)

    def _snapshot(self) -> Snapshot:
        nodes = [NodeRecord(*fields) for fields in self._nodes()]
        return Snapshot(self.block_size, nodes, self._candidates(), self._counts())
