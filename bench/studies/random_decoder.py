"""Decoders with the shapes of known models and random weights, in bf16 or few bits: for measuring, not for reading."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from phloem.kernels import Grouped, pack_grouped, pack_linear
from phloem.runtime.models import Decoder, ModelConfig
from phloem.runtime.models.cut import Cut
from phloem.runtime.models.decoder import ROW_TILE, LayerWeights
from phloem.runtime.models.experts import ExpertsWeights
from phloem.runtime.parallel.ranks import ALONE

GROUP = 128  # inputs that share a scale in few bits
WEIGHTS = ("bf16", "int4", "fp8")
LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 16384,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
}
QWEN3_0_6B = {
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 16384,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
}
TINY = QWEN3_0_6B | {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def random_decoder(
    values: dict[str, Any],
    device: torch.device,
    dtype: torch.dtype,
    *,
    deterministic: bool = False,
    experts: Callable[[ModelConfig], ExpertsWeights] | None = None,
    weights: str = "bf16",
) -> Decoder:
    """A decoder of this configuration with small random weights, made on the device.

    experts: makes those of a layer, which take the place of its MLP. weights: of the layers, of `WEIGHTS`.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(values | {"eos_token_id": 0}))
        config = ModelConfig.from_folder(folder)

    def matrix(rows: int, columns: int, has_bias: bool = False) -> Any:
        weight = (torch.randn(rows, columns, device=device) * 0.02).to(dtype)
        bias = torch.zeros(rows, device=device, dtype=dtype) if has_bias else None
        return pack_linear(weight, bias, row_tile=ROW_TILE if deterministic else 0)

    def linear(rows: int, columns: int, has_bias: bool = False) -> Any:
        if weights == "bf16":
            return matrix(rows, columns, has_bias)
        bias = torch.zeros(rows, device=device, dtype=dtype) if has_bias else None
        few = few_bits(weights, rows, columns, device)
        return pack_grouped(few, bias, dtype=dtype, row_tile=ROW_TILE if deterministic else 0)

    hidden, inner, size = config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim
    ones = torch.ones(hidden, device=device)
    head_norm = torch.ones(config.head_dim, device=device) if config.options.qk_norm else None
    layers = [
        LayerWeights(
            input_norm=ones,
            qkv=linear(sum(config.qkv_rows(index)), hidden, config.qkv_bias),
            q_norm=head_norm,
            k_norm=head_norm,
            sinks=torch.zeros(config.num_heads, device=device) if config.options.has_sinks else None,
            o=linear(hidden, size, config.o_bias),
            post_attention_norm=None,
            mlp_norm=ones,
            gate_up=linear(2 * inner, hidden) if experts is None else None,
            down=linear(hidden, inner) if experts is None else None,
            post_mlp_norm=None,
            experts=experts(config) if experts is not None else None,
        )
        for index in range(config.num_layers)
    ]
    embedding = matrix(config.vocab_size, hidden)
    lm_head = embedding if config.tie_word_embeddings else matrix(config.vocab_size, hidden)
    parts = {"embedding": embedding, "layers": layers, "final_norm": ones, "lm_head": lm_head}
    return Decoder(Cut(config, ALONE), **parts, max_positions=config.max_position_embeddings)


def few_bits(weights: str, rows: int, columns: int, device: torch.device) -> Grouped:
    """A random weight in "int4" or "fp8"."""
    size = min(GROUP, columns)
    scales = torch.full((rows, columns // size), 0.004, dtype=torch.float16, device=device)
    if weights == "int4":
        numbers = torch.randint(-8, 8, (rows, columns), dtype=torch.int8, device=device)
        return Grouped("int4", numbers, scales)
    numbers = torch.randn(rows, columns, device=device).to(torch.float8_e4m3fn)
    return Grouped("e4m3", numbers, scales.float())
