"""The cost of computing a block again, against counting every multiplication of a forward."""

from __future__ import annotations

from dataclasses import replace

import pytest

from phloem.runtime.models import ModelConfig, resolve_model
from phloem.runtime.models.config import LayerConfig
from phloem.runtime.request import SamplingParams
from phloem.runtime.schedule.recompute_cost import recompute_cost

from ..fakes import fake_engine

NANO = ModelConfig.from_folder(resolve_model("nano"))


def flops(config: ModelConfig, first: int, end: int) -> int:
    """Two for each pair of numbers that the layers multiply for tokens [first, end) of a sequence."""
    heads, hidden = config.num_heads * config.head_dim, config.hidden_size
    per_token = hidden * sum(config.qkv_rows(0)) + heads * hidden + 3 * hidden * config.intermediate_size
    total = 0
    for layer in config.layers:
        for position in range(first, end):
            num_keys = position + 1 if not layer.window else min(position + 1, layer.window)
            total += per_token + 2 * heads * num_keys  # q·k and p·v
    return 2 * total


@pytest.mark.parametrize("windows", [(0,), (5,), (0, 5, 40, 5)])
@pytest.mark.parametrize("block_size", [1, 16])
def test_it_counts_the_operations_of_a_forward_over_the_block(windows: tuple[int, ...], block_size: int) -> None:
    config = replace(NANO, layers=tuple(LayerConfig(window, 0) for window in windows))
    cost = recompute_cost(config, block_size)
    for end in range(block_size, 130, block_size):
        assert cost(end) == flops(config, end - block_size, end)
    assert all(cost(end) <= cost(end + 1) for end in range(1, 200))  # a shortened run may end anywhere


def test_a_deep_prefix_outlives_shallow_ones_of_the_same_length_under_the_policy_cost() -> None:
    """Used once each: `lru` drops the deep one, which was used first; `cost` one that is cheap to compute again."""
    deep, others = list(range(64)), [[100 + i] * 16 for i in range(6)]

    def cached_of_deep(policy: str) -> int:
        engine = fake_engine(num_blocks=32, block_size=4, eviction_policy=policy)
        for prompt in (deep, *others):
            engine.generate([*prompt, 250], SamplingParams(max_tokens=1))
        return engine.generate([*deep, 251], SamplingParams(max_tokens=1)).usage.cached_tokens

    assert cached_of_deep("lru") < cached_of_deep("cost")
