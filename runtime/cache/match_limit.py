"""How much of a request may come from the cache. Knows requests only."""

from __future__ import annotations

from ..kv_compress.budget import counts_from, first_compaction
from ..request import Request


def match_limit(request: Request) -> int:
    """How many tokens may come from the cache: the next one that is wanted is decided from computed logits."""
    if request.readout is not None:
        return request.readout.first_wanted
    wanted, limit = request.sampling.prompt_logprobs_from, request.num_tokens - 1
    if wanted is None or wanted + len(request.prompt_logprobs) >= request.num_prompt_tokens:
        compacted_at = first_compaction(request)  # its KV from there on is not that of its tokens
        limit = min(limit, compacted_at - 1) if compacted_at is not None else limit
    else:
        limit = wanted + len(request.prompt_logprobs) - 1
    counted = counts_from(request)  # rows whose attention counts are its own to compute
    return limit if counted is None else min(limit, counted)
