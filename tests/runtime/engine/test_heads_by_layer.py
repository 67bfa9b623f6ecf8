"""A model whose layers keep different heads, and some none, in the engine: Gemma 4 in its small form."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

import phloem as ph
from phloem.errors import RequestError
from phloem.runtime.capacity.planner import plan
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.models import ModelConfig, resolve_model

from ..models.decoder_cases import CASES
from ..models.oracle import save_random_model

PARAMS = ph.SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True, logprobs=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("heads")
    class_name, options = CASES["gemma4-small"]
    save_random_model(found, class_name, {**options, "vocab_size": 1280, "vocab_size_per_layer_input": 1280})
    for name in ("tokenizer.model", "tokenizer_config.json"):
        shutil.copy(resolve_model("nano") / name, found)
    return found


def prompts() -> list[list[int]]:
    source = random.Random(5)
    shared = [[source.randrange(16, 700) for _ in range(30)] for _ in range(2)]
    return [shared[index % 2] + [source.randrange(16, 700) for _ in range(9 + index)] for index in range(3)]


def said(loaded: LoadedModel, **settings: Any) -> list[list[tuple[Any, Any]]]:
    """Two rounds of all prompts, the second of hits where there is a cache."""
    config = EngineConfig(device="cpu", check_invariants=True, block_size=4, **settings)
    with ph.Engine.from_loaded(config, loaded) as engine:
        return [[(one.token_ids, one.logprobs) for one in engine.generate(prompts(), PARAMS)] for _ in range(2)]


@pytest.mark.parametrize("kv_dtype", ["auto", "int8", "int4"])
def test_a_hit_says_what_a_miss_says_wherever_keys_are(folder: Path, kv_dtype: str, tmp_path: Path) -> None:
    """In one pool for all layers, with slots for windows, and from a tier of each."""
    loaded = load(EngineConfig(model=str(folder), device="cpu", kv_dtype=kv_dtype))  # type: ignore[arg-type]
    truth = said(loaded, num_blocks=40, prefix_cache=False)
    assert truth[0] == truth[1]
    for settings in (
        {"num_blocks": 40},
        {"num_blocks": 140, "max_batch_tokens": 24},
        {"num_blocks": 24, "host_memory_bytes": 8 << 20},
        {"num_blocks": 140, "disk_cache": str(tmp_path)},
    ):
        assert said(loaded, **settings) == truth, settings


def test_it_drafts_for_itself(folder: Path) -> None:
    settings: dict[str, Any] = {"model": str(folder), "device": "cpu", "block_size": 4, "num_blocks": 140}
    answers = []
    for drafts in ({}, {"speculative_model": str(folder)}):
        with ph.Engine(**settings, **drafts, check_invariants=True) as engine:
            done = engine.generate(prompts(), PARAMS)
        answers.append([(one.token_ids, one.logprobs) for one in done])
    assert sum(one.usage.drafted_tokens for one in done) > 0
    assert answers[0] == answers[1]


def test_the_plan_counts_what_is_kept(folder: Path) -> None:
    """Three layers of six keep keys and values: two of 2 heads of 8, one of 2 of 16."""
    capacity = plan(ModelConfig.from_folder(folder), pool_bytes=1 << 20, block_size=4, kv_dtype="float32")
    assert capacity.kv_bytes_per_token == 2 * (2 * 2 * 8 + 2 * 16) * 4
    assert capacity.slot_bytes == 4 * 2 * (2 * 2 * 8) * 4


def test_what_does_not_go_with_other_heads_is_refused_by_name(folder: Path) -> None:
    loaded = load(EngineConfig(model=str(folder), device="cpu"))
    short = EngineConfig(device="cpu", block_size=4, num_blocks=140, max_model_len=9)  # no longer than the window
    with ph.Engine.from_loaded(short, loaded) as engine:
        for policy in ("snapkv", "h2o"):
            with pytest.raises(RequestError, match="does not go with layers that have other heads, which"):
                engine.generate([1, 2], ph.SamplingParams(max_tokens=1, kv_budget=64, kv_policy=policy))
