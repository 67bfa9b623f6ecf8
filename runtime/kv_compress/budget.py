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


def most_kept(request: Request) -> int | None:
    """Tokens whose KV the request has at most until it is compacted next; None: there is no limit."""
    position = next_compaction(request)
    return None if position is None else position - request.num_dropped_tokens


def full_at(budget: int) -> int:
    """How many tokens there are when they are compacted to the budget."""
    return budget + max(LEAST_SLACK, budget // 4)
