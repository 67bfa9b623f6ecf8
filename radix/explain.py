"""Why a prefix was not cached: read off the tree and its ghosts, the record of what was evicted.

A ghost hangs on the node that survived it, which is where a later walk for the same tokens ends. So recording is one
copy, and only an explanation searches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._core import radix as core

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
    tree: core.Tree, tokens: bytes, namespace: str, block_size: int, now: float, elsewhere_too: bool
) -> Explanation:
    """Follow `tokens` in their namespace, ask the ghosts at the end, then try all other namespaces (if wanted)."""
    num_cached, num_partial = tree.look(tokens, namespace)
    num_left = len(tokens) // 4 - num_cached
    evicted_at = tree.evicted_at(tokens, namespace) if num_left else None
    there = {other: tree.look(tokens, other)[0] for other in (tree.namespaces() if elsewhere_too else ())}
    elsewhere = max(there, key=there.__getitem__, default=None)
    if elsewhere is not None and there[elsewhere] <= num_cached:
        elsewhere = None
    reason: Reason = "never_seen"
    if not num_left:
        reason = "complete"
    elif evicted_at is not None:
        reason = "evicted"
    elif num_left < block_size:
        reason = "block_rounding"
    elif elsewhere is not None:
        reason = "other_namespace"
    return Explanation(len(tokens) // 4, num_cached, num_cached + num_partial, reason, evicted_at, now, elsewhere)
