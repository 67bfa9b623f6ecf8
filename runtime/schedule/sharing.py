"""Which requests hold a block: what would become free if one left, with which one alone it shares, and which of those
that run is preempted when blocks run out.

Knows requests and leases; it changes nothing. Cost: O(requests).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..cache.prefix_cache import PrefixCache
from ..request import Request


def num_sole_blocks(cache: PrefixCache, request: Request) -> int:
    """Blocks that would become free or evictable if the request left now."""
    if request.lease is None:
        return len(request.blocks)
    held = -(-request.lease.num_tokens // cache.block_size)
    return len(request.blocks) - held + cache.tree.num_sole_blocks(request.lease.node)


def sole_partner(cache: PrefixCache, request: Request, others: Iterable[Request]) -> Request | None:
    """Which of `others` held alone, until `request` leased it, what they share now; None: there is none."""
    if request.lease is None:
        return None
    num_shared = request.lease.num_tokens // cache.block_size - cache.tree.num_sole_blocks(request.lease.node)
    last = num_shared - 1  # of the blocks above it each is held by all leases that hold this one
    if last < 0:
        return None
    block = request.blocks[last]
    holders = [other for other in others if len(other.blocks) > last and other.blocks[last] == block]
    return holders[0] if len(holders) == 1 else None


def cheapest_to_resume(running: Sequence[Request], prefix_cache: PrefixCache) -> Request:
    """Of the lowest priority, the request with the fewest blocks of its own, the youngest of several.

    The oldest is spared, so there must be two; so are requests whose preemption frees nothing.

    running: oldest first.
    """
    candidates = running[1:]
    useful = [
        (request.priority, num_blocks, -request.ticket, request)
        for request in candidates
        if (num_blocks := num_sole_blocks(prefix_cache, request)) > 0
    ]
    # If none has a block of its own, the youngest are preempted until what they share is free.
    return min(useful)[3] if useful else candidates[-1]
