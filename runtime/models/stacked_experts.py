"""Experts whose weights are single tensors for all of them, as gpt-oss publishes them, plain or in 4 bits a number.

::

    gate_up_proj        [E, hidden, 2 · inner]          gate_up_proj_blocks   [E, 2 · inner, hidden / 32, 16]   bytes
    down_proj           [E, inner, hidden]              gate_up_proj_scales   [E, 2 · inner, hidden / 32]       bytes
    gate_up_proj_bias   [E, 2 · inner]                  … and down_proj_…, and the same biases
    down_proj_bias      [E, hidden]

Outputs of gate and up alternate there: gate 0, up 0, gate 1, up 1 …; here all of the gate's come first, as everywhere,
and as Qwen3-VL's come in the file, whose matrices may stand the other way round (as transformers saves them).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import ModelError
from ...kernels import LinearWeights
from ...kernels.mxfp4 import BLOCK, widen
from .experts_config import ExpertsConfig
from .part import Axis, Part
from .reader import Reader


def read_stacked(reader: Reader, base: str, experts: ExpertsConfig) -> tuple[LinearWeights, LinearWeights]:
    """Gate and up, and down, of the layer below `base` (`model.layers.<i>.`).

    Raises:
        ModelError: a tensor is missing or odd.
    """
    hidden, inner, base = reader.config.hidden_size, experts.inner_size, f"{base}{experts.options.names.stacked}."
    alternating = torch.arange(2 * inner, device=reader.device).view(inner, 2).T.flatten()
    order = alternating if experts.options.alternates else None
    return (
        _read(reader, f"{base}gate_up_proj", experts, 2 * inner, hidden, order),
        _read(reader, f"{base}down_proj", experts, hidden, inner, None),
    )


def _read(
    reader: Reader, name: str, experts: ExpertsConfig, num_outputs: int, num_inputs: int, order: Tensor | None
) -> LinearWeights:
    """One of the two, its outputs in `order`."""
    num_experts, bias = reader.cut.experts, None
    if experts.options.linear_biases:
        bias = _ordered(reader.tensor([f"{name}_bias"], [num_experts], [num_outputs]), order)
    if not experts.is_mxfp4:
        if order is None and reader.has_shape(name, [num_experts.size, num_outputs, num_inputs]):
            return reader.packing.each(reader.tensor([name], [num_experts], [num_outputs, num_inputs]), bias)
        weight = reader.tensor([name], [num_experts], [num_inputs, num_outputs]).transpose(1, 2)
        return reader.packing.each(_ordered(weight, order), bias)
    blocks, scales = (_ordered(part, order) for part in _read_mxfp4(reader, name, num_experts, num_outputs, num_inputs))
    if reader.packing.keeps_mxfp4:
        return reader.packing.each_mxfp4(blocks, scales, bias)
    wide = torch.empty((num_experts.count, num_outputs, num_inputs), dtype=reader.dtype, device=reader.device)
    for expert in range(num_experts.count):  # one by one: on the way each number takes more than it will
        wide[expert] = widen(blocks[expert], scales[expert], reader.dtype)
    return reader.packing.each(wide, bias)


def _ordered(stack: Tensor, order: Tensor | None) -> Tensor:
    return stack if order is None else stack[:, order]


def _read_mxfp4(
    reader: Reader, name: str, num_experts: Part, num_outputs: int, num_inputs: int
) -> tuple[Tensor, Tensor]:
    """Blocks and scales, as they are published."""
    if num_inputs % BLOCK:
        raise ModelError(
            f"{reader.checkpoint.place(name)}: {num_inputs} inputs are no multiple of {BLOCK}, as MXFP4 has them"
        )
    shape: list[Axis] = [num_experts, num_outputs, num_inputs // BLOCK]
    blocks = reader.checkpoint.read_bytes(f"{name}_blocks", [*shape, BLOCK // 2], device=reader.device)
    scales = reader.checkpoint.read_bytes(f"{name}_scales", shape, device=reader.device)
    if (scales == 255).any():
        raise ModelError(
            f"{reader.checkpoint.place(f'{name}_scales')}: has a scale of 255, which is no number; download it again"
        )
    return blocks, scales
