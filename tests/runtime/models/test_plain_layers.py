"""Layers in one compiled call: the same bits as layer by layer, and only where all of them are plain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import phloem as ph
from phloem.kernels.linear_weight import Quantise
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import load
from phloem.runtime.models import Decoder

from .decoder_cases import CASES
from .oracle import PagedRun, random_ids, save_random_model

PLAIN = ["llama-head-dim", "llama-biases", "qwen3"]
OTHERS = ["llama4", "mistral-window", "qwen3-moe", "gemma2", "olmo2", "cohere2"]
READABLE = {"head_dim": 16, "num_hidden_layers": 3, "intermediate_size": 64}


def save(folder: Path, name: str, **differs: Any) -> None:
    class_name, options = CASES[name]
    save_random_model(folder, class_name, {**options, **differs})


def states(decoder: Decoder) -> list[torch.Tensor]:
    """Logits of several steps of two sequences, and what is in the cache then."""
    run, first, second = PagedRun(decoder, 2), random_ids(19), random_ids(30)[11:]
    found = [run.extend({0: first[:9]}), run.extend({0: first[9:10], 1: second[:7]})]
    found += [run.extend({0: first[10:], 1: second[7:8]}, [0, 9]), run.extend({1: second[8:]}, [])]
    return [*found, *run.keys, *run.values]


@pytest.mark.parametrize("quantise", ["none", "int8", "int4"])
@pytest.mark.parametrize("name", PLAIN)
def test_bits_are_those_of_single_layers(name: str, quantise: Quantise, tmp_path: Path) -> None:
    save(tmp_path, name, **READABLE)
    together, apart = (Decoder.from_folder(tmp_path, dtype=torch.float32, quantise=quantise) for _ in range(2))
    assert together._plain is not None and together._plain.num_layers == 2
    apart._plain = None
    for one, other in zip(states(together), states(apart), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", OTHERS)
def test_other_layers_are_taken_one_by_one(name: str, tmp_path: Path) -> None:
    save(tmp_path, name)
    assert Decoder.from_folder(tmp_path, dtype=torch.float32)._plain is None


@pytest.mark.parametrize("kv_dtype", ["auto", "int8", "fp8", "int4"])
def test_keys_in_few_bits_are_the_same(kv_dtype: Any) -> None:
    params = ph.SamplingParams(max_tokens=12, temperature=1.0, seed=3, logprobs=2)
    prompts = ["The harbour of", "Tarvin Ledmo is 42 years old", "The harbour of a"]
    config, found = EngineConfig(kv_dtype=kv_dtype, device="cpu", dtype="float32", num_blocks=64), []
    for is_plain in (True, False):
        loaded = load(config)
        assert loaded.decoder._plain is not None
        if not is_plain:
            loaded.decoder._plain = None
        with ph.Engine.from_loaded(config, loaded) as engine:
            found.append([(one.token_ids, one.logprobs) for one in engine.generate(prompts, params)])
    assert found[0] == found[1]
