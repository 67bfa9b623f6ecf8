"""Checkpoints of few bits, in every format that is read, against transformers on the dequantised numbers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from phloem.kernels import device_grouped, ops
from phloem.kernels.linear_weight import Quantise
from phloem.runtime.capacity.planner import plan
from phloem.runtime.models import Decoder, ModelConfig

from .decoder_shapes import DEEPSEEK, QWEN3_MOE
from .edits import edit_tensors
from .oracle import Oracle, PagedRun, random_ids
from .published import FORMATS, publish

LLAMA = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
# name: (architecture, what differs from the tests' small model, formats)
MODELS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "llama": ("LlamaForCausalLM", LLAMA, tuple(FORMATS)),
    "qwen2": ("Qwen2ForCausalLM", LLAMA, ("gptq", "awq")),
    "phi3": ("Phi3ForCausalLM", LLAMA, ("gptq, act-order", "fp8, blocks")),
    "odd sizes": ("LlamaForCausalLM", {}, ("gptq", "fp8, blocks", "packed, channels")),
    "qwen3-moe": ("Qwen3MoeForCausalLM", QWEN3_MOE, ("gptq", "awq", "fp8, blocks", "float, channels")),
    "deepseek-v3": ("DeepseekV3ForCausalLM", {**DEEPSEEK, "n_group": 4, "topk_group": 2}, ("fp8, blocks", "packed")),
}
CASES = [(model, form) for model, (*_, forms) in MODELS.items() for form in forms]


@pytest.mark.parametrize(("model", "form"), CASES, ids=[f"{model}, {form}" for model, form in CASES])
def test_logits_and_greedy_text_equal_transformers(model: str, form: str, tmp_path: Path) -> None:
    class_name, options, _ = MODELS[model]
    oracle = Oracle(tmp_path, publish(tmp_path, FORMATS[form], class_name, options))
    oracle.assert_decoder(Decoder.from_folder(tmp_path, dtype=torch.float32))


ROUNDINGS: tuple[Quantise, ...] = ("none", "int8", "int4")


@pytest.mark.parametrize("quantise", ROUNDINGS)
@pytest.mark.parametrize("form", ["gptq", "gptq, act-order", "packed, channels", "fp8, blocks", "int8, channels"])
@pytest.mark.parametrize("model", ["llama", "qwen3-moe", "deepseek-v3"])
def test_weight_bytes_are_what_loading_takes(model: str, form: str, quantise: Quantise, tmp_path: Path) -> None:
    class_name, options, _ = MODELS[model]
    publish(tmp_path, FORMATS[form], class_name, options)
    decoder = Decoder.from_folder(tmp_path, dtype=torch.float32, quantise=quantise)
    capacity = plan(decoder.config, pool_bytes=1 << 20, on_cpu=True, weight_dtype="float32", quantise=quantise)
    assert capacity.weight_bytes == decoder.num_weight_bytes


def test_on_a_gpu_few_bits_are_counted_as_its_kernel_keeps_them(tmp_path: Path) -> None:
    values = {**LLAMA_8B, "quantization_config": FORMATS["gptq"].config | {"group_size": 128}}
    (tmp_path / "config.json").write_text(json.dumps(values))
    capacity = plan(ModelConfig.from_folder(tmp_path), device_memory_bytes=24 << 30)
    numbers, plain = 32 * (4096 * (6144 + 4096 + 3 * 14336)), 2 * 128256 * 4096 + 65 * 4096 * 2
    assert capacity.weight_bytes == numbers // 2 + numbers // 128 * 4 + 2 * plain
    assert capacity.weight_bytes < 0.37 * 2 * capacity.num_parameters


LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "torch_dtype": "float16",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}


@pytest.mark.parametrize("form", ["gptq", "awq", "packed, zeros", "fp8, blocks", "int8, zeros"])
def test_with_half_types_the_cpu_has_the_widened_numbers(form: str, tmp_path: Path) -> None:
    """In bf16 what is rounded there: the same logits as a checkpoint of the dequantised weights."""
    model = publish(tmp_path / "few", FORMATS[form], "LlamaForCausalLM", LLAMA)
    model.save_pretrained(tmp_path / "wide")
    found, expected = (
        PagedRun(Decoder.from_folder(tmp_path / name, dtype=torch.bfloat16)).extend({0: random_ids(20)})
        for name in ("few", "wide")
    )
    assert torch.equal(found, expected)


@pytest.mark.parametrize("form", ["gptq", "gptq, act-order", "awq", "packed, zeros", "fp8, blocks", "int8, zeros"])
def test_a_gpus_layout_holds_the_very_numbers(form: str, tmp_path: Path) -> None:
    """Laid out for its kernel and taken apart again, weights are those that the CPU's kernel reads."""
    publish(tmp_path, FORMATS[form], "LlamaForCausalLM", {**LLAMA, "hidden_size": 128, "intermediate_size": 256})
    for _, layer in Decoder.from_folder(tmp_path, dtype=torch.float32)._layers:
        for weight in (layer.qkv, layer.o, layer.gate_up, layer.down):
            assert weight is not None
            assert weight.groups is not None
            kept = weight._taken_apart(weight.groups)
            if device_grouped.fits(kept):
                apart = device_grouped.take_apart(*device_grouped.lay_out(kept, torch.bfloat16))
                assert torch.equal(apart.exact(), replace(kept, order=None).exact())


