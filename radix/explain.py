"""Why a prefix was not cached, from the tree and its *ghosts*: records of evicted runs.

A ghost is recorded at the parent of the evicted node, which is where a later walk along the same tokens ends. So an
eviction records it with one copy, and only an explanation searches. Knows no requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .._core import radix as core

Reason = Literal["complete", "block_rounding", "evicted", "other_namespace", "never_seen"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Where the longest cached prefix of a token sequence ends, and why there.

    Attributes:
        num_tokens: length of the sequence.
        num_cached_tokens: length of the prefix that `match` would find, in whole blocks.
        num_agreeing_tokens: how many tokens the tree has, exactly (a donor block included).
        reason: why `num_cached_tokens` is not `num_tokens`:
            "complete": it is.
            "evicted": the next block, or a tail that agreed for more tokens, was here until `evicted_at`.
            "block_rounding": the remaining tokens do not fill a block.
            "other_namespace": the next block is cached in `other_namespace`. For operators only: a tenant must not
            learn that another tenant has sent the same text.
            "never_seen": none of these (or evicted before the oldest ghost).
        evicted_at: seconds of the tree's clock, or None.
        asked_at: time of the explanation, on the same clock.
        other_namespace: the one with the longest cached prefix, or None.
        num_tokens_elsewhere: length of that prefix, in whole blocks; 0: there is none.
    """

    num_tokens: int
    num_cached_tokens: int
    num_agreeing_tokens: int
    reason: Reason
    evicted_at: float | None
    asked_at: float
    other_namespace: str | None
    num_tokens_elsewhere: int


def explain_miss(
    tree: core.Tree, tokens: bytes, namespace: str, block_size: int, now: float, elsewhere_too: bool
) -> Explanation:
    """Walk along `tokens` in their namespace, search the ghosts at its end, then try other namespaces (if wanted)."""
    num_cached, num_partial = tree._peek(tokens, namespace)
    num_left = len(tokens) // 4 - num_cached
    evicted_at = tree._evicted_at(tokens, namespace) if num_left else None
    there = {other: tree._peek(tokens, other)[0] for other in (tree._namespaces() if elsewhere_too else ())}
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
    agreeing, num_elsewhere = num_cached + num_partial, 0 if elsewhere is None else there[elsewhere]
    return Explanation(len(tokens) // 4, num_cached, agreeing, reason, evicted_at, now, elsewhere, num_elsewhere)
