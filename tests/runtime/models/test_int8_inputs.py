"""Checkpoints that ask for int8 by int8 (compressed-tensors' W8A8), against transformers with rounded inputs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from phloem.errors import ModelError
from phloem.kernels import LinearWeight
from phloem.runtime.capacity.planner import plan
from phloem.runtime.models import Decoder

from .decoder_shapes import QWEN3_MOE
from .oracle import PagedRun, random_ids
from .published import FORMATS, Format, publish

LLAMA = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
STEP = 0.03
OWN_STEPS = {"num_bits": 8, "type": "int", "symmetric": True, "dynamic": True, "strategy": "token"}
ONE_STEP = {**OWN_STEPS, "dynamic": False, "strategy": "tensor"}


def int8_format(activations: dict[str, Any]) -> Format:
    form = FORMATS["int8, channels"]
    (group,) = form.config["config_groups"].values()
    return replace(form, config={**form.config, "config_groups": {"0": {**group, "input_activations": activations}}})


def add_steps(folder: Path, change: float = 1.0) -> None:
    """change: of one map's."""
    tensors = load_file(folder / "model.safetensors")
    modules = [name.removesuffix("weight_scale") for name in tensors if name.endswith("weight_scale")]
    tensors |= {f"{module}input_scale": torch.tensor([STEP]) for module in modules}
    tensors["model.layers.0.self_attn.k_proj.input_scale"] *= change
    save_file(tensors, folder / "model.safetensors")


def round_inputs(model: Any, activations: dict[str, Any]) -> None:
    """As compressed-tensors does it, before every linear map but the projection to the vocabulary."""

    def rounded(_: nn.Module, given: tuple[Tensor, ...]) -> Tensor:
        (x,) = given
        step = x.abs().amax(-1, keepdim=True) / 127.5 if activations["dynamic"] else torch.tensor(STEP)
        return (x / step).round().clamp(-128, 127) * step

    for module in model.model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_pre_hook(rounded)


@pytest.mark.parametrize("activations", [OWN_STEPS, ONE_STEP], ids=["own steps", "one step"])
def test_inputs_are_rounded_as_the_file_asks(activations: dict[str, Any], tmp_path: Path) -> None:
    """Numbers on the edge of two steps may fall either way: so not to the last bit, but nearly, and nearer than others.

    The products themselves are compared in `tests/kernels/test_int8_inputs.py`, to rounding.
    """
    model = publish(tmp_path, int8_format(activations), "LlamaForCausalLM", LLAMA)
    if not activations["dynamic"]:
        add_steps(tmp_path)
    decoder, token_ids = Decoder.from_folder(tmp_path, dtype=torch.float32), random_ids(40)
    found = PagedRun(decoder).extend({0: token_ids})
    with torch.inference_mode():
        plain = model(torch.tensor([token_ids])).logits[0]
        round_inputs(model, activations)
        rounded = model(torch.tensor([token_ids])).logits[0]
    assert (found - rounded).abs().mean() < 0.1 * (plain - rounded).abs().mean()
    capacity = plan(decoder.config, pool_bytes=1 << 20, on_cpu=True, weight_dtype="float32", quantise="int4")
    kept = Decoder.from_folder(tmp_path, dtype=torch.float32, quantise="int4")
    assert capacity.weight_bytes == kept.num_weight_bytes


def layer_weight(folder: Path, name: str) -> LinearWeight:
    weight = getattr(Decoder.from_folder(folder, dtype=torch.float32)._layers[0][1], name)
    assert isinstance(weight, LinearWeight)
    return weight


@pytest.mark.parametrize(
    "changes",
    [{"symmetric": False}, {"type": "float"}, {"num_bits": 4}, {"strategy": "tensor"}, {"strategy": "group"}],
    ids=str,
)
def test_inputs_of_any_other_kind_are_left_as_they_are(changes: dict[str, Any], tmp_path: Path) -> None:
    publish(tmp_path, int8_format({**OWN_STEPS, **changes}), "LlamaForCausalLM", LLAMA)
    assert layer_weight(tmp_path, "qkv").input_step is None


def test_maps_that_are_stacked_with_other_steps_are_widened(tmp_path: Path) -> None:
    publish(tmp_path, int8_format(ONE_STEP), "LlamaForCausalLM", LLAMA)
    add_steps(tmp_path, change=2.0)
    decoder = Decoder.from_folder(tmp_path, dtype=torch.float32)
    steps = [weight.input_step for _, layer in decoder._layers for weight in (layer.qkv, layer.gate_up) if weight]
    assert sorted(steps, key=str) == [pytest.approx(STEP)] * 3 + [None]


@pytest.mark.parametrize("change", [0.0, torch.nan, None])
def test_a_step_that_is_none_is_refused(change: float | None, tmp_path: Path) -> None:
    publish(tmp_path, int8_format(ONE_STEP), "LlamaForCausalLM", LLAMA)
    if change is not None:
        add_steps(tmp_path, change)
    with pytest.raises(ModelError, match="input_scale"):
        Decoder.from_folder(tmp_path, dtype=torch.float32)


def test_experts_of_their_own_round_their_inputs_too(tmp_path: Path) -> None:
    publish(tmp_path, int8_format(OWN_STEPS), "Qwen3MoeForCausalLM", QWEN3_MOE)
    decoder = Decoder.from_folder(tmp_path, dtype=torch.float32)
    experts = next(layer.experts for _, layer in decoder._layers if layer.experts is not None)
    assert {weight.input_step for weight in experts.gate_up.packed} == {0.0}
    capacity = plan(decoder.config, pool_bytes=1 << 20, on_cpu=True, weight_dtype="float32")
    assert capacity.weight_bytes == decoder.num_weight_bytes