@pytest.mark.parametrize("form", ["gptq", "awq", "packed", "fp8, blocks"])
def test_modules_that_are_listed_as_plain_are_read_so(form: str, tmp_path: Path) -> None:
    """A projection of a stack among them: what is stacked with it is widened."""
    model = publish(tmp_path, FORMATS[form], "LlamaForCausalLM", LLAMA, plain=("layers.0.", "self_attn.v_proj"))
    decoder = Decoder.from_folder(tmp_path, dtype=torch.float32)
    (_, first), (_, second) = decoder._layers
    assert first.down is not None
    assert second.qkv is not None
    assert second.down is not None
    assert first.down.groups is None
    assert second.qkv.groups is None
    assert second.down.groups is not None
    token_ids = random_ids(30)
    Oracle(tmp_path, model).assert_logits(PagedRun(decoder).extend({0: token_ids}), token_ids)
    capacity = plan(decoder.config, pool_bytes=1 << 20, on_cpu=True, weight_dtype="float32")
    assert capacity.weight_bytes == decoder.num_weight_bytes


def test_scales_of_activations_and_of_keys_are_left_aside(tmp_path: Path) -> None:
    publish(tmp_path, FORMATS["fp8, tensors"], "LlamaForCausalLM", LLAMA)
    scales = {f"model.layers.0.self_attn.{name}": torch.ones(1) for name in ("q_proj.input_scale", "k_scale")}
    edit_tensors(tmp_path, lambda tensors: tensors.update(scales))
    Decoder.from_folder(tmp_path, dtype=torch.float32)


@pytest.mark.parametrize("form", ["gptq", "packed, channels", "int8, zeros"])
def test_products_that_round_inputs_are_nearly_those_that_do_not(form: str, tmp_path: Path) -> None:
    """`quantise` leaves weights that are in few bits as they are; rows then meet them in 16 bits."""
    publish(tmp_path, FORMATS[form], "LlamaForCausalLM", LLAMA)
    token_ids = random_ids(30)
    exact, rounded = (
        PagedRun(Decoder.from_folder(tmp_path, dtype=torch.float32, quantise=quantise)) for quantise in ROUNDINGS[::2]
    )
    expected, found = exact.extend({0: token_ids}), rounded.extend({0: token_ids})
    layer = rounded.decoder._layers[0][1]
    assert layer.o.groups is not None
    assert layer.o.groups.rounds_inputs
    assert not torch.equal(found, expected)


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["gptq", "gptq, one group", "packed", "fp8, blocks", "int8, channels"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_on_a_gpu_the_very_numbers_are_kept_and_multiplied(form: str, dtype: torch.dtype, tmp_path: Path) -> None:
    publish(tmp_path, FORMATS[form], "LlamaForCausalLM", {**LLAMA, "hidden_size": 128, "intermediate_size": 256})
    here, there = (
        Decoder.from_folder(tmp_path, device=device, dtype=kind)
        for device, kind in (("cpu", torch.float32), ("cuda", dtype))
    )
    for (_, expected), (_, found) in zip(here._layers, there._layers, strict=True):
        for name in ("qkv", "o", "gate_up", "down"):
            kept, weight = getattr(expected, name), getattr(found, name)
            assert weight.groups is not None
            assert torch.equal(weight.matrix().cpu(), kept.matrix())
            x = torch.randn(5, weight.num_inputs).to(dtype)
            product = x.double() @ kept.matrix().double().T
            close = {"atol": 1e-4, "rtol": torch.finfo(dtype).eps}
            torch.testing.assert_close(ops.linear(x.cuda(), weight).cpu().double(), product, **close)
