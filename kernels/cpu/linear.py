"""Matrix products on the CPU whose bits do not depend on the number of rows, for every packing of the weight.

Every output is one chain in a fixed order: of fused multiply-adds from its bias through inputs 0, 1, 2 …
(`core/linear.cpp`); of whole numbers where inputs are rounded, for int8 weights (`core/linear_int8.cpp`) and for groups
of four or eight bits (`core/linear_rounded.cpp`). The files say which, and how the work is cut.

Cost, measured on an AMD Zen 3 core that reads 20 GB/s and multiplies 100 GFLOP/s: the products of SmolLM-135M's shape
(135 million weights) take 24, 35 and 200 ms for 1, 8 and 64 rows, and 13, 29 and 200 ms if bf16 holds the weights.
Weights are packed once (`linear_weight`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..._core import kernels as core
from ..linear_weight import LinearWeight
from .panels import PANEL
from .threads import ONE_TEAM, num_cpu_threads

_WIDENED, _INT8, _ROUNDED = range(3)


def form_of(weight: LinearWeight) -> int:
    """Which loop multiplies with it."""
    if weight.scales is not None:
        return _INT8
    return _ROUNDED if weight.groups is not None and weight.groups.rounds_inputs else _WIDENED


def cpu_linear(x: Tensor, weight: LinearWeight) -> Tensor:
    """`linear` for fp32 x `[T, K]` (dense rows, any stride between them) and a weight in panels."""
    num_rows, depth = x.shape
    stored, bias, scales = weight.stored, weight.bias, weight.scales
    assert bias is not None
    num_panels = stored.shape[0]
    out = torch.empty((num_rows, num_panels * PANEL))
    core.multiply(
        ONE_TEAM,
        num_cpu_threads(),
        form_of(weight),
        x.data_ptr(),
        x.stride(0),
        stored.data_ptr(),
        weight.packing,
        bias.data_ptr(),
        0 if scales is None else scales.data_ptr(),
        out.data_ptr(),
        num_rows,
        depth,
        num_panels,
        -1.0 if weight.input_step is None else weight.input_step,
        weight.input_limit,
    )
    return out if num_panels * PANEL == weight.num_outputs else out[:, : weight.num_outputs]
