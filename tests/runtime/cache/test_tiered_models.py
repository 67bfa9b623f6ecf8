"""Real models: KV that went through host memory or a file gives the bits that computing it gives."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import phloem as ph
from phloem.kernels import INT4
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.models import resolve_model
from phloem.runtime.models.kv_shape import KVShape

from ..models.decoder_cases import CASES
from ..models.oracle import save_random_model

WITH_BITS = ph.SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True, logprobs=3)


def prompts() -> list[list[int]]:
    """Four prompts of five blocks or more, two and two with a prefix in common."""
    source = random.Random(5)
    shared = [[source.randrange(16, 700) for _ in range(50)] for _ in range(2)]
    return [shared[index % 2] + [source.randrange(16, 700) for _ in range(30 + index)] for index in range(4)]


def answers(loaded: LoadedModel, config: dict[str, object], rounds: int = 2) -> tuple[list[list[object]], int]:
    """Tokens and log-probabilities of every round, and how many blocks were loaded."""
    with ph.Engine.from_loaded(EngineConfig(check_invariants=True, num_blocks=9, **config), loaded) as engine:  # type: ignore[arg-type]
        said = []
        for _ in range(rounds):
            done = [engine.generate(prompt, WITH_BITS) for prompt in prompts()]
            said.append([(one.token_ids, one.logprobs) for one in done])
            if engine.prefix_cache.tiers is not None:
                engine.prefix_cache.tiers.settle()
                engine.prefix_cache.tiers.loads.cost.prefill.seconds_per_operation = 1.0  # it always pays
        return said, engine.statistics().num_loaded_blocks


@pytest.fixture(scope="module")
def latent_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("latent")
    class_name, options = CASES["youtu"]
    save_random_model(folder, class_name, {**options, "vocab_size": 1280})
    for name in ("tokenizer.model", "tokenizer_config.json"):
        shutil.copy(resolve_model("nano") / name, folder)
    return folder


@pytest.mark.parametrize("kind", ["auto", "int8", "fp8", "int4", "latents"])
def test_what_was_loaded_gives_the_bits_of_what_was_computed(kind: str, latent_model: Path, tmp_path: Path) -> None:
    model, kv_dtype = (str(latent_model), "auto") if kind == "latents" else ("nano", kind)
    config: dict[str, object] = {"model": model, "device": "cpu", "kv_dtype": kv_dtype}
    loaded = load(EngineConfig(**config))  # type: ignore[arg-type]
    truth, _ = answers(loaded, config)
    assert truth[0] == truth[1]
    disk = {**config, "disk_cache": str(tmp_path)}
    for tiers in ({**config, "host_memory_bytes": 8 << 20}, disk, disk):
        said, num_loaded = answers(loaded, tiers)
        assert said == truth
        assert num_loaded >= 4


PARTED = {"granite-hybrid": 12, "gemma2": 68, "gemma3n": 68}  # blocks of a pool


@pytest.mark.parametrize("kind", PARTED)
def test_states_and_windows_that_were_loaded_give_the_bits_of_those_that_were_computed(
    kind: str, tmp_path: Path
) -> None:
    class_name, options = CASES[kind]
    save_random_model(tmp_path / "model", class_name, {**options, "max_position_embeddings": 512})
    source = random.Random(5)
    shared = [[source.randrange(131) for _ in range(50)] for _ in range(3)]
    asked = [shared[index % 3] + [source.randrange(131) for _ in range(30 + index)] for index in range(5)]
    config: dict[str, Any] = {"model": str(tmp_path / "model"), "device": "cpu", "state_interval": 32}
    config |= {
        "block_size": 16 if kind == "granite-hybrid" else 4,
        "num_blocks": PARTED[kind],
        "check_invariants": True,
    }
    loaded = load(EngineConfig(**config))
    params = ph.SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True, logprobs=3)
    truth = None
    for tiers in ({"prefix_cache": False}, {"host_memory_bytes": 8 << 20}, {"disk_cache": str(tmp_path / "kv")}):
        with ph.Engine.from_loaded(EngineConfig(**config, **tiers), loaded) as engine:
            for _ in range(2):
                done = [engine.generate(prompt, params) for prompt in asked]
                said = [(one.token_ids, one.logprobs) for one in done]
                truth = truth or said
                assert said == truth
                if engine.prefix_cache.tiers is not None:
                    engine.prefix_cache.tiers.settle()
                    engine.prefix_cache.tiers.loads.cost.prefill.seconds_per_operation = 1.0  # it always pays
            if engine.prefix_cache.tiers is not None:
                assert sum(one.usage.loaded_tokens for one in done) > 100
                assert min(one.usage.cached_tokens for one in done) >= 64


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.float8_e4m3fn, INT4], ids=str)
@pytest.mark.parametrize("num_parts", [1, 2])
def test_blocks_come_back_byte_for_byte(dtype: torch.dtype, num_parts: int) -> None:
    """Odd sizes included, whose rows are no whole words."""
    for head_dim in (8, 5):
        pool, other = (
            KVCache(
                shapes=[KVShape(1, head_dim, num_parts), KVShape(2, 3, num_parts), KVShape(1, head_dim, num_parts)],
                num_blocks=7,
                block_size=2,
                dtype=dtype,
                device=torch.device("cpu"),
            )
            for _ in range(2)
        )
        for stack in pool._stacks:
            stack.view(torch.uint8).random_(0, 256, generator=torch.manual_seed(1))
        rows = pool.read_blocks([5, 0, 3])
        assert rows.shape == (3, pool.block_bytes) and rows.dtype == torch.uint8
        other.write_blocks([1, 6, 2], rows)
        for mine, its in zip(pool._stacks, other._stacks, strict=True):
            left, right = mine.view(torch.uint8), its.view(torch.uint8)
            assert torch.equal(left[:, [5, 0, 3]], right[:, [1, 6, 2]])
            assert not right[:, [0, 3, 4, 5]].any()
        assert torch.equal(other.read_blocks([1, 6, 2]), rows)
