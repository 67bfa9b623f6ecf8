"""Rows of a matrix that lies in panels, as an embedding is looked up in the weight of the output projection.

A row's numbers lie 16 apart, so that a cache line holds one of them; looking a few rows up is bound by that, and by the
call, which is one. Knows how panels are laid out (`linear_weight`), and nothing of what the rows mean.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .compiled import compiled
from .cpu_mxfp4 import PANEL


def cpu_rows(stored: Tensor, indices: Tensor, num_inputs: int) -> Tensor:
    """Rows `[T]` int64 of panels `[N / 16, K, 16]`, fp32 or bf16, as `[T, K]` fp32.

    Raises:
        IndexError: a row that there is not.
    """
    out = torch.empty(len(indices), num_inputs)
    is_short = stored.dtype is torch.bfloat16
    numbers = stored.view(torch.int16).numpy() if is_short else stored.numpy()
    if not unpack_rows(numbers, indices.numpy(), out.view(torch.int32).numpy() if is_short else out.numpy()):
        raise IndexError(f"a row of {indices.tolist()} is not among {len(stored) * PANEL}")
    return out


def cpu_grouped_rows(
    stored: Tensor, indices: Tensor, num_inputs: int, size: int, bits: int, has_offsets: bool
) -> Tensor:
    """Rows `[T]` int64 of panels of whole numbers in groups of `size` inputs (`cpu_grouped`) as `[T, K]` fp32.

    Raises:
        IndexError: a row that there is not.
    """
    out = torch.empty(len(indices), num_inputs)
    if not unpack_grouped_rows(stored.flatten(1).numpy(), indices.numpy(), out.numpy(), size, bits, has_offsets):
        raise IndexError(f"a row of {indices.tolist()} is not among {len(stored) * PANEL}")
    return out


@compiled()
def unpack_grouped_rows(panels, indices, out, size, bits, has_offsets):  # type: ignore[no-untyped-def]  # numba infers
    """False, and nothing more, at the first row that there is not."""
    group_bytes, num_groups = 64 + 2 * bits * size, out.shape[1] // size
    middle = 8 if bits == 4 and not has_offsets else 0
    for t in range(len(indices)):
        row = indices[t]
        if row < 0 or row >= 16 * len(panels):
            return False
        panel, lane = panels[row // 16], row % 16
        for group in range(num_groups):
            begin = group * group_bytes
            scale = panel[begin + 4 * lane : begin + 4 * lane + 4].view(np.float32)[0]
            behind = num_groups * group_bytes + (64 * group + 4 * lane if has_offsets else 16 * group + lane)
            zero, offset = np.float32(0.0), np.float32(0.0)
            if has_offsets:
                offset = panel[behind : behind + 4].view(np.float32)[0]
            else:
                zero = np.float32(np.int8(panel[behind]) + middle)
            for k in range(size):
                if bits == 4:
                    byte = panel[begin + 64 + k // 8 * 64 + 4 * lane + k % 8 // 2]
                    number = np.float32(byte & 15 if k % 2 == 0 else byte >> 4)
                else:
                    number = np.float32(np.int8(panel[begin + 64 + k // 4 * 64 + 4 * lane + k % 4]))
                out[t, group * size + k] = (number - zero) * scale + offset
    return True


@compiled()
def unpack_rows(panels, indices, out):  # type: ignore[no-untyped-def]  # numba infers
    """False, and nothing more, at the first row that there is not. bf16 comes and goes as bits."""
    is_short = panels.itemsize == 2
    for t in range(len(indices)):
        row = indices[t]
        if row < 0 or row >= 16 * len(panels):
            return False
        panel, lane = panels[row // 16], row % 16
        if is_short:  # output 16p + i lies beside 16p + i + 8
            lane = lane % 8 * 2 + lane // 8
            for k in range(out.shape[1]):
                out[t, k] = np.int32(panel[k, lane]) << 16
        else:
            for k in range(out.shape[1]):
                out[t, k] = panel[k, lane]
    return True
