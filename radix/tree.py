"""The radix tree: token prefixes → KV block ids.

How the tree is made, its invariants and its costs are told in `core/tree.h`. Here it gets a clock, pins, events,
explanations and Python types. It knows ints only: no tensors, no requests, no pool. Blocks given to `insert` belong to
the tree until `evict` hands them back.

Not thread-safe: one thread owns the tree. Callbacks (`block_cost`, `spare`, `on_event`) must not use it: while one of
them runs, every method that looks into the tree raises RuntimeError, in every thread; counts can be read.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable

from .._core import radix as core
from .explain import Explanation, explain_miss
from .pins import Pin, PinBook
from .results import NOTHING, Event, Inserted, Match, Node, Statistics
from .snapshot import NodeRecord, Snapshot
from .tokens import pack, unpack

# What a leaf's rank is: lru 0, lfu its hits, priority the highest that was given, cost GreedyDual-Size-Frequency
# (hits x the cost of computing a block again + the rank of what was evicted last). See `core/tree.h`.
POLICIES: tuple[str, ...] = core.POLICIES
# What computing the block that ends at a token would cost, in any unit.
BlockCost = Callable[[int], float]
# How many tokens of a prefix (its namespace, its packed tokens) will soon be needed.
Spare = Callable[[str, bytes], int]


def equal_cost(end: int) -> float:
    """All blocks are alike."""
    return 1.0


class RadixTree(core.Tree):
    """Maps token prefixes to block ids.

    Args:
        block_size: tokens per block.
        policy: which leaf is evicted first, one of `POLICIES`; the least recently used one among equals.
        block_cost: for the policy "cost"; must not fall with the position.
        clock: seconds; read once per match, insertion and eviction.
        max_pinned_blocks: budget of all pins together; with 0 there are no pins.
        max_ghosts: evicted runs to be remembered for `explain`.
        on_event: told of every insertion and eviction, after the fact; None costs nothing. An exception that it raises
            is reported by `sys.unraisablehook`: the operation stands, and returns its blocks.

    Raises:
        ValueError: there is no such policy, or `block_size` is less than 1.
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
        self._pins = PinBook(self, max_pinned_blocks)

    # ---------------------------------------------------------------- counts

    @property
    def num_evictable_blocks(self) -> int:
        """Blocks that `evict` could hand back now, those under expired pins not counted. Exact."""
        return self.num_cached_blocks - self.num_leased_blocks

    @property
    def num_pins(self) -> int:
        """Pins that have not ended."""
        return len(self._pins)

    @property
    def num_pinned_blocks(self) -> int:
        """Distinct blocks that pins protect (leases may protect some of them too)."""
        return self._pins.num_blocks

    @property
    def statistics(self) -> Statistics:
        """A snapshot of all counts."""
        return Statistics(**self.counts(), num_pinned_blocks=self._pins.num_blocks)

    # ---------------------------------------------------------------- match, insert

    def match(self, tokens: bytes, namespace: str) -> Match:
        """The longest cached prefix of whole blocks of `tokens` (see `pack`), and a donor for the block after it.

        Refreshes the recency of the prefix and counts as a hit on it. Splits a node if the prefix ends within one.
        """
        return Match(*self.find(tokens, namespace, self._clock()), self)

    def peek(self, tokens: bytes, namespace: str) -> int:
        """How many tokens a `match` would spare, those of the donor included. Changes and counts nothing."""
        return sum(self.look(tokens, namespace))

    def insert(
        self,
        tokens: bytes,
        blocks: Iterable[int] | bytes,
        namespace: str,
        after: Node = NOTHING,
        *,
        priority: int = 0,
    ) -> Inserted:
        """Put a computed prefix into the tree, or find that it is there.

        Refreshes the recency of the prefix. May split.

        Args:
            tokens: packed int32, from the root on, or from `after` on.
            blocks: one id per whole block of `tokens`: ints, or packed int32. With one id more, the trailing tokens
                that do not fill a block come in as well: as a tail, which later matches find as a donor. Without it
                they are ignored.
            after: the end of a prefix that the caller has leased; `tokens` and `blocks` are what comes after it.
            priority: int32, for the policy of that name: a prefix keeps the highest that it was ever given, at least 0.

        Raises:
            ValueError: the number of ids is not the number of blocks, the packed bytes are no multiple of 4, `after`
                was evicted, or `block_cost` gave no finite number.
            TypeError: `block_cost` gave no number. After any exception the tree holds what it held before.
        """
        packed = blocks if isinstance(blocks, bytes) else pack(blocks)
        num_new, node, duplicates = self.put(
            tokens, packed, namespace, after, priority, self._clock(), self._block_cost, self._tell
        )
        return Inserted(num_new, node, unpack(duplicates))

    def touch(self, node: Node) -> None:
        """Count a use of the prefix that ends at `node`, as `match` does: for a tail that served as donor."""
        self.use(node, self._clock())

    # ---------------------------------------------------------------- leases and pins

    def end_leases(self) -> None:
        """Ends every lease except those of pins, for an owner that does not know any more which it has. O(nodes)."""
        self._pins.num_blocks = self._pins.count_blocks()
        pinned = Counter(pin.node for pin in self._pins)
        for node in self._snapshot().nodes:
            for _ in range(node.num_leases - pinned[Node(node.id)]):
                self.release(Node(node.id))

    def pin(self, tokens: bytes, ttl: float, namespace: str) -> Pin:
        """Keep the cached prefix of `tokens` for at least `ttl` seconds, leased or not.

        Counts as a match. A pin of 0 tokens (nothing was cached) holds nothing. After `ttl` the prefix stays
        until an eviction finds no other room.

        Raises:
            PinBudgetExceeded: the pinned blocks would exceed `max_pinned_blocks`; nothing was pinned.
        """
        now = self._clock()
        num_tokens, node, *_ = self.find(tokens, namespace, now)
        return self._pins.add(Pin(node, num_tokens, now + ttl))

    def unpin(self, pin: Pin) -> bool:
        """End a pin; False if it held nothing, or has ended."""
        return self._pins.end(pin)

    def end_expired_pins(self) -> float:
        """End the pins whose time is over, room or no room; returns when the next one does (inf: none)."""
        if self._pins:
            self._pins.end_expired(self._clock())
        first = self._pins.first()
        return first.expires_at if first else math.inf

    def give_up_pin(self) -> bool:
        """End the pin that would expire first, whether its time is over or not; False if there is none."""
        first = self._pins.first()
        return first is not None and self._pins.end(first)

    # ---------------------------------------------------------------- evict, clear

    def evict(self, num_blocks: int, spare: Spare | None = None) -> list[int]:
        """Take at least `num_blocks` blocks out of the tree, those of the leaves that the policy puts first.

        Fewer come back only if all else is leased or pinned; expired pins are given up before that. A leaf goes
        whole if it holds no more than twice what is wanted, or 16 blocks or a 64th of the cache more: the next
        eviction would take the rest anyway. A longer one is shortened from its end, exactly.

        Args:
            spare: the whole blocks that it says are needed stay, in up to 64 leaves, as if they had just been used;
                what is beyond them goes. If nothing else is left they go as well. If it raises, or memory runs out,
                blocks that were taken before have left the tree and are not returned: `blocks()` tells which remain.

        Raises:
            TypeError: `spare` did not give an int.
        """
        freed = self._take(num_blocks, spare)
        if len(freed) < num_blocks and self._pins and self._pins.end_expired(self._clock()):
            freed += self._take(num_blocks - len(freed), spare)
        if len(freed) < num_blocks and spare is not None:
            freed += self._take(num_blocks - len(freed), None)
        return freed

    def _take(self, num_blocks: int, spare: Spare | None) -> list[int]:
        return unpack(self.take(max(0, min(num_blocks, self.num_cached_blocks)), self._clock(), spare, self._tell))

    def clear(self) -> list[int]:
        """Give up all pins and evict everything that is not leased; returns the ids."""
        while self.give_up_pin():
            pass
        return self.evict(self.num_cached_blocks)

    # ---------------------------------------------------------------- for people and tests

    def blocks(self) -> list[int]:
        """The ids of all blocks in the tree. O(blocks)."""
        return [block for node in self._snapshot().nodes for block in node.blocks]

    def explain(self, tokens: bytes, namespace: str, *, elsewhere_too: bool = True) -> Explanation:
        """Where the longest cached prefix of `tokens` ends, and why. Changes and counts nothing.

        O(evictions on record), and with `elsewhere_too` one walk in every other namespace.
        """
        return explain_miss(self, tokens, namespace, self.block_size, self._clock(), elsewhere_too)

    def draw(self, *, label: Callable[[list[int]], str] | None = None, max_lines: int = 200) -> str:
        """The tree as text; see `Snapshot.draw`."""
        return self._snapshot().draw(self._clock(), label, max_lines)

    def audit(self) -> None:
        """Recompute every count and check every link; AssertionError names the place. O(tree)."""
        self._snapshot().audit(self._pins)

    def _snapshot(self) -> Snapshot:
        nodes = [NodeRecord(*fields) for fields in self.nodes()]
        return Snapshot(self.block_size, nodes, self.candidates(), self.counts())
