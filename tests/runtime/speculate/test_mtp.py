"""Drafts by a model's own layer for multi-token prediction: what it drafts, and that the output is the same."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from phloem.errors import ConfigError
from phloem.runtime.config import EngineConfig
from phloem.runtime.constrain.spec import ConstraintSpec, regex
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.models import resolve_model
from phloem.runtime.request import SamplingParams

from ..models.decoder_shapes import DEEPSEEK, DELTA, GLM4_MOE, QWEN2_MOE
from ..models.mtp_checkpoint import quieten, save_mtp_model
from ..models.oracle import random_ids, save_random_model
from ..stepped import SteppedEngine
from .drafting import engine_with

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "GLM-4.5": ("Glm4MoeForCausalLM", {**GLM4_MOE, "attention_bias": True, "use_qk_norm": True}),
    "DeepSeek-V3": ("DeepseekV3ForCausalLM", {**DEEPSEEK, "n_group": 4, "topk_group": 2}),
    "Qwen3-Next": ("Qwen3NextForCausalLM", {**QWEN2_MOE, **DELTA}),
    "Qwen3.5": ("Qwen3_5ForCausalLM", DELTA),
}
PROMPTS = [random_ids(n, n) for n in (30, 1, 9, 30)] + [random_ids(30, 30)[:17] + random_ids(5, 3)]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def engine_of(loaded: LoadedModel, length: int, **settings: Any) -> SteppedEngine:
    """length: of all drafts."""
    settings = {"num_blocks": 256, "block_size": 4, "check_invariants": True, "lookup_drafts": False, **settings}
    engine: SteppedEngine = SteppedEngine.from_loaded(
        EngineConfig(device="cpu", **settings), loaded, stopwatch=lambda: 0.0
    )
    model = engine._stepper._drafter.model
    if model is not None:
        model._best_length = lambda request, chance, limit: max(0, min(limit, length))
        model._pays = lambda *asked: True
    return engine


@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_drafted_is_what_the_layer_says(tmp_path: Path, shape: str) -> None:
    """After chunks, hits, forks and wrong drafts: its logits are those of the equations, from the model's states."""
    oracle = save_mtp_model(tmp_path, *SHAPES[shape])
    loaded = load(EngineConfig(str(tmp_path), device="cpu", num_threads=1, speculative_model="mtp"))
    engine = engine_of(loaded, 3, max_batch_tokens=11)
    model = engine._stepper._drafter.model
    draft, forward, said, turns_seen = model.draft, model._runner.forward, [], []

    def watched(batch: Any) -> torch.Tensor:
        said.append(forward(batch))
        return said[-1]

    def draft_watched(turns: Any) -> None:
        said.clear()
        draft(turns)
        if turns and all(len(turn.request.draft) == 3 for turn in turns):
            turns_seen.append([(turn.request.token_ids.tolist(), list(turn.request.draft)) for turn in turns])
            logits.append(torch.stack(said, 1))

    logits: list[torch.Tensor] = []
    model._runner.forward, model.draft = watched, draft_watched
    params = SamplingParams(max_tokens=12, temperature=1.0, seed=3, ignore_eos=True, n=2)
    for _ in range(2):
        engine.generate(PROMPTS, params)
    assert model.num_failed == 0 and len(turns_seen) > 8
    for turns, found in list(zip(turns_seen, logits, strict=True))[::5]:
        for (known, answer), rows in zip(turns, found, strict=True):
            oracle.assert_drafts(rows, known, answer)


