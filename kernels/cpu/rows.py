"""Rows of a matrix that lies in panels, as an embedding is looked up in the weight of the output projection.

A row's numbers lie 16 apart, so that a cache line holds one of them; looking a few rows up is bound by that. Knows how
panels are laid out (`linear_weight`), and nothing of what the rows mean.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..._core import kernels as core
from .mxfp4 import PANEL


def cpu_rows(stored: Tensor, indices: Tensor, num_inputs: int) -> Tensor:
    """Rows `[T]` int64 of panels `[N / 16, K, 16]`, fp32 or bf16, as `[T, K]` fp32.

    Raises:
        IndexError: a row that there is not.
    """
    indices = indices.to(torch.int64).contiguous()
    out = torch.empty(len(indices), num_inputs)
    sizes = (len(stored), indices.data_ptr(), len(indices), num_inputs)
    if not core.unpack_rows(stored.data_ptr(), stored.itemsize, *sizes, out.data_ptr()):
        raise IndexError(f"a row of {indices.tolist()} is not among {len(stored) * PANEL}")
    return out


def cpu_grouped_rows(
    stored: Tensor, indices: Tensor, num_inputs: int, size: int, bits: int, has_offsets: bool
) -> Tensor:
    """Rows `[T]` int64 of panels of whole numbers in groups of `size` inputs (`cpu.grouped`) as `[T, K]` fp32.

    Raises:
        IndexError: a row that there is not.
    """
    indices = indices.to(torch.int64).contiguous()
    out = torch.empty(len(indices), num_inputs)
    sizes = (len(stored), indices.data_ptr(), len(indices), num_inputs)
    if not core.unpack_grouped_rows(stored.data_ptr(), *sizes, out.data_ptr(), size, bits, has_offsets):
        raise IndexError(f"a row of {indices.tolist()} is not among {len(stored) * PANEL}")
    return out
