"""Why a prefix was not cached: read off the tree and the record of what was evicted.

A ghost is where something hung, its first block, and when it went. It hangs on the node that survived it, which is
where a later walk for the same tokens ends. So nothing is hashed along the path: recording is one copy, and only
whoever asks for an explanation searches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from .operations import Operations
from .tokens import without_padding
from .view import View

Reason = Literal["complete", "block_rounding", "evicted", "other_namespace", "never_seen"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where the longest cached prefix of some tokens ends, and why there.

    Attributes:
        num_tokens: tokens asked about.
        num_cached_tokens: the prefix that `match` would find: whole blocks.
        num_agreeing_tokens: how far the tree agrees to the token (a donor block included).
        reason: why `num_cached_tokens` is not `num_tokens`:
            "complete": it is.
            "evicted": the next block was here until `evicted_at`, or a tail that went on further than what is here.
            "block_rounding": what is left does not fill a block.
            "other_namespace": the next block is in `other_namespace`. For operators: that a tenant's neighbour
            has sent the same text is nothing to tell the tenant.
            "never_seen": none of these (or evicted longer ago than the record reaches).
        evicted_at: seconds of the tree's clock, or None.
        asked_at: the same clock, now.
        other_namespace: the one that has the longest prefix, or None.
    """

    num_tokens: int
    num_cached_tokens: int
    num_agreeing_tokens: int
    reason: Reason
    evicted_at: float | None
    asked_at: float
    other_namespace: str | None


def explain_miss(
    view: View,
    operations: Operations,
    former_roots: Iterable[tuple[int, str]],
    tokens: bytes,
    namespace: str,
    *,
    now: float,
    elsewhere_too: bool,
) -> Explanation:
    """Follow `tokens` in their namespace, ask the ghosts at the end, then try all other namespaces (if wanted)."""
    address, block_bytes = view.memory.address, 4 * view.block_size
    num_cached, node, num_whole, num_partial = operations.look(address, view.roots.get(namespace, 0), tokens)
    next_block = tokens[4 * num_cached : 4 * num_cached + block_bytes]
    evicted_at = None
    if num_cached == num_whole and next_block:  # ghosts hang on the ends of runs
        places = {node | view.field(node, "generation") << 32} if node else set()
        if not num_cached:
            places |= {handle for handle, former in former_roots if former == namespace}
        evicted_at = _evicted_at(view, places, next_block, 4 * num_partial)
    elsewhere, furthest = None, num_cached
    for other, root in view.roots.items() if elsewhere_too else ():
        if other != namespace:
            num_there = operations.look(address, root, tokens)[0]
            if num_there > furthest:
                elsewhere, furthest = other, num_there
    reason: Reason = "never_seen"
    if not next_block:
        reason = "complete"
    elif evicted_at is not None:
        reason = "evicted"
    elif len(next_block) < block_bytes:
        reason = "block_rounding"
    elif elsewhere is not None:
        reason = "other_namespace"
    return Explanation(len(tokens) >> 2, num_cached, num_cached + num_partial, reason, evicted_at, now, elsewhere)


def _evicted_at(view: View, places: set[int], next_block: bytes, agreed: int) -> float | None:
    """When a run at one of these places last went that begins like `next_block`, as far as both have tokens.

    That must be further than the `agreed` bytes in which something that is still here agrees. None if there was none,
    or if it is not on record any more.
    """
    memory = view.memory
    num_ghosts, room = int(memory.head["num_ghosts"]), len(memory.ghosts)
    for number in range(num_ghosts - 1, max(num_ghosts - room, 0) - 1, -1):
        ghost = memory.ghosts[number % room]
        if int(ghost["place"]) in places:
            gone = without_padding(memory.ghost_tokens[number % room].tobytes())
            shared = min(len(gone), len(next_block))
            if shared > agreed and gone[:shared] == next_block[:shared]:
                return float(ghost["when"])
    return None
