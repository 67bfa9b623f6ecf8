"""How much of a request may come from the cache. Knows requests only."""

from __future__ import annotations

from ..kv_compress.budget import first_compaction
from ..request import Request


def match_limit(request: Request) -> int:
    """How many tokens may come from the cache: the next one that is wanted is decided from computed logits."""
    if request.readout is not None:
        return request.readout.first_wanted
    wanted = request.sampling.prompt_logprobs_from
    if wanted is None or wanted + len(request.prompt_logprobs) >= request.num_prompt_tokens:
        compacted_at = first_compaction(request)  # its KV from there on is not that of its tokens
        return min(request.num_tokens, compacted_at or request.num_tokens) - 1
    return wanted + len(request.prompt_logprobs) - 1
