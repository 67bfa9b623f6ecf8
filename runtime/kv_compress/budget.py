"""When a request with a `kv_budget` drops keys and values: a function of its tokens' number alone.

The prompt is computed whole, for its KV is shared; then the request copies what is worth keeping (`policy`),
lets go of the prefix, and goes on over the copy. That grows with the output and is compacted again, by the same rule::

    kept │    ╱│                           prompt: whole, in the tree
         │  ╱  │
         │╱    │    ╱│   ╱│   ╱│           budget + slack: compacted …
         │     │ ╱╱  │ ╱  │ ╱  │ ╱         … down to the budget
         └─────┴─────┴────┴────┴────► position

So the first compaction is at the end of the prompt, or where all that is known outgrows budget and slack, whichever is
later. Nothing after it is computed before: neither a chunk nor a draft crosses that position. Therefore what a token
sees depends on the tokens before it, never on chunks, drafts, a cached prefix, other requests or a preemption.

Knows requests; it knows no tensors and no blocks.
"""

from __future__ import annotations

from ..kv_policies import KV_POLICIES, WINDOW
from ..request import Request

LEAST_SLACK = 64  # tokens between two compactions


def first_compaction(request: Request) -> int | None:
    """The position from which on its KV is its own, whether it has come so far or not; None: there is none."""
    budget = request.sampling.kv_budget
    return None if budget is None else max(full_at(budget), request.num_prompt_tokens)


def next_compaction(request: Request) -> int | None:
    """The position at which the request is compacted next, before that token is computed; None: there is none."""
    budget, num_dropped = request.sampling.kv_budget, request.num_dropped_tokens
    return num_dropped + full_at(budget) if budget is not None and num_dropped else first_compaction(request)


def counts_from(request: Request) -> int | None:
    """From which position on it counts the attention that its keys receive (`received`); None: it does not."""
    sampling = request.sampling
    if sampling.kv_budget is None or request.readout is not None:
        return None
    if not KV_POLICIES[sampling.kv_policy].counts_attention:
        return None
    return max(0, request.num_prompt_tokens - WINDOW)


def most_at_once(request: Request, start: int) -> int | None:
    """How many tokens a step may compute of it from position `start` on, drafts included; None: there is no limit.

    Where attention is counted, each row's is in memory for a moment.
    """
    position, counted = next_compaction(request), counts_from(request)
    if position is None:
        return None
    if counted is not None:
        position = min(position, max(start, counted) + WINDOW)
    return position - start


def most_kept(request: Request) -> int | None:
    """Tokens whose KV the request has at most until it is compacted next; None: there is no limit."""
    position = next_compaction(request)
    return None if position is None else position - request.num_dropped_tokens


def full_at(budget: int) -> int:
    """How many tokens there are when they are compacted to the budget."""
    return budget + max(LEAST_SLACK, budget // 4)
