"""Outputs that go on past the model's context (StreamingLLM): against transformers over the same keys, and run alone.

The twin decodes with transformers' own model over transformers' cache. Where keys are dropped it turns those that stay
to their new positions, in float64 and as complex numbers.
"""

from __future__ import annotations

import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import phloem as ph
from phloem.runtime.kv_policies import NUM_SINKS

from ..models.oracle import assert_likeliest
from ..models.test_parity import LATENTS, save_confident_model
from ..traffic import Said, listen, step
from .keeping import scored, some_prompt

CONTEXT, BUDGET, FULL = 160, 64, 128
LENGTH = 200  # of an answer to a prompt of 100 tokens: it ends 140 tokens after the context
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "GQA": ("LlamaForCausalLM", {"num_key_value_heads": 2}),
    "part of a head turns, and its factor is not 1": (
        "Phi3ForCausalLM",
        {
            "num_key_value_heads": 2,
            "pad_token_id": 0,
            "partial_rotary_factor": 0.5,
            "rope_scaling": {"rope_type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.5] * 4},
            "original_max_position_embeddings": CONTEXT,
            "attention_factor": 1.2,
        },
    ),
}


def params_of(num_tokens: int = LENGTH, kv_budget: int = BUDGET, **more: Any) -> ph.SamplingParams:
    more = {"temperature": 0.0, "ignore_eos": True, "logprobs": 0, "kv_policy": "sinks", "beyond_context": True, **more}
    return ph.SamplingParams(max_tokens=num_tokens, kv_budget=kv_budget, **more)


@torch.inference_mode()
def streamed(model: Any, frequencies: torch.Tensor, prompt: list[int], answer: list[int]) -> torch.Tensor:
    """Logits of each token of the answer, `[., V]`; positions are places in the cache. frequencies: of the pairs."""
    from transformers import DynamicCache

    kept_cache, rows, token_ids = DynamicCache(), [], list(prompt)
    for token in answer:
        start = kept_cache.get_seq_length()
        if start >= FULL:
            for layer in kept_cache.layers:
                last = layer.keys[:, :, start - BUDGET + NUM_SINKS :]
                layer.keys = torch.cat([layer.keys[:, :, :NUM_SINKS], _turned(last, frequencies * (BUDGET - start))], 2)
                values = layer.values
                layer.values = torch.cat([values[:, :, :NUM_SINKS], values[:, :, start - BUDGET + NUM_SINKS :]], 2)
            start = BUDGET
        positions = torch.arange(start, start + len(token_ids))[None]
        found = model(torch.tensor([token_ids]), None, positions, kept_cache, use_cache=True)
        rows.append(found.logits[0, -1])
        token_ids = [token]
    return torch.stack(rows)


def _turned(keys: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    half = len(angles)
    pairs = torch.complex(keys[..., :half].double(), keys[..., half : 2 * half].double())
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real.float(), turned.imag.float(), keys[..., 2 * half :]], -1)


@pytest.mark.parametrize("shape", SHAPES)
def test_tokens_are_those_of_transformers_over_the_same_keys(shape: str, tmp_path: Path) -> None:
    class_name, options = SHAPES[shape]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers' own
        model = save_confident_model(tmp_path, class_name, options, "eager")
    prompt = some_prompt(100)
    with ph.Engine(
        str(tmp_path), device="cpu", check_invariants=True, num_blocks=64, max_batch_tokens=90, max_model_len=CONTEXT
    ) as engine:
        completion = engine.generate(prompt, params_of())
    answer = list(completion.token_ids)
    assert len(answer) == LENGTH
    assert completion.finish_reason == "length"
    assert completion.usage.dropped_tokens == 3 * (FULL - BUDGET)
    frequencies = model.model.rotary_emb.inv_freq.double()
    logits = streamed(model, frequencies, prompt, answer)
    assert_likeliest(logits, answer, torch.full((LENGTH,), 1e-4))
    found = torch.tensor([chosen.logprob for chosen in completion.logprobs])
    torch.testing.assert_close(found, logits.log_softmax(-1).amax(-1), atol=1e-4, rtol=0)


