"""What goes first: eviction policies, and the queue of leaves that obeys them.

A policy maps a leaf to a key; the leaf with the smallest key goes first. The key of a node may only grow while
it is in the tree (recency, counts and maxima do), because the queue is lazy: an entry keeps the key it was pushed
with, and only when it surfaces is it compared with the present one and, if stale, put back deeper. So a match
costs the queue nothing, and an eviction O(log leaves) amortised: each correction was paid for by a match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from heapq import heappop, heappush, heapreplace
from types import MappingProxyType
from typing import Any

from .node import Node

Policy = Callable[[Node], Any]


def least_recently_used(node: Node) -> float:
    """The time of the last use."""
    return node.last_used


def least_frequently_used(node: Node) -> tuple[int, float]:
    """Number of hits, then recency."""
    return node.num_hits, node.last_used


def lowest_priority(node: Node) -> tuple[int, float]:
    """The highest priority that ever asked for it, then recency."""
    return node.priority, node.last_used


POLICIES: Mapping[str, Policy] = MappingProxyType(
    {"lru": least_recently_used, "lfu": least_frequently_used, "priority": lowest_priority}
)


class EvictionQueue:
    """A lazy heap with at most one entry per node.

    Invariant: every leaf without holds has an entry, whose key is at most its present key. Entries of nodes
    that have since got children or holds are dropped when they surface; the tree pushes such a node again when
    it becomes an unheld leaf again.
    """

    __slots__ = ("_entries", "policy")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._entries: list[tuple[Any, Node]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[tuple[Any, Node]]:
        """The heap itself, for the audit."""
        return self._entries

    def push(self, node: Node) -> None:
        """Make an unheld leaf a candidate; no effect if it has an entry already."""
        if not node.is_queued:
            node.is_queued = True
            heappush(self._entries, (self.policy(node), node))

    def take(self) -> Node | None:
        """Take the leaf that is to go first out of the queue; None if nothing can go."""
        entries, policy = self._entries, self.policy
        while entries:
            key, node = entries[0]
            if not node.children and not node.num_holds:
                present = policy(node)
                if present != key:
                    heapreplace(entries, (present, node))
                    continue
                heappop(entries)
                node.is_queued = False
                return node
            heappop(entries)
            node.is_queued = False
        return None
