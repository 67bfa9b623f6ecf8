"""What goes first: eviction policies, and the queue of leaves that obeys them.

A policy is a key function over leaves; the tree asks it nothing else. `cost` is greedy-dual-size-frequency (Cherkasova
1998) over blocks: the key is what recomputing one block would cost, times how often the prefix was used, plus the
*era*: the key of what was evicted last, as it stood when the prefix was last used. So frequency counts, but ages, and
prefixes that everybody needs survive a flood of prefixes that nobody asks for twice.

A policy maps a leaf to a key; the leaf with the smallest key goes first. The key of a node may only grow while it
is in the tree (recency, counts and maxima do), because the queue is lazy: a node keeps the key it was pushed
with, and only when it surfaces is it compared with the present one and, if stale, put back. So a match costs the
queue nothing, and each correction was paid for by a match.

Most pushes come in order: a new leaf is the most recently used of all. These wait in a plain line, O(1); only what
is pushed out of order (a leaf that was used again, a parent that became a leaf, a lease that ended) goes into a
heap, O(log leaves). The smaller of the two heads goes first.
"""

from __future__ import annotations

import math
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
    """Candidates for eviction, each under the key that it was pushed with; and the time of use that keys depend on.

    Invariant: every leaf without holds is in it once, under a key that is at most its present one. Nodes that have
    since got children or holds are dropped when they surface; the tree pushes such a node again when it becomes an
    unheld leaf again.

    Args:
        policy: gives a leaf its key.
        by_time: whether that is `last_used`, which is then read without a call.
        clock: seconds.

    Attributes:
        last_use: when something was used last, in seconds of the clock, made strictly increasing.
        era: see the module; 0 for policies without eras.
    """

    __slots__ = ("_by_time", "_clock", "_heap", "_line", "era", "last_use", "policy")

    def __init__(self, policy: Policy, *, by_time: bool, clock: Callable[[], float]) -> None:
        self.policy = policy
        self.last_use = -math.inf
        self.era = 0.0
        self._by_time = by_time
        self._clock = clock
        self._line: deque[Node] = deque()
        self._heap: list[tuple[Any, Node]] = []

    def mark_use(self, node: Node) -> None:
        """The prefix that ends at `node` is used now: later than any use before, so that no two uses tie."""
        now = self._clock()
        if now <= self.last_use:
            now = math.nextafter(self.last_use, math.inf)
        node.last_used = self.last_use = now
        node.era = self.era

    def enter(self, leaf: Node) -> None:
        """`mark_use` and `push` of a new leaf, in one."""
        now = self._clock()
        if now <= self.last_use:
            now = math.nextafter(self.last_use, math.inf)
        leaf.last_used = self.last_use = now
        leaf.era = self.era
        if self._by_time:  # nothing was used later
            leaf.queued_under = now
            self._line.append(leaf)
        else:
            self.push(leaf)

    def push(self, node: Node) -> None:
        """Make an unheld leaf a candidate; no effect if it is in the queue already."""
        if node.queued_under is None:
            line = self._line
            node.queued_under = key = node.last_used if self._by_time else self.policy(node)
            if not line or line[-1].queued_under < key:
                line.append(node)
            else:
                heappush(self._heap, (key, node))

    def put_back(self, node: Node) -> None:
        """Make the leaf that `take` gave last the first candidate again; its key must not have grown."""
        node.queued_under = self.policy(node)
        self._line.appendleft(node)

    def take(self) -> Node | None:
        """Take the leaf that is to go first out of the queue; None if nothing can go."""
        line, heap = self._line, self._heap
        while line or heap:
            from_heap = heap and (not line or heap[0][0] < line[0].queued_under)
            node = heappop(heap)[1] if from_heap else line.popleft()
            key = node.queued_under
            node.queued_under = None
            if not node.children and not node.num_holds:
                if key == (node.last_used if self._by_time else self.policy(node)):
                    return node
                self.push(node)
        return None

    def audit(self) -> set[Node]:
        """Raise AssertionError if the order is broken; returns the nodes that are queued."""
        for before, after in zip(self._line, list(self._line)[1:], strict=False):
            assert before.queued_under < after.queued_under, "the line of the eviction queue is out of order"
        for index, (key, node) in enumerate(self._heap):
            assert self._heap[(index - 1) >> 1] <= (key, node) or not index, f"the heap is none at {index}"
            assert key == node.queued_under, f"{node.name}: its entry in the heap has another key"
        entries = [*self._line, *(node for _, node in self._heap)]
        for node in entries:
            key, present = node.queued_under, self.policy(node)
            assert key <= present, f"{node.name}: queued under {key}, above its key {present}"
        queued = set(entries)
        assert len(queued) == len(entries), "a node is in the eviction queue twice"
        return queued
