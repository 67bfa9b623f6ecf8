"""Which running request is preempted when blocks run out: the cheapest to resume.

Knows requests and how many blocks each holds alone; it frees none. Cost: O(running requests).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cache.prefix_cache import PrefixCache
from ..cache.sharing import num_sole_blocks
from ..request import Request


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
