"""Checkpoints of few bits that are broken, or in unknown forms: refused with the place and the remedy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from phloem.errors import ModelError
from phloem.runtime.models import Decoder

from .edits import edit_config, tensors
from .published import FORMATS, publish

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}


Q = "model.layers.1.self_attn.q_proj"


def _changed(part: str, change: Callable[[Tensor], Tensor]) -> Callable[[Path], None]:
    return tensors(lambda found: found.update({f"{Q}.{part}": change(found[f"{Q}.{part}"])}))


def _settings(**changes: Any) -> Callable[[Path], None]:
    """Of `quantization_config`."""
    return lambda folder: edit_config(
        folder, quantization_config=json.loads((folder / "config.json").read_text())["quantization_config"] | changes
    )


BROKEN: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "no scales": (
        "gptq",
        tensors(lambda t: t.pop(f"{Q}.scales")),
        rf"{Q}.scales of shape \[2, 64\] is missing",
    ),
    "no zeros": ("awq", tensors(lambda t: t.pop(f"{Q}.qzeros")), rf"tensor {Q}.qzeros of shape \[4, 8\] is missing"),
    "no weight": ("gptq", tensors(lambda t: t.pop(f"{Q}.qweight")), rf"tensor {Q}.qweight of shape .* is missing"),
    "no fp8 scale": (
        "fp8, blocks",
        tensors(lambda t: t.pop(f"{Q}.weight_scale_inv")),
        rf"{Q}.weight_scale_inv of shape \[2, 2\] is missing",
    ),
    "no order": (
        "gptq, act-order",
        tensors(lambda t: t.pop(f"{Q}.g_idx")),
        rf"{Q}.g_idx of shape .64. is missing",
    ),
    "uneven groups": (
        "gptq, act-order",
        _changed("g_idx", lambda x: x * 0),
        f"{Q}.g_idx: expected groups of 16",
    ),
    "another size": ("gptq", _settings(group_size=64), r"g_idx: expected groups of 64 inputs each"),
    "scale is inf": (
        "packed",
        _changed("weight_scale", lambda x: x / 0),
        f"{Q}.weight_scale: has a scale that",
    ),
    "one scale for all channels": (
        "float, channels",
        _changed("weight_scale", lambda x: x.flatten()[:1].clone()),
        rf"{Q}.weight_scale: expected shape \[64, 1\], found \[1\]",
    ),
    "a scale for each channel of one": (
        "float, tensors",
        _changed("weight_scale", lambda x: x.repeat(64)[:, None].clone()),
        rf"{Q}.weight_scale: expected shape \[1\], found \[64, 1\]",
    ),
    "weight is NaN": (
        "fp8, blocks",
        _changed("weight", lambda x: torch.full_like(x.float(), torch.nan).to(x.dtype)),
        f"{Q}.weight: has a weight that is no number",
    ),
    "another shape": ("packed", _changed("weight_shape", lambda x: x + 1), rf"{Q}.weight_shape: expected \[64, 64\]"),
    "floats": (
        "gptq",
        _changed("qweight", lambda x: x.float()),
        f"{Q}.qweight: stored as torch.float32; exp",
    ),
    "left over": (
        "gptq",
        tensors(lambda t: t.update({f"{Q}.extra": torch.zeros(1)})),
        f"{Q}.extra: 1 tensors",
    ),
    "excluded": ("gptq", _settings(modules_to_not_convert=["q_proj"]), r"q_proj.weight of shape \[64, 64\] is missing"),
    "excluded fp8": (
        "fp8, blocks",
        _settings(modules_to_not_convert=["model.layers.1.self_attn.q_proj"]),
        f"{Q}.weight: stored as torch.float8_e4m3fn; only fp32",
    ),
    "3 bits": (
        "gptq",
        _settings(bits=3),
        r"config: bits: 3 is not supported \(4 and 8 are read\); use the",
    ),
    "marlin": (
        "gptq",
        _settings(checkpoint_format="marlin"),
        r"format: marlin is not supported .*; use the",
    ),
    "mixed": ("gptq", _settings(dynamic={"+:.*": {"bits": 8}}), r"dynamic: \+:\.\* is not supported"),
    "gemv": ("awq", _settings(version="gemv"), r"version: gemv is not supported .*; use the original weights"),
    "e5m2": ("fp8, blocks", _settings(fmt="e5m2"), "fmt: e5m2 is not supported"),
    "nvfp4": ("packed", _settings(format="nvfp4-pack-quantized"), "format: nvfp4-pack-quantized is not supported"),
    "sparse": ("packed", _settings(sparsity_config={"format": "sparse-24-bitmask"}), "sparsity_config: given is not"),
    "rotated": ("packed", _settings(transform_config={"config_groups": {"u": {}}}), "transform_config: given is not"),
    "bitsandbytes": (
        "gptq",
        _settings(quant_method="bitsandbytes"),
        r"\(bitsandbytes\) is not supported; use",
    ),
    "no regex": ("packed", _settings(ignore=["re:["]), r"ignore: '\[' is not a regular expression"),
    "odd list": (
        "awq",
        _settings(modules_to_not_convert="lm_head"),
        "not_convert: expected a list of names",
    ),
    "odd size": ("awq", _settings(group_size=12), "group_size: expected -1 or a multiple of 8, found 12"),
}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A checkpoint in a format, made once."""
    made: dict[str, Path] = {}

    def of(form: str) -> Path:
        if form not in made:
            made[form] = tmp_path_factory.mktemp("published")
            publish(made[form], FORMATS[form], "LlamaForCausalLM", SMALL)
        return made[form]

    return of


@pytest.mark.parametrize("fault", BROKEN)
def test_what_is_broken_or_not_read_is_refused_by_name(
    fault: str, published: Callable[[str], Path], tmp_path: Path
) -> None:
    form, spoil, message = BROKEN[fault]
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((published(form) / name).read_bytes())
    spoil(tmp_path)
    with pytest.raises(ModelError, match=message):
        Decoder.from_folder(tmp_path, dtype=torch.float32)
