"""Checkpoints of few bits, packed by the formats' definitions, number by number, and what they mean in float64.

Nothing of phloem is used here. `publish` writes a random checkpoint of an architecture in a format and returns
transformers' model of the dequantised numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .edits import edit_config
from .oracle import save_random_model

Tensors = dict[str, Tensor]
Numbers = np.ndarray[Any, Any]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def pack_words(numbers: Numbers, bits: int, order: tuple[int, ...] | None = None) -> Tensor:
    """`[R, C]` from 0 on -> `[R, ceil(C * bits / 32)]` int32; place i of a word has number order[i]."""
    per_word = 32 // bits
    places = order or tuple(range(per_word))
    padded = np.pad(numbers, ((0, 0), (0, -numbers.shape[1] % per_word))).astype(np.uint64)
    words = np.zeros((len(numbers), padded.shape[1] // per_word), np.uint64)
    for place, which in enumerate(places):
        words |= padded[:, which::per_word] << np.uint64(bits * place)
    return torch.from_numpy(words.astype(np.uint32).view(np.int32))


def groups_of(num_inputs: int, size: int) -> Numbers:
    return np.arange(num_inputs) // (num_inputs if size == -1 else size)


def gptq(
    shape: tuple[int, int], rng: np.random.Generator, *, size: int, bits: int = 4, v2: bool = False, order: bool = False
) -> tuple[Tensors, Numbers]:
    num_outputs, num_inputs = shape
    groups = groups_of(num_inputs, size)
    if order:
        # by the shape alone: the maps of one input are ordered alike
        groups = np.random.default_rng(num_inputs).permutation(groups)
    numbers = rng.integers(0, 1 << bits, shape)
    zeros = rng.integers(0, 1 << bits, (groups.max() + 1, num_outputs))
    scales = (rng.uniform(0.2, 1.0, zeros.shape) * 0.5 / (1 << (bits - 1))).astype(np.float16)
    weight = (numbers - zeros[groups].T) * scales.astype(np.float64)[groups].T
    stored = zeros if v2 else (zeros - 1) % (1 << bits)
    return {
        "qweight": pack_words(numbers, bits).T.contiguous(),
        "qzeros": pack_words(stored, bits),
        "scales": torch.from_numpy(scales),
        "g_idx": torch.from_numpy(groups.astype(np.int32)),
    }, weight


def awq(shape: tuple[int, int], rng: np.random.Generator, *, size: int) -> tuple[Tensors, Numbers]:
    num_outputs, num_inputs = shape
    groups = groups_of(num_inputs, size)
    numbers = rng.integers(0, 16, shape)
    zeros = rng.integers(0, 16, (groups.max() + 1, num_outputs))
    scales = (rng.uniform(0.2, 1.0, zeros.shape) / 16).astype(np.float16)
    weight = (numbers - zeros[groups].T) * scales.astype(np.float64)[groups].T
    return {
        "qweight": pack_words(numbers.T, 4, AWQ_ORDER),
        "qzeros": pack_words(zeros, 4, AWQ_ORDER),
        "scales": torch.from_numpy(scales),
    }, weight


def packed(
    shape: tuple[int, int], rng: np.random.Generator, *, size: int, bits: int = 4, zeros: bool = False
) -> tuple[Tensors, Numbers]:
    groups, middle = groups_of(shape[1], size), 1 << (bits - 1)
    numbers = rng.integers(-middle, middle, shape)
    scales = torch.from_numpy(rng.uniform(0.2, 1.0, (shape[0], groups.max() + 1)) * 0.5 / middle).to(torch.bfloat16)
    offsets = rng.integers(-middle, middle, scales.shape) if zeros else np.zeros(scales.shape, np.int64)
    weight = (numbers - offsets[:, groups]) * scales.double().numpy()[:, groups]
    tensors = {
        "weight_packed": pack_words(numbers + middle, bits),
        "weight_scale": scales,
        "weight_shape": torch.tensor(shape),
    }
    if zeros:
        tensors["weight_zero_point"] = pack_words((offsets + middle).T, bits).T.contiguous()
    return tensors, weight


def whole(
    shape: tuple[int, int],
    rng: np.random.Generator,
    *,
    per: str,
    scale: str = "weight_scale",
    is_float: bool = True,
    zeros: bool = False,
) -> tuple[Tensors, Numbers]:
    """One byte a number. per: "tensor", "channel" or "block", of 32 by 32."""
    if is_float:
        numbers = torch.from_numpy(rng.normal(0, 60, shape)).clamp(-448, 448).to(torch.float8_e4m3fn)
    else:
        numbers = torch.from_numpy(rng.integers(-128, 128, shape)).to(torch.int8)
    counts = {"tensor": (1, 1), "channel": (shape[0], 1), "block": tuple(-(-n // 32) for n in shape)}[per]
    scales = torch.from_numpy(rng.uniform(0.2, 1.0, counts) / 100).float()
    wide = scales.double().numpy()
    if per == "block":
        wide = wide.repeat(32, 0)[: shape[0]].repeat(32, 1)[:, : shape[1]]
    offsets = rng.integers(-20, 20, counts) if zeros else np.zeros((1, 1), np.int64)
    weight = (numbers.double().numpy() - offsets) * wide
    tensors = {"weight": numbers, scale: scales.flatten() if per == "tensor" else scales}
    if zeros:
        tensors["weight_zero_point"] = torch.from_numpy(offsets).to(torch.int8)
    return tensors, weight


@dataclass(frozen=True)
class Format:
    """How to pack a matrix, and what `quantization_config` says of it."""

    pack: Callable[..., tuple[Tensors, Numbers]]
    options: dict[str, Any]
    config: dict[str, Any] = field(default_factory=dict)


def _compressed(form: str, ignore: tuple[str, ...] = (), **weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"symmetric": True, **weights}, "input_activations": None}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head", *ignore],
    }


def _gptq(bits: int, size: int, **changes: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": bits, "group_size": size, "sym": False, **changes}


INT4 = {"num_bits": 4, "type": "int"}
FORMATS = {
    "gptq": Format(gptq, {"size": 32}, _gptq(4, 32, desc_act=False)),
    "gptq, one group": Format(gptq, {"size": -1}, _gptq(4, -1)),
    "gptq, act-order": Format(gptq, {"size": 16, "order": True}, _gptq(4, 16, desc_act=True)),
    "gptq v2": Format(gptq, {"size": 32, "v2": True}, _gptq(4, 32, checkpoint_format="gptq_v2")),
    "gptq, 8 bits": Format(gptq, {"size": 32, "bits": 8}, _gptq(8, 32)),
    "awq": Format(
        awq, {"size": 16}, {"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm"}
    ),
    "packed": Format(packed, {"size": 32}, _compressed("pack-quantized", **INT4, strategy="group", group_size=32)),
    "packed, channels": Format(packed, {"size": -1}, _compressed("pack-quantized", **INT4, strategy="channel")),
    "packed, zeros": Format(
        packed,
        {"size": 16, "zeros": True},
        _compressed("pack-quantized", **INT4, strategy="group", group_size=16, symmetric=False),
    ),
    "fp8, blocks": Format(
        whole,
        {"per": "block", "scale": "weight_scale_inv"},
        {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [32, 32], "activation_scheme": "dynamic"},
    ),
    "fp8, tensors": Format(whole, {"per": "tensor"}, {"quant_method": "fp8", "activation_scheme": "static"}),
    "float, channels": Format(
        whole, {"per": "channel"}, _compressed("float-quantized", num_bits=8, type="float", strategy="channel")
    ),
    "float, tensors": Format(
        whole, {"per": "tensor"}, _compressed("float-quantized", num_bits=8, type="float", strategy="tensor")
    ),
    "int8, channels": Format(
        whole,
        {"per": "channel", "is_float": False},
        _compressed("int-quantized", num_bits=8, type="int", strategy="channel"),
    ),
    "int8, zeros": Format(
        whole,
        {"per": "channel", "is_float": False, "zeros": True},
        _compressed("naive-quantized", num_bits=8, type="int", strategy="channel", symmetric=False),
    ),
}
# what publishers leave in plain numbers
PLAIN = ("lm_head", "embed_tokens", "norm", "mlp.gate.", "e_score", "router", "rotary")


def publish(
    folder: Path, form: Format, class_name: str, options: dict[str, Any], *, plain: tuple[str, ...] = ()
) -> Any:
    """transformers' model of what is written. plain: parts of names that stay plain and are listed as such."""
    model = save_random_model(folder, class_name, options)
    rng, tensors, meant = np.random.default_rng(3), load_file(folder / "model.safetensors"), model.state_dict()
    for name, tensor in list(tensors.items()):
        if tensor.ndim == 2 and not any(part in name for part in (*PLAIN, *plain)):
            found, weight = form.pack(tuple(tensor.shape), rng, **form.options)
            del tensors[name]
            base = name.removesuffix("weight")
            tensors |= {f"{base}{part}": value for part, value in found.items()}
            _mean(meant, name, torch.from_numpy(weight).float())
    save_file(tensors, folder / "model.safetensors")
    config = dict(form.config)
    if plain:
        key = "ignore" if "ignore" in form.config else "modules_to_not_convert"
        config[key] = [*form.config.get(key, ()), *(part.strip(".") for part in plain)]
    edit_config(folder, quantization_config=config)
    return model


def _mean(meant: Tensors, name: str, weight: Tensor) -> None:
    """Makes a weight of the model, whose experts are single tensors, mean this."""
    if name in meant:
        meant[name].copy_(weight)
        return
    base, _, rest = name.partition(".experts.")
    number, which, _ = rest.split(".")
    if which == "down_proj":
        meant[f"{base}.experts.down_proj"][int(number)].copy_(weight)
        return
    gate_up = meant[f"{base}.experts.gate_up_proj"][int(number)]
    half = len(gate_up) // 2
    gate_up[half * (which == "up_proj") :][:half].copy_(weight)
