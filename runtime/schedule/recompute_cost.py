"""What it costs to compute a cached block again: the measure by which the eviction policy "cost" weighs blocks.

Floating-point operations of one forward over the block's tokens, from the model's shape alone. The matrices cost the
same for every token; attention grows with what is before it, up to a layer's window::

    FLOPs │            ╱  attention: 4 · heads · head_dim per key that a token sees, and layer
          │        ╱
          │    ╱
          │╱━━━━━━━━━━━━━ matrices: 2 · weights
          └──────────────► position of the block

The head that makes logits is left out: the logits of a token that was cached are not needed. Knows no cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from ..capacity.counts import count_multiplications
from ..models import ModelConfig


def recompute_cost(config: ModelConfig, block_size: int) -> Callable[[int], float]:
    """FLOPs of the block that ends at a given token. Never falls with the position; O(distinct windows)."""
    matrices = 2.0 * block_size * count_multiplications(config)
    per_number = 4.0 * config.num_heads  # with latents a little less: rotary parts have no values
    width_of: Counter[int] = Counter()  # of a window, elements of a head of all its layers
    for index, layer in enumerate(config.layers):
        width_of[layer.window] += config.kv_shape(index).head_dim * layer.attends

    def cost(end: int) -> float:
        keys = sum(
            width * (_num_keys(end, window) - _num_keys(max(0, end - block_size), window))
            for window, width in width_of.items()
        )
        return matrices + per_number * keys

    return cost


def _num_keys(num_tokens: int, window: int) -> int:
    """How many keys the first tokens of a sequence see together, each itself and those before it in the window."""
    inside = min(num_tokens, window) if window else num_tokens
    return inside * (inside + 1) // 2 + (num_tokens - inside) * window
