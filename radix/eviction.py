"""What goes first: the eviction policies.

A policy gives a leaf a rank; the leaf with the smallest rank goes first, the least recently used one among equals:

    lru        0: the time of the last use alone decides
    lfu        how often the prefix was matched
    priority   the highest priority that the prefix was given
    cost       what recomputing one block would cost, times how often the prefix was used, plus the *era*

`cost` is greedy-dual-size-frequency (Cherkasova 1998) over blocks. The era is the rank of what was evicted last, as it
stood when the prefix was last used. So frequency counts, but ages, and prefixes that everybody needs survive a flood of
prefixes that nobody asks for twice. The formulas are in `core/tree.h`.
"""

from __future__ import annotations

from collections.abc import Callable

from .._core import radix as core

POLICIES: tuple[str, ...] = core.POLICIES

BlockCost = Callable[[int], float]


def equal_cost(end: int) -> float:
    """The cost of recomputing the block that ends at token `end`, when all are alike."""
    return 1.0
