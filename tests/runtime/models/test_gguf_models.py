"""GGUF files of every architecture and type against transformers on the dequantised numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
import transformers
from sentencepiece import SentencePieceProcessor

import phloem as ph
from phloem.kernels.linear_weight import Quantise
from phloem.runtime.capacity.planner import plan
from phloem.runtime.engine.engine import Engine
from phloem.runtime.models import Decoder, ModelConfig, resolve_model
from phloem.runtime.models.gguf.tensor_types import TYPES
from phloem.runtime.models.gguf.unpack import grouped
from phloem.runtime.models.weights import TORCH_TYPES
from phloem.runtime.request import SamplingParams

from .decoder_shapes import LLAMA3, QWEN2_MOE, QWEN3_MOE, YARN
from .gguf_files import FEW_BITS, KIND, PLAIN, add_pieces, dequantised, random_blocks, write_model
from .oracle import Oracle, PagedRun, random_ids, save_random_model

WIDE = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
WIDEST = {"hidden_size": 256, "intermediate_size": 256, "num_attention_heads": 4}  # whole blocks of 256
Q4_K_M = {"attn_v": "Q6_K", "ffn_down": "Q6_K", "token_embd": "Q6_K"}


def _llama3(writer: Any) -> None:
    """The divisors that llama.cpp's converter works out of Llama 3's rule."""
    plain = 1.0 / 10000.0 ** (np.arange(0, 16, 2, dtype=np.float64) / 16)
    turns = 64 * plain / (2 * np.pi)
    smooth = np.clip((turns - 1.0) / (4.0 - 1.0), 0, 1)
    writer.add_tensor("rope_freqs.weight", (1 / ((1 - smooth) / 8.0 + smooth)).astype(np.float32))


def _yarn(writer: Any) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_scaling_orig_ctx_len(64)


def _linear(writer: Any) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(3.0)


def _longrope(writer: Any) -> None:
    writer.add_rope_dimension_count(16)
    writer.add_rope_scaling_orig_ctx_len(128)
    writer.add_rope_scaling_attn_factors(float(np.sqrt(1 + np.log(2) / np.log(128))))
    for which, first in (("long", 1.5), ("short", 1.0)):
        writer.add_tensor(f"rope_factors_{which}.weight", np.linspace(first, first + 1, 8, dtype=np.float32))


def _experts(count: int, used: int, inner: int, shared: int = 0) -> Any:
    def add(writer: Any) -> None:
        writer.add_expert_count(count)
        writer.add_expert_used_count(used)
        if inner:
            writer.add_expert_feed_forward_length(inner)
        if shared:
            writer.add_expert_shared_feed_forward_length(shared)

    return add


def _window(size: int, *, caps: bool = False) -> Any:
    def add(writer: Any) -> None:
        writer.add_sliding_window(size)
        if caps:
            writer.add_attn_logit_softcapping(5.0)
            writer.add_final_logit_softcapping(3.0)

    return add


def _half(writer: Any) -> None:
    writer.add_rope_dimension_count(8)


LONGROPE = {
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10000.0,
        "short_factor": np.linspace(1, 2, 8).tolist(),
        "long_factor": np.linspace(1.5, 2.5, 8).tolist(),
        "original_max_position_embeddings": 128,
    },
    "original_max_position_embeddings": 128,
}
GEMMA = {**WIDE, "head_dim": 16, "tie_word_embeddings": True}
GEMMA2 = {
    **GEMMA,
    "sliding_window": 9,
    "query_pre_attn_scalar": 16,
    "attn_logit_softcapping": 5.0,
    "final_logit_softcapping": 3.0,
}
QWEN3_EXPERTS = {**QWEN3_MOE, **WIDE, "moe_intermediate_size": 32, "norm_topk_prob": True}
QWEN2_EXPERTS = {**QWEN2_MOE, **WIDE, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64}
# name: (architecture in the file, transformers' class, options, type, types of single tensors, keys)
MODELS: dict[str, tuple[str, str, dict[str, Any], str, dict[str, str], Any]] = {
    "llama": ("llama", "LlamaForCausalLM", WIDE, "Q4_0", {"token_embd": "Q8_0"}, None),
    "llama, biases": ("llama", "LlamaForCausalLM", {**WIDE, "attention_bias": True, "mlp_bias": True}, "F16", {}, None),
    "llama 3": ("llama", "LlamaForCausalLM", {**WIDE, "rope_parameters": LLAMA3}, "BF16", {}, _llama3),
    "llama, yarn": ("llama", "LlamaForCausalLM", {**WIDE, "rope_parameters": YARN}, "F32", {}, _yarn),
    "llama, linear": (
        "llama",
        "LlamaForCausalLM",
        {**WIDE, "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 3.0}},
        "F32",
        {"attn": "Q8_0"},
        _linear,
    ),
    "llama, Q4_K_M": ("llama", "LlamaForCausalLM", {**WIDEST, "tie_word_embeddings": True}, "Q4_K", Q4_K_M, None),
    "mistral": ("llama", "MistralForCausalLM", {**WIDE, "sliding_window": None}, "Q4_1", {"output": "F16"}, None),
    "mixtral": (
        "llama",
        "MixtralForCausalLM",
        {**WIDE, "num_local_experts": 5, "num_experts_per_tok": 2},
        "Q5_0",
        {"ffn_down": "Q8_0"},
        _experts(5, 2, 0),
    ),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", WIDE, "Q5_1", {"attn_v": "Q8_0"}, None),
    "qwen2, Q5_K_M": ("qwen2", "Qwen2ForCausalLM", WIDEST, "Q5_K", {**Q4_K_M, "output": "Q6_K"}, None),
    "qwen2moe": ("qwen2moe", "Qwen2MoeForCausalLM", QWEN2_EXPERTS, "Q8_0", {}, _experts(7, 3, 32, 64)),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", {**WIDE, "head_dim": 32}, "Q8_0", {}, None),
    "qwen3moe": ("qwen3moe", "Qwen3MoeForCausalLM", QWEN3_EXPERTS, "Q4_1", {"attn": "F16"}, _experts(7, 3, 32)),
    "smollm3": (
        "smollm3",
        "SmolLM3ForCausalLM",
        {**WIDE, "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0]},
        "Q4_0",
        {},
        None,
    ),
    "phi3": ("phi3", "Phi3ForCausalLM", {**WIDE, "sliding_window": 9}, "IQ4_NL", {}, _window(9)),
    "phi3, part turned": (
        "phi3",
        "Phi3ForCausalLM",
        {**WIDE, "rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        "Q4_0",
        {},
        _half,
    ),
    "phi3, longrope": ("phi3", "Phi3ForCausalLM", {**WIDE, **LONGROPE}, "MXFP4", {}, _longrope),
    "gemma": ("gemma", "GemmaForCausalLM", GEMMA, "Q4_0", {"token_embd": "Q8_0"}, None),
    "gemma2": ("gemma2", "Gemma2ForCausalLM", GEMMA2, "Q5_0", {}, _window(9, caps=True)),
    "gemma3": (
        "gemma3",
        "Gemma3ForCausalLM",
        {**GEMMA, "sliding_window": 9, "query_pre_attn_scalar": 16, "num_hidden_layers": 7},
        "Q4_0",
        {},
        _window(9),
    ),
}


def _written(folder: Path, name: str) -> tuple[Path, Oracle]:
    arch, class_name, options, kind, others, keys = MODELS[name]
    model, path = save_random_model(folder, class_name, options), folder / "model.gguf"
    with torch.no_grad():
        write_model(path, model, arch, kind, others=others, keys=keys)
    return path, Oracle(folder, model)


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_greedy_text_equal_transformers(name: str, tmp_path: Path) -> None:
    path, oracle = _written(tmp_path, name)
    decoder = Decoder.from_folder(path, dtype=torch.float32, max_positions=128)
    token_ids = random_ids(40)
    run = PagedRun(decoder)
    found = torch.cat([run.extend({0: chunk}) for chunk in (token_ids[:7], token_ids[7:39], token_ids[39:])])
    oracle.assert_logits(found, token_ids)
    oracle.assert_greedy(token_ids[:30], PagedRun(decoder).greedy(token_ids[:30], 48))
    for quantise in ("none", "int8"):
        rounded: Quantise = "int8" if quantise == "int8" else "none"
        held = Decoder.from_folder(path, dtype=torch.float32, quantise=rounded)
        capacity = plan(held.config, pool_bytes=1 << 20, on_cpu=True, weight_dtype="float32", quantise=rounded)
        assert capacity.weight_bytes == held.num_weight_bytes


@pytest.mark.parametrize("kind", [*FEW_BITS, *PLAIN])
def test_every_type_is_what_its_package_makes_of_it(kind: str) -> None:
    found = next(each for each in TYPES.values() if each.name == kind)
    assert gguf.GGML_QUANT_SIZES[KIND[kind]] == (found.block_size, found.block_bytes)
    if kind in PLAIN:
        assert found.dtype is not None and TORCH_TYPES[found.dtype] is PLAIN[kind]
        return
    raw = random_blocks(kind, (33, 512), np.random.default_rng(1))
    weight = grouped(found, torch.from_numpy(raw))
    assert found.form is not None
    assert (weight.element, weight.size) == (found.form.element, found.form.size)
    assert (weight.offsets is not None) == found.form.has_offsets
    expected = torch.from_numpy(dequantised(raw, kind))
    assert torch.equal(weight.widen(torch.float32), expected)
    if weight.offsets is None:  # else the sum with it is rounded, once
        assert torch.equal(weight.exact(), expected.double())


def test_in_half_types_few_bits_are_widened_where_no_kernel_reads_them(tmp_path: Path) -> None:
    path, oracle = _written(tmp_path, "llama, Q4_K_M")
    decoder, layer = Decoder.from_folder(path), oracle.model.model.layers[1]
    assert decoder.dtype is torch.bfloat16
    found, parts = decoder._layers[1][1], layer.self_attn
    assert found.qkv is not None
    rows = torch.cat([part.weight for part in (parts.q_proj, parts.k_proj, parts.v_proj)])
    assert torch.equal(found.qkv.matrix(), rows.bfloat16())
    assert torch.equal(found.o.matrix(), parts.o_proj.weight.bfloat16())


def test_norms_are_read_in_full(tmp_path: Path) -> None:
    path, oracle = _written(tmp_path, "gemma")
    decoder = Decoder.from_folder(path, dtype=torch.bfloat16)
    weight = oracle.model.model.layers[0].input_layernorm.weight
    assert torch.equal(decoder._layers[0][1].input_norm, weight.detach() + 1)
    assert ModelConfig.from_folder(path).options.norm_offset == 0


def test_an_engine_generates_and_chats_from_one_file(tmp_path: Path) -> None:
    """Settings, weights, tokenizer and template out of the file alone; greedy tokens are those of the checkpoint."""
    nano, path = resolve_model("nano"), tmp_path / "nano.gguf"
    model = transformers.AutoModelForCausalLM.from_pretrained(nano, dtype=torch.float32)
    pieces = SentencePieceProcessor(str(nano / "tokenizer.model"))

    def keys(writer: Any) -> None:
        add_pieces(writer, pieces)
        writer.add_chat_template((nano / "chat_template.jinja").read_text())

    with torch.no_grad():
        write_model(path, model, "llama", "Q8_0", keys=keys)
    model.save_pretrained(tmp_path / "folder")
    for name in ("tokenizer.model", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        (tmp_path / "folder" / name).write_bytes((nano / name).read_bytes())
    answers = []
    for place in (path, tmp_path / "folder"):
        with Engine(str(place), num_blocks=64, dtype="float32", device="cpu") as engine:
            sampling = SamplingParams(max_tokens=24, temperature=0.0)
            chat = engine.chat([{"role": "user", "content": "Hello"}], sampling)
            date = engine.generate("Date: ", SamplingParams(max_tokens=32), ph.regex(r"\d{4}-\d\d-\d\d"))
            answers.append((chat.token_ids, engine.generate("The ", sampling).token_ids))
            assert len(date.text) == 10
            engine.core.audit()
    assert answers[0] == answers[1]
