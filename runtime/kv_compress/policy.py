"""What a request that has come to a compaction keeps, by its policy (`kv_policies`)."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..kv_policies import KV_POLICIES
from ..request import Request


def places_kept(request: Request, score_keys: Callable[..., Tensor]) -> Tensor:
    """Places of the tokens that are kept, as `KVPolicy.keep` gives them.

    score_keys: `ModelRunner.score_keys`.
    """
    sampling, end = request.sampling, request.num_computed_tokens
    assert sampling.kv_budget is not None
    num_tokens = end - request.num_dropped_tokens

    def score(num_last: int) -> Tensor:
        last = request.token_ids[end - num_last : end]
        return score_keys(last, end, request.blocks, num_tokens, request.adapter)

    received = None if request.received is None else request.received.sums
    return KV_POLICIES[sampling.kv_policy].keep(num_tokens, sampling.kv_budget, score, received)