@pytest.fixture(scope="module")
def often_right(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_often_right(tmp_path_factory.mktemp("often right"), "GLM-4.5", 0.02)


@pytest.fixture(scope="module", params=[("GLM-4.5", 0.02), ("Qwen3-Next", 0.003)], ids=lambda param: param[0])
def drafted_for(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    return load_often_right(tmp_path_factory.mktemp("often right"), *request.param)


def load_often_right(folder: Path, shape: str, share: float) -> LoadedModel:
    """A model that its MTP layer knows well, with the bundled model's tokenizer."""
    class_name, options = SHAPES[shape]
    save_mtp_model(folder, class_name, {**options, "vocab_size": 1280})
    quieten(folder, share)
    for name in ("tokenizer.model", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(resolve_model("nano") / name, folder)
    return load(EngineConfig(str(folder), device="cpu", num_threads=1, speculative_model="mtp"))


@pytest.mark.parametrize(
    ("temperature", "kv_dtype", "constraint"),
    [(0.0, torch.float32, None), (0.7, torch.int8, None), (0.7, torch.float32, regex("[a-z ]{50,70}|[0-9]{30}"))],
    ids=["greedy", "sampled", "regex"],
)
def test_output_is_the_same_to_the_bit_missed_and_hit(
    drafted_for: LoadedModel, temperature: float, kv_dtype: torch.dtype, constraint: ConstraintSpec | None
) -> None:
    params = SamplingParams(max_tokens=40, temperature=temperature, seed=1, logprobs=2, ignore_eos=constraint is None)
    prompts = [random_ids(n, n) for n in (33, 5, 12)]
    found = []
    for draft_decoder in (None, drafted_for.draft_decoder):
        loaded = replace(drafted_for, kv_dtype=kv_dtype, draft_decoder=draft_decoder)
        engine = engine_of(loaded, 3, max_batch_tokens=24)
        found += [engine.generate(prompts, params, constraint) for _ in range(2)]
    said = [[(c.token_ids, c.text, c.logprobs) for c in completions] for completions in found]
    assert said[0] == said[1] == said[2] == said[3]
    for completions in found[2:]:
        drafted, right = (sum(getattr(c.usage, f"{n}_tokens") for c in completions) for n in ("drafted", "jumped"))
        assert 0.1 * drafted < right < drafted
    assert all(c.usage.cached_tokens == c.usage.prompt_tokens - 1 for c in found[3])


def test_a_checkpoint_without_such_a_layer_is_refused_by_name(tmp_path: Path) -> None:
    def refused(message: str, folder: Path, **settings: Any) -> None:
        with pytest.raises(ConfigError, match=message):
            load(EngineConfig(str(folder), device="cpu", speculative_model="mtp", **settings))

    refused('speculative_model: "mtp": .* names no layers for multi-token prediction', resolve_model("nano"))
    save_mtp_model(tmp_path, *SHAPES["GLM-4.5"])
    refused('speculative_model: "mtp" is not cut for several ranks', tmp_path, tensor_parallel_size=2)
    weights = load_file(tmp_path / "model.safetensors")
    odd = {**weights, "model.layers.2.mlp.odd.weight": torch.zeros(3)}
    save_file(odd, tmp_path / "model.safetensors", {"format": "pt"})
    refused(r"speculative_model: .*layers\.2\.mlp\.odd\.weight: 1 tensors have no place", tmp_path)
    del weights["model.layers.2.eh_proj.weight"]
    save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
    refused(r"no layer for multi-token prediction \(model\.layers\.2\.eh_proj\.weight\)", tmp_path)
    save_random_model(tmp_path, *SHAPES["Qwen3.5"])
    refused(r"no layer for multi-token prediction \(mtp\.fc\.weight\)", tmp_path)


def test_the_pool_of_a_memory_counts_layer_and_states(often_right: LoadedModel) -> None:
    config = EngineConfig(device="cpu", kv_memory_bytes=1 << 20, block_size=4)
    sizes = [
        SteppedEngine.from_loaded(config, one).statistics().num_blocks
        for one in (often_right, replace(often_right, draft_decoder=None))
    ]
    kv, hidden = 4 * 2 * 2 * 16, 4 * 48  # bytes of a token: of a layer, and its state
    assert sizes == [(1 << 20) // (4 * (3 * kv + hidden)), (1 << 20) // (4 * 2 * kv)]


def test_a_request_whose_prefix_came_from_a_tier_is_not_drafted_for() -> None:
    """No forward has computed its hidden states here."""
    engine = engine_with("mtp", length=3, jump="off", lookup_drafts=False, num_blocks=24, host_memory_bytes=1 << 20)
    params = SamplingParams(max_tokens=20, temperature=0.0, ignore_eos=True)
    prompts = [list(range(first, first + 60)) for first in (0, 100)]
    first, other, again = (engine.generate(prompt, params) for prompt in (*prompts, prompts[0]))
    assert again.token_ids == first.token_ids
    assert [c.usage.loaded_tokens > 0 for c in (first, other, again)] == [False, False, True]
    assert [c.usage.drafted_tokens > 0 for c in (first, other, again)] == [True, True, False]
    assert engine._stepper._drafter.model.num_failed == 0, "it was not asked"
    assert engine.generate([7] * 60, params).usage.drafted_tokens > 0, "its blocks are others' again"
