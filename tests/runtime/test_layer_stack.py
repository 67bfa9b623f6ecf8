"""Layers run in one compiled call give the bits of their ops one by one, in logits and in KV."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from phloem.kernels import FP8, ops, use_threads
from phloem.kernels.linear_weight import Quantise
from phloem.runtime.cache.kv_cache import KVCache
from phloem.runtime.models import Decoder

from .test_models import CASES, save_random_model

WIDE = {"head_dim": 16, "num_hidden_layers": 3}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama, biases": ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "norms of heads": CASES["qwen3"],
    "norms behind, caps, windows": CASES["gemma2"],
    "two ropes": CASES["gemma3"],
    "layers without rope": ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 0, 1]}),
    "odd widths": ("LlamaForCausalLM", {"intermediate_size": 88, "hidden_size": 72, "num_key_value_heads": 3}),
}
# by step, of each of three requests: new tokens; the first 64 of all lie in the same blocks
STEPS = [(70, 66, 1), (1, 1, 1), (4, 1, 90), (1, 2, 1), (1, 1, 1)]


def run(decoder: Decoder, kv_dtype: torch.dtype) -> list[torch.Tensor]:
    """The logits of all steps and, at the end, the KV."""
    config = decoder.config
    shape = {"num_layers": config.num_layers, "num_kv_heads": config.num_kv_heads, "head_dim": config.head_dim}
    cache = KVCache(**shape, num_blocks=40, block_size=16, dtype=kv_dtype, device=torch.device("cpu"))
    tables = np.random.default_rng(0).permutation(39).reshape(3, 13).astype(np.int32)
    tables[1, :4] = tables[0, :4]
    lens, found = np.zeros(3, np.int32), []
    for step, counts in enumerate(STEPS):
        q_lens = np.array(counts, np.int32)
        lens = lens + q_lens
        starts = np.concatenate([[0], np.cumsum(q_lens)]).astype(np.int32)
        owner = np.repeat(np.arange(3), q_lens)
        positions = np.arange(len(owner)) - starts[owner] + (lens - q_lens)[owner]
        slots = tables[owner, positions // 16].astype(np.int64) * 16 + positions % 16
        plan = ops.plan_attention(
            starts, lens, tables, num_heads=config.num_heads, num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim, block_size=16,
        )  # fmt: skip
        token_ids = torch.from_numpy((positions * 7 + step) % config.vocab_size)
        rows = torch.from_numpy(starts[1:].astype(np.int64) - 1) if step % 2 else None
        found.append(
            decoder.forward(token_ids, torch.from_numpy(positions), cache, plan, torch.from_numpy(slots), rows)
        )
    scales = [tensor for tensor in (*cache.key_scales, *cache.value_scales) if tensor is not None]
    return [*found, *(tensor.view(torch.int8) for tensor in (*cache.keys, *cache.values, *scales))]


@pytest.mark.parametrize("kv_dtype", [torch.float32, torch.int8, FP8], ids=str)
@pytest.mark.parametrize("quantise", ["none", "int8", "int4"])
@pytest.mark.parametrize("name", MODELS)
def test_one_call_gives_the_bits_of_many(tmp_path: Path, name: str, quantise: Quantise, kv_dtype: torch.dtype) -> None:
    class_name, options = MODELS[name]
    save_random_model(tmp_path, class_name, {**options, **WIDE})
    decoder = Decoder.from_folder(tmp_path, dtype=torch.float32, quantise=quantise)
    assert decoder.stack is not None
    at_once = run(decoder, kv_dtype)
    decoder.stack = None
    for one, other in zip(at_once, run(decoder, kv_dtype), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("quantise", ["none", "int8", "int4"])
@pytest.mark.parametrize("name", ["norms of heads", "norms behind, caps, windows"])
def test_a_team_of_threads_gives_the_bits_of_one(tmp_path: Path, name: str, quantise: Any) -> None:
    class_name, options = MODELS[name]
    save_random_model(tmp_path, class_name, {**options, **WIDE, "intermediate_size": 400})
    decoder = Decoder.from_folder(tmp_path, dtype=torch.float32, quantise=quantise)
    use_threads(1)
    alone = run(decoder, torch.float32)
    use_threads(3)
    try:
        together = run(decoder, torch.float32)
    finally:
        use_threads(None)
    assert all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))


def test_weights_published_in_bf16_are_read_as_well(tmp_path: Path) -> None:
    save_random_model(tmp_path, "LlamaForCausalLM", WIDE).to(torch.bfloat16).save_pretrained(tmp_path)
    decoder = Decoder.from_folder(tmp_path, dtype=torch.float32)
    assert decoder.stack is not None
    at_once = run(decoder, torch.float32)
    decoder.stack = None
    assert all(torch.equal(one, other) for one, other in zip(at_once, run(decoder, torch.float32), strict=True))


def test_shapes_that_the_loops_cannot_read_go_op_by_op(tmp_path: Path) -> None:
    save_random_model(tmp_path, "LlamaForCausalLM", {})  # heads of 8, whose halves are no whole vectors
    assert Decoder.from_folder(tmp_path, dtype=torch.float32).stack is None
    assert Decoder.from_folder(tmp_path, dtype=torch.bfloat16).stack is None
