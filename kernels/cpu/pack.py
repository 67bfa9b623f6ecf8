"""Packs the rows of a weight into panels of 16 rows, whose numbers for one input lie side by side.

`core/panels_of_weights.h` shows it. Loading reads and writes every weight of a model this way, so it is one pass, which
finds on the way whether bf16 holds the numbers. Knows nothing of files, models and products. Cost: 0.1 s for the 135
million weights of SmolLM on one core, which is what the memory takes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..._core import kernels as core
from .mxfp4 import PANEL


def cpu_pack(weight: Tensor) -> Tensor:
    """fp32 or bf16 `[N, K]` as panels `[ceil(N / 16), K, 16]`, bf16 if that loses no bit; rows beyond N are zeros."""
    weight = weight.contiguous()
    num_outputs, num_inputs = weight.shape
    shape = (-(-num_outputs // PANEL), num_inputs, PANEL)
    short = torch.empty(shape, dtype=torch.bfloat16)
    if core.pack_short(weight.data_ptr(), weight.itemsize, num_outputs, num_inputs, short.data_ptr()):
        return short
    wide = torch.empty(shape)
    core.pack_wide(weight.data_ptr(), num_outputs, num_inputs, wide.data_ptr())
    return wide
