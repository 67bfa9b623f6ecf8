"""Which keys and values a request keeps when it is compacted: one function for each policy.

    snapkv   ▪  ▪▪   ▪    ▪▪▪  ████████    what the last tokens look at, by layer and KV head; and these tokens
    sinks    ████        ██████████████    the first four tokens and the last
    h2o      ▪▪  ▪     ▪ ▪  ███████████    half: what most was looked at since the end of the prompt; half: the last

Kept keys stay turned by the positions at which they were computed. SnapKV: Li et al., arXiv 2404.14469, with the window
asked again whenever the cache is compacted, not only after the prompt. Sinks: Xiao et al., StreamingLLM, arXiv
2309.17453, but for the positions: there they are counted anew within the cache. Heavy hitters: Zhang et al., H2O, arXiv
2306.14048, but that rows of the prompt before its last ones do not count (`received`).

What SnapKV's scores need is computed for them alone: a forward of the window's tokens over the KV that is there, which
writes none. So a choice does not depend on how that KV came to be there: chunk by chunk, out of the cache, or loaded.

Knows tensors; it knows no requests and no blocks.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...kernels import best_keys
from ..request import Request
from .budget import WINDOW

POOL_WIDTH = 7  # keys around each that count together
NUM_SINKS = 4

Scorer = Callable[[int], Tensor]


def snapkv(num_tokens: int, budget: int, score: Scorer, received: Tensor | None) -> Tensor:
    """The last tokens, and for each layer and KV head what they look at."""
    return best_keys(score(WINDOW), budget, WINDOW, POOL_WIDTH)


def sinks(num_tokens: int, budget: int, score: Scorer, received: Tensor | None) -> Tensor:
    """The first tokens and the last."""
    last = torch.arange(num_tokens - budget + NUM_SINKS, num_tokens)
    return torch.cat([torch.arange(NUM_SINKS), last])


def h2o(num_tokens: int, budget: int, score: Scorer, received: Tensor | None) -> Tensor:
    """The last tokens, as half of the budget, and for each layer and KV head those that received most attention."""
    assert received is not None
    return best_keys(received, budget, budget // 2, 1)


# By name. Of `num_tokens` whose KV there is, the places of the `budget` that are kept, int64, rising: `[budget]`, or
# `[num_layers, num_kv_heads, budget]`. score(n): how much attention the last n tokens pay to each, `[num_layers,
# num_kv_heads, num_tokens]`; see `ModelRunner.score_keys`. received: how much each has received so far, in the same
# shape, where that is counted.
POLICIES: dict[str, Callable[[int, int, Scorer, Tensor | None], Tensor]] = {
    "snapkv": snapkv,
    "sinks": sinks,
    "h2o": h2o,
}


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

    received = None if request.received is None else request.received.sums
    return POLICIES[sampling.kv_policy](num_tokens, sampling.kv_budget, score, received)