@cache
def alone(length: int, kv_dtype: str) -> list[tuple[int, float]]:
    options = {"prefix_cache": False, "lookup_drafts": False, "num_blocks": 64, "max_model_len": CONTEXT}
    with ph.Engine(device="cpu", kv_dtype=kv_dtype, **options) as engine:
        return scored(engine.generate(some_prompt(length), params_of(150)))


@settings(deadline=None, max_examples=4)
@given(
    st.lists(st.integers(1, 150), min_size=1, max_size=3),
    st.sampled_from([4, 16]),
    st.sampled_from([11, 4096]),
    st.sampled_from(["auto", "int8", "int4"]),
    st.booleans(),
)
def test_bits_do_not_depend_on_the_cache_the_chunks_or_the_company(
    lengths: list[int], block_size: int, chunk: int, kv_dtype: str, ahead: bool
) -> None:
    options = {"num_blocks": 420 // block_size, "block_size": block_size, "max_batch_tokens": chunk}
    with ph.Engine(
        device="cpu", kv_dtype=kv_dtype, max_model_len=CONTEXT, run_ahead=ahead, check_invariants=True, **options
    ) as engine:
        for _ in range(2):  # cold, then warm
            completions = engine.generate([some_prompt(length) for length in lengths], params_of(150))
            for length, completion in zip(lengths, completions, strict=True):
                assert scored(completion) == alone(length, kv_dtype)


def test_endless_is_as_long_as_one_likes() -> None:
    """Beside it another request, which a fault in a step would have computed again."""
    with ph.Engine(device="cpu", num_blocks=64, max_model_len=CONTEXT) as engine:
        core, beside = engine.core, engine.core.add(some_prompt(20), params_of(9))
        ids = [core.add(some_prompt(30), params_of(most)) for most in (1 << 31, 1 << 63, 1 << 64, 10**30)]
        said = {beside: Said()}
        while len(said[beside].token_ids) < 9:
            step(core, said)
        assert all(len(said[one].token_ids) > 1 for one in ids) and core.statistics().num_recoveries == 0
        for one in ids:
            core.abort(one)


def test_a_fork_goes_on_beyond_the_context_too() -> None:
    with ph.Engine(device="cpu", num_blocks=64, max_model_len=CONTEXT, check_invariants=True) as engine:
        core = engine.core
        parent = core.add(some_prompt(100), params_of(150))
        said = {parent: Said()}
        while len(said[parent].token_ids) < 90:
            step(core, said)
        (child,) = core.fork(parent, 1)
        listen(core, said)
        assert said[parent].token_ids == said[child].token_ids == [token for token, _ in alone(100, "auto")]
        assert core.statistics().num_held_blocks == 0


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    for more, why in (({"kv_budget": None}, "no kv_budget"), ({"kv_policy": "h2o"}, "kv_policy is 'h2o'")):
        with pytest.raises(
            ph.RequestError, match=rf"beyond_context: {why}.*; it needs a kv_budget and kv_policy='sinks'"
        ):
            params_of(**more)
    with pytest.raises(ph.RequestError, match="max_tokens: with beyond_context the context does not end the output"):
        params_of(None)  # type: ignore[arg-type]
    with pytest.raises(ph.RequestError, match="beyond_context: expected True or False, got 1"):
        params_of(beyond_context=1)
    with ph.Engine(device="cpu", num_blocks=64, max_model_len=CONTEXT) as engine:
        with pytest.raises(ph.RequestError, match=r"kv_budget: up to 175 tokens are held at once, .* room for 160"):
            engine.generate(some_prompt(10), params_of(kv_budget=111))
        with pytest.raises(ph.PromptTooLong):
            engine.generate(some_prompt(CONTEXT), params_of())
        assert len(engine.generate(some_prompt(100), params_of(beyond_context=False)).token_ids) == CONTEXT - 100
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_confident_model(tmp_path, "YoutuForCausalLM", LATENTS, "eager")
    with (
        ph.Engine(str(tmp_path), device="cpu", num_blocks=16) as engine,
        pytest.raises(ph.RequestError, match="beyond_context: the cached keys of this model cannot be turned"),
    ):
        engine.generate(some_prompt(10), params_of())
