"""Weights in panels of 16 rows, whose numbers for one input lie side by side (`core/panels_of_weights.h` shows it).

Loading packs every weight of a model this way, so it is one pass, which finds on the way whether bf16 holds the
numbers. Cost: 0.1 s for the 135 million weights of SmolLM on one core, which is what the memory takes. Rows are looked
up as an embedding is, in the weight of the output projection: a row's numbers lie 16 apart, a cache line holds one of
them, and a few rows are bound by that. Knows nothing of files, models and products.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ..._core import kernels as core

PANEL = 16


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


def cpu_rows(stored: Tensor, indices: Tensor, num_inputs: int) -> Tensor:
    """Rows `[T]` int64 of panels `[N / 16, K, 16]`, fp32 or bf16, as `[T, K]` fp32.

    Raises:
        IndexError: a row that there is not.
    """
    return _rows(partial(core.unpack_rows, stored.data_ptr(), stored.itemsize), len(stored), indices, num_inputs)


def cpu_grouped_rows(
    stored: Tensor, indices: Tensor, num_inputs: int, size: int, bits: int, has_offsets: bool
) -> Tensor:
    """The same of panels of whole numbers in groups of `size` inputs (`cpu.grouped`)."""

    def unpack(panels: int, rows: int, count: int, depth: int, out: int) -> bool:
        return core.unpack_grouped_rows(stored.data_ptr(), panels, rows, count, depth, out, size, bits, has_offsets)

    return _rows(unpack, len(stored), indices, num_inputs)


def _rows(unpack: Callable[..., bool], num_panels: int, indices: Tensor, num_inputs: int) -> Tensor:
    indices = indices.to(torch.int64).contiguous()
    out = torch.empty(len(indices), num_inputs)
    if not unpack(num_panels, indices.data_ptr(), len(indices), num_inputs, out.data_ptr()):
        raise IndexError(f"a row of {indices.tolist()} is not among {num_panels * PANEL}")
    return out
