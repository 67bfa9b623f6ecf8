"""A block to copy from when a request begins: its first tokens are the request's next ones.

Of the tree, or of a request that runs, whose last block is not in the tree yet. Knows requests and block ids. Cost:
O(block) per running request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..request import Request
from .slot import NO_SLOT


@dataclass(frozen=True, slots=True)
class Donor:
    """A block that begins with the next `num_tokens` tokens of a request, and then differs or ends.

    slot: where layers with a window have it.
    """

    block: int
    num_tokens: int
    slot: int = NO_SLOT


def best_donor(found: Donor, request: Request, running: Iterable[Request], limit: int, block_size: int) -> Donor | None:
    """Of `found` (0 tokens: none) and the blocks of `running` the one that shares most; None: nothing is shared.

    Args:
        request: it has leased its whole blocks, which are all that it has computed.
        limit: how many of its tokens may come from a cache.
    """
    best = found
    for other in running:
        num_shared = _num_shared_after(request, other, limit, block_size)
        if num_shared > best.num_tokens:
            best = Donor(other.blocks[len(request.blocks)], num_shared)
    return best if best.num_tokens else None


def _num_shared_after(request: Request, other: Request, limit: int, block_size: int) -> int:
    """Tokens after the matched blocks of `request` that `other` has computed in a block of its own."""
    start, index = request.num_computed_tokens, len(request.blocks)
    end = min(limit, other.num_computed_tokens, start + block_size)
    if other is request or end <= start or other.namespace != request.namespace or other.num_dropped_tokens:
        return 0
    if index and other.blocks[index - 1] != request.blocks[-1]:
        return 0  # equal block ids up to here: equal tokens up to here
    pairs = zip(request.token_ids[start:end], other.token_ids[start:end], strict=True)
    return next((number for number, (mine, its) in enumerate(pairs) if mine != its), end - start)
