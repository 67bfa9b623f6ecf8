"""How large the KV pool becomes, and what the log says of a checkpoint."""

from __future__ import annotations

import pytest
import torch

from phloem.errors import ConfigError
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.execute.pool import pool_size
from phloem.runtime.models import ModelConfig, resolve_model

GPU = torch.device("cuda", 0)
FREE = 8 << 30


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> ModelConfig:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (FREE, 2 * FREE))
    return ModelConfig.from_folder(resolve_model("nano"))


def bytes_of(config: EngineConfig, model: ModelConfig) -> int:
    block = KVCache.bytes_per_block(model.kv_shapes(), block_size=config.block_size, dtype=torch.bfloat16)
    return pool_size(config, model, torch.bfloat16, GPU).num_blocks * block


def test_a_gpus_pool_is_a_share_of_what_is_free_behind_the_weights(model: ModelConfig) -> None:
    for config, expected in (
        (EngineConfig(), 0.8 * FREE),
        (EngineConfig(kv_memory_share=0.5), 0.5 * FREE),
        (EngineConfig(kv_memory_share=0.5, kv_memory_bytes=1 << 30), 1 << 30),
    ):
        assert bytes_of(config, model) == pytest.approx(expected, rel=1e-3)


def test_a_cpus_pool_has_its_size_however_few_requests_run(model: ModelConfig) -> None:
    sizes = {
        pool_size(EngineConfig(max_running_requests=number), model, torch.bfloat16, torch.device("cpu"))
        for number in (1, 256)
    }
    block = KVCache.bytes_per_block(model.kv_shapes(), block_size=16, dtype=torch.bfloat16)
    assert [found.num_blocks * block for found in sizes] == [256 << 20]


@pytest.mark.parametrize("share", [0.0, -0.5, 1.01, float("nan")])
def test_a_share_is_above_nothing_and_at_most_all(share: float) -> None:
    with pytest.raises(ConfigError, match=r"kv_memory_share: .* must be in \(0, 1\]"):
        EngineConfig(kv_memory_share=share)
