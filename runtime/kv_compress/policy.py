"""Which keys and values a request keeps when it is compacted: one function for each policy.

    snapkv   ▪  ▪▪   ▪    ▪▪▪  ████████    what the last tokens look at, by layer and KV head; and these tokens
    sinks    ████        ██████████████    the first four tokens and the last

Kept keys stay turned by the positions at which they were computed. SnapKV: Li et al., arXiv 2404.14469, with the window
asked again whenever the cache is compacted, not only after the prompt. Sinks: Xiao et al., StreamingLLM, arXiv
2309.17453, but for the positions: there they are counted anew within the cache.

What scores need is computed for them alone: a forward of the window's tokens over the KV that is there, which writes
none. So a choice does not depend on how that KV came to be there: chunk by chunk, out of the cache, or loaded.

Knows tensors; it knows no requests and no blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...kernels import best_keys
from ..request import Request

WINDOW = 32  # tokens whose attention decides
POOL_WIDTH = 7  # keys around each that count together
NUM_SINKS = 4

Scorer = Callable[[int], Tensor]


def snapkv(num_tokens: int, budget: int, score: Scorer) -> Tensor:
    """The last tokens, and for each layer and KV head what they look at."""
    return best_keys(score(WINDOW), budget, WINDOW, POOL_WIDTH)


def sinks(num_tokens: int, budget: int, score: Scorer) -> Tensor:
    """The first tokens and the last."""
    last = torch.arange(num_tokens - budget + NUM_SINKS, num_tokens)
    return torch.cat([torch.arange(NUM_SINKS), last])


# By name. Of `num_tokens` whose KV there is, the places of the `budget` that are kept, int64, rising: `[budget]`, or
# `[num_layers, num_kv_heads, budget]`. score(n): how much attention the last n tokens pay to each, `[num_layers,
# num_kv_heads, num_tokens]`; see `ModelRunner.score_keys`.
POLICIES: dict[str, Callable[[int, int, Scorer], Tensor]] = {"snapkv": snapkv, "sinks": sinks}


def places_kept(request: Request, score_keys: Callable[..., Tensor]) -> Tensor:
    """Those of a request that has come to a compaction, by its `kv_policy`.

    score_keys: `ModelRunner.score_keys`.
    """
    sampling, end = request.sampling, request.num_computed_tokens
    assert sampling.kv_budget is not None
    num_tokens = end - request.num_dropped_tokens

    def score(num_last: int) -> Tensor:
        last = request.token_ids[end - num_last : end]
        return score_keys(last, end, request.blocks, num_tokens, request.adapter)

    return POLICIES[sampling.kv_policy](num_tokens, sampling.kv_budget, score)
