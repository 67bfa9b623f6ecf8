"""The whole engine on a GPU: the bundled model answers there as it does on the CPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton

import phloem as ph
from phloem.runtime.engine.warmup import warm_up
from phloem.runtime.models import resolve_model

from .models.saved_adapters import ALL, save_adapter

pytestmark = pytest.mark.gpu

TRUNK = "The warehouse keeps goods of many sorts. Every one of them has a name, a price and a place on a shelf. "
PROMPTS = ["Ada Lovelace was born in", "Hello", *(TRUNK * 2 + text for text in ("A lamp", "The price of", "On", "A"))]
GREEDY = ph.SamplingParams(max_tokens=48, temperature=0.0, ignore_eos=True)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "maxItems": 3},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
SAMPLED = ph.SamplingParams(
    max_tokens=12, temperature=0.8, top_k=40, top_p=0.95, min_p=0.01, repetition_penalty=1.1, seed=7, logprobs=3
)


def answers(*, runs: int = 2, params: ph.SamplingParams = GREEDY, **settings: Any) -> list[list[Sequence[int]]]:
    """What the prompts and a constrained one are answered, in `runs` rounds; from the second on prefixes are cached."""
    found = []
    with ph.Engine("nano", num_blocks=512, **settings) as engine:
        for _ in range(runs):
            texts = engine.generate(PROMPTS, params)
            person = engine.generate("A person: ", replace(params, max_tokens=96), ph.json_schema(PERSON))
            assert set(json.loads(person.text)) >= {"name", "age"}
            found.append([completion.token_ids for completion in (*texts, person)])
        statistics = engine.statistics()
        assert statistics.num_held_blocks == 0
        assert (statistics.num_ahead > 0) == (settings["device"] == "cuda" and settings.get("run_ahead") is None)
    return found


@pytest.fixture(scope="module")
def on_the_cpu() -> list[Sequence[int]]:
    return answers(runs=1, device="cpu", dtype="float32")[0]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cuda_graphs": False},
        {"run_ahead": False},
        {"jump": "off", "cuda_graphs": False, "max_batch_tokens": 24},
        {"max_batch_tokens": 24},
        {"jump": "off"},
        {"block_size": 1, "max_running_requests": 3},
    ],
    ids=["graphs", "launched", "in turn", "chunks launched", "chunks", "no drafts", "few at a time"],
)
def test_greedy_answers_are_the_cpus(settings: dict[str, Any], on_the_cpu: list[Sequence[int]]) -> None:
    """In fp32, cold and from cached prefixes, drafts and a constraint among them."""
    for found in answers(device="cuda", dtype="float32", **settings):
        assert found == on_the_cpu


def test_samples_begin_as_the_cpus_do() -> None:
    """Noise is a function of seed, position and token; further on, the last bits of logits may decide otherwise."""
    cpu, gpu = (
        answers(runs=1, params=SAMPLED, device=device, dtype="float32")[0][: len(PROMPTS)] for device in ("cpu", "cuda")
    )
    assert [ids[:4] for ids in cpu] == [ids[:4] for ids in gpu]


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(resolve_model("nano"), dtype=torch.float32)
    folder = tmp_path_factory.mktemp("adapters")
    return {
        str(rank): str(
            save_adapter(folder / str(rank), model, ".*_proj", {}, seed=rank, size=0.1, r=rank, target_modules=ALL)
        )
        for rank in (1, 20, 64)
    }


def adapted_answers(adapters: dict[str, str], **settings: Any) -> list[Sequence[int]]:
    """Every prompt through every adapter and through none, in the same steps; twice, the second time cached."""
    with ph.Engine("nano", num_blocks=1024, adapters=adapters, **settings) as engine:
        for _ in range(2):
            said: dict[str, list[int]] = {
                engine.core.add(prompt, GREEDY, adapter=name): [] for prompt in PROMPTS for name in (None, *adapters)
            }
            while engine.core.has_work:
                for delta in engine.core.step():
                    said[delta.request_id] += delta.token_ids
        return list(said.values())


@pytest.mark.parametrize("settings", [{}, {"cuda_graphs": False}, {"max_batch_tokens": 24}], ids=str)
def test_greedy_answers_through_adapters_are_the_cpus(adapters: dict[str, str], settings: dict[str, Any]) -> None:
    on_the_cpu = adapted_answers(adapters, device="cpu", dtype="float32")
    assert len({tuple(ids) for ids in on_the_cpu[:4]}) == 4
    assert adapted_answers(adapters, device="cuda", dtype="float32", **settings) == on_the_cpu


@pytest.mark.parametrize("kv_dtype", ["auto", "int8", "fp8", "int4"])
def test_in_bf16_the_engine_answers_whatever_its_kv(kv_dtype: str) -> None:
    for params in (GREEDY, SAMPLED):
        for found in answers(device="cuda", kv_dtype=kv_dtype, params=params):
            assert all(len(ids) == params.max_tokens for ids in found[: len(PROMPTS)] if params is GREEDY)


@pytest.mark.parametrize("kv_dtype", ["auto", "int8", "int4"])
def test_deterministic_answers_have_the_same_bits_alone_together_in_chunks_and_cached(kv_dtype: str) -> None:
    """Down to the last bit of every log-probability, sampled at that."""
    params = replace(SAMPLED, max_tokens=24, logprobs=0)
    prompts = [TRUNK * 6 + str(index) for index in range(12)]

    def scored(engine: ph.Engine, prompt: str) -> list[tuple[int, float]]:
        return [(entry.token_id, entry.logprob) for entry in engine.generate(prompt, params).logprobs]

    def open_engine(**settings: Any) -> ph.Engine:
        return ph.Engine("nano", device="cuda", deterministic=True, kv_dtype=kv_dtype, num_blocks=512, **settings)

    with open_engine(prefix_cache=False, cuda_graphs=False) as engine:
        alone = [scored(engine, prompt) for prompt in prompts]
    for settings in ({}, {"max_batch_tokens": 40}, {"run_ahead": False}):
        with open_engine(**settings) as engine:
            for _ in range(2):
                together = engine.generate(prompts, params)
                assert [[(e.token_id, e.logprob) for e in one.logprobs] for one in together] == alone


def test_after_a_warm_up_nothing_is_compiled_and_no_decode_step_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton tells of every kernel that it makes ready, be it found on disk."""
    compiled: list[str] = []
    prompts = [TRUNK * count + str(count) for count in (1, 2, 4, 8, 1, 1, 3)]
    with ph.Engine("nano", device="cuda", num_blocks=4096, jump="off") as engine:
        warm_up(engine)
        num_captured = engine.core._runner._graphs.num_captured
        monkeypatch.setattr(
            triton.knobs.runtime, "jit_post_compile_hook", lambda *, repr, **rest: compiled.append(repr)
        )
        for params in (GREEDY, SAMPLED):
            for count in (1, 2, 5, 7):
                engine.generate(prompts[:count], params)
        engine.generate(prompts, SAMPLED, ph.json_schema(PERSON))
        assert compiled == []
        assert engine.core._runner._graphs.num_captured == num_captured > 20
