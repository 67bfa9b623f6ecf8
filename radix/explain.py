"""Why a prefix was not cached: read off the tree and the record of what was evicted.

A ghost is (where it hung, its first block, when it went). It hangs on the node that survived it, which is where a
later walk for the same tokens ends. So nothing is hashed along the path: recording is one append, and only
whoever asks for an explanation searches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from .node import Node
from .tokens import without_padding
from .walk import reach

GhostRecord = deque[tuple[Node, bytes, float]]
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
    roots: Mapping[str, Node],
    ghosts: GhostRecord,
    tokens: bytes,
    namespace: str,
    block_bytes: int,
    *,
    now: float,
    elsewhere_too: bool,
) -> Explanation:
    """Follow `tokens` in their namespace, ask the ghosts at the end, then try all other namespaces (if wanted)."""
    root = roots.get(namespace) or Node(namespace)
    node, agreed, cached = reach(root, tokens, block_bytes)
    next_block = tokens[cached : cached + block_bytes]
    evicted_at = None
    if node is not None and next_block:
        evicted_at = _evicted_at(ghosts, node, next_block, agreed - cached)
    elsewhere, furthest = None, cached
    for other, other_root in roots.items() if elsewhere_too else ():
        if other != namespace:
            reached = reach(other_root, tokens, block_bytes)[2]
            if reached > furthest:
                elsewhere, furthest = other, reached
    reason: Reason = "never_seen"
    if not next_block:
        reason = "complete"
    elif evicted_at is not None:
        reason = "evicted"
    elif len(next_block) < block_bytes:
        reason = "block_rounding"
    elif elsewhere is not None:
        reason = "other_namespace"
    return Explanation(len(tokens) >> 2, cached >> 2, agreed >> 2, reason, evicted_at, now, elsewhere)


def _evicted_at(ghosts: GhostRecord, above: Node, next_block: bytes, agreed: int) -> float | None:
    """When a run below `above` last went whose first block agrees with `next_block` as far as both have tokens.

    That must be further than the `agreed` bytes in which something that is still here agrees. None if there was none,
    or if it is not on record any more.
    """
    for place, block, when in reversed(ghosts):
        if block[:4] == next_block[:4] and (place is above or _are_roots_of_one_namespace(place, above)):
            gone = without_padding(block)
            shared = min(len(gone), len(next_block))
            if shared > agreed and gone[:shared] == next_block[:shared]:
                return when
    return None


def _are_roots_of_one_namespace(one: Node, other: Node) -> bool:
    """A root that was dropped and made again is the same place."""
    return not one.blocks and not other.blocks and one.namespace == other.namespace
