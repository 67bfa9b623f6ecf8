"""What goes first: eviction policies, and the queue of leaves that obeys them.

A policy is a key function over leaves; the tree asks it nothing else. `cost` is greedy-dual-size-frequency (Cherkasova
1998) over blocks: the key is what recomputing one block would cost, times how often the prefix was used, plus the
*era*: the key of what was evicted last, as it stood when the prefix was last used. So frequency counts, but ages, and
prefixes that everybody needs survive a flood of prefixes that nobody asks for twice.

A policy maps a leaf to a key; the leaf with the smallest key goes first. The key of a node may only grow while it
is in the tree (recency, counts and maxima do), because the queue is lazy: an entry keeps the key it was pushed
with, and only when it surfaces is it compared with the present one and, if stale, put back. So a match costs the
queue nothing, and each correction was paid for by a match.

Most pushes come in order: a new leaf is the most recently used of all. These wait in a plain line, O(1); only what
is pushed out of order (a leaf that was used again, a parent that became a leaf, a lease that ended) goes into a
heap, O(log leaves). The smaller of the two heads goes first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from .node import Node

Policy = Callable[[Node], Any]
BlockCost = Callable[[int], float]


def _lru(block_cost: BlockCost) -> Policy:
    return attrgetter("last_used")


def _lfu(block_cost: BlockCost) -> Policy:
    return attrgetter("num_hits", "last_used")


def _priority(block_cost: BlockCost) -> Policy:
    return attrgetter("priority", "last_used")


def _cost(block_cost: BlockCost) -> Policy:
    def key(node: Node) -> tuple[float, float]:
        return node.era + (node.num_hits + 1) * block_cost(node.end), node.last_used

    return key


POLICIES: Mapping[str, Callable[[BlockCost], Policy]] = MappingProxyType(
    {"lru": _lru, "lfu": _lfu, "priority": _priority, "cost": _cost}
)


def equal_cost(end: int) -> float:
    """The cost of recomputing the block that ends at token `end`, when all are alike."""
    return 1.0


class EvictionQueue:
    """Candidates for eviction, at most one entry (key, node) per node.

    Invariant: every leaf without holds has an entry, whose key is at most its present key. Entries of nodes
    that have since got children or holds are dropped when they surface; the tree pushes such a node again when
    it becomes an unheld leaf again.
    """

    __slots__ = ("_heap", "_line", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._line: deque[tuple[Any, Node]] = deque()
        self._heap: list[tuple[Any, Node]] = []

    def push(self, node: Node) -> None:
        """Make an unheld leaf a candidate; no effect if it has an entry already."""
        if not node.is_queued:
            node.is_queued = True
            line = self._line
            entry = self.policy(node), node
            if not line or line[-1] < entry:
                line.append(entry)
            else:
                heappush(self._heap, entry)

    def take(self) -> Node | None:
        """Take the leaf that is to go first out of the queue; None if nothing can go."""
        line, heap = self._line, self._heap
        while line or heap:
            key, node = heappop(heap) if not line or (heap and heap[0] < line[0]) else line.popleft()
            node.is_queued = False
            if not node.children and not node.num_holds:
                if self.policy(node) == key:
                    return node
                self.push(node)
        return None

    def audit(self) -> set[Node]:
        """Raise AssertionError if the order is broken; returns the nodes that have an entry."""
        for before, after in zip(self._line, list(self._line)[1:], strict=False):
            assert before < after, "the line of the eviction queue is out of order"
        for index, entry in enumerate(self._heap):
            assert self._heap[(index - 1) >> 1] <= entry or not index, f"the heap is none at {index}"
        entries = [*self._line, *self._heap]
        for key, node in entries:
            present = self.policy(node)
            assert key <= present, f"{node.name}: queued under {key}, above its key {present}"
        queued = {node for _, node in entries}
        assert len(queued) == len(entries), "a node is in the eviction queue twice"
        return queued
