"""Which keys and values a request keeps when it is compacted: one record for each policy, in one table.

    snapkv   ▪  ▪▪   ▪    ▪▪▪  ████████    what the last tokens look at, by layer and KV head; and these tokens
    sinks    ████        ██████████████    the first four tokens and the last
    h2o      ▪▪  ▪     ▪ ▪  ███████████    half: what most was looked at since the end of the prompt; half: the last

Kept keys stay turned by the positions at which they were computed. SnapKV: Li et al., arXiv 2404.14469, with the window
asked again whenever the cache is compacted, not only after the prompt. Sinks: Xiao et al., StreamingLLM, arXiv
2309.17453, but for the positions: there they are counted anew within the cache. Heavy hitters: Zhang et al., H2O, arXiv
2306.14048, but that rows of the prompt before its last ones do not count (`kv_compress.received`).

What SnapKV's scores need is computed for them alone: a forward of the window's tokens over the KV that is there, which
writes none. So a choice does not depend on how that KV came to be there: chunk by chunk, out of the cache, or loaded.

Knows tensors; it knows no requests and no blocks. `SamplingParams` reads the names here, also where programs run on
another server, so torch is imported only where a policy is carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    Scorer = Callable[[int], Tensor]
    Keep = Callable[[int, int, Scorer, Tensor | None], Tensor]

WINDOW = 32  # tokens at the end of what there is whose attention decides what is kept
POOL_WIDTH = 7  # keys around each that count together
NUM_SINKS = 4


@dataclass(frozen=True, slots=True)
class KVPolicy:
    """What is kept, and what that goes with.

    Attributes:
        keep: of `num_tokens` whose KV there is, the places of the `budget` that are kept, int64, rising: `[budget]`, or
            `[num_layers, num_kv_heads, budget]`; of (num_tokens, budget, score, received). score(n): how much attention
            the last n tokens pay to each, `[num_layers, num_kv_heads, num_tokens]`; see `ModelRunner.score_keys`.
            received: how much each has received so far, in the same shape, where that is counted.
        counts_attention: whether `keep` is given `received`.
        keeps_the_last: whether all layers keep the first `NUM_SINKS` tokens and the last ones, found without a forward:
            so windows among the last are exact, and layers with states need nothing computed again.
        takes_beyond_context: whether positions may be counted within what is kept.
    """

    keep: Keep
    counts_attention: bool = False
    keeps_the_last: bool = False
    takes_beyond_context: bool = False


def _snapkv(num_tokens: int, budget: int, score: Scorer, received: Tensor | None) -> Tensor:
    """The last tokens, and for each layer and KV head what they look at."""
    from ..kernels import best_keys

    return best_keys(score(WINDOW), budget, WINDOW, POOL_WIDTH)


def _sinks(num_tokens: int, budget: int, score: Scorer, received: Tensor | None) -> Tensor:
    """The first tokens and the last."""
    import torch

    last = torch.arange(num_tokens - budget + NUM_SINKS, num_tokens)
    return torch.cat([torch.arange(NUM_SINKS), last])


def _h2o(num_tokens: int, budget: int, score: Scorer, received: Tensor | None) -> Tensor:
    """The last tokens, as half of the budget, and for each layer and KV head those that received most attention."""
    from ..kernels import best_keys

    assert received is not None
    return best_keys(received, budget, budget // 2, 1)


KV_POLICIES: Mapping[str, KVPolicy] = MappingProxyType(
    {
        "snapkv": KVPolicy(_snapkv),
        "sinks": KVPolicy(_sinks, keeps_the_last=True, takes_beyond_context=True),
        "h2o": KVPolicy(_h2o, counts_attention=True),
    }
)
DEFAULT_KV_POLICY = "snapkv"


def names_of(with_trait: Callable[[KVPolicy], bool]) -> str:
    """The policies that have it, as an error advises them: `'snapkv' or 'sinks'`."""
    return " or ".join(repr(name) for name, policy in KV_POLICIES.items() if with_trait(policy))
