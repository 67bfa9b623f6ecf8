"""A weight's numbers go into panels: what stands 16 rows apart comes to stand side by side.

::

    row 0   a0 a1 a2 …          fp32    a0 b0 … p0 │ a1 b1 … p1 │ …       16 numbers to an input
    row 1   b0 b1 b2 …    →     bf16    a0 i0 b0 j0 … │ …                  output i beside output i + 8, in one word
      …                                                                    (rows a to p are 0 to 15)
    row 15  p0 p1 p2 …

Loading reads and writes every weight of a model this way, so it is one pass that moves a cache line of 16 rows at a
time, and finds on the way whether bf16 holds the numbers. Knows nothing of files, models and products.

Cost: 0.1 s for the 135 million weights of SmolLM on one core, which is what the memory takes.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from .compiled import compiled
from .cpu_mxfp4 import PANEL


def cpu_pack(weight: Tensor) -> Tensor:
    """fp32 or bf16 `[N, K]` as panels `[ceil(N / 16), K, 16]`, bf16 if that loses no bit; rows beyond N are zeros."""
    num_outputs, num_inputs = weight.shape
    shape = (-(-num_outputs // PANEL), num_inputs, PANEL)
    is_short = weight.dtype is torch.bfloat16
    bits = weight.contiguous().view(torch.uint16 if is_short else torch.uint32).numpy()
    short = torch.empty(shape, dtype=torch.bfloat16)
    if pack_short(bits, short.view(torch.uint32).numpy()):
        return short
    wide = torch.empty(shape)
    pack_wide(bits, wide.view(torch.uint32).numpy())
    return wide


@compiled()
def pack_short(bits, panels):  # type: ignore[no-untyped-def]  # numba infers
    """Numbers `[N, K]` as words `[N / 16, K, 8]`; False, and nothing more, at one that bf16 does not hold."""
    num_outputs, num_inputs = bits.shape
    is_short = bits.itemsize == 2
    half, low, high = np.uint32(16), np.uint32(0xFFFF), np.uint32(0xFFFF0000)
    for p in range(len(panels)):
        for start in range(0, num_inputs, 16):
            lost = np.uint32(0)
            for i in range(8):
                first, second = 16 * p + i, 16 * p + i + 8
                for k in range(start, min(start + 16, num_inputs)):
                    a = np.uint32(bits[first, k]) if first < num_outputs else np.uint32(0)
                    b = np.uint32(bits[second, k]) if second < num_outputs else np.uint32(0)
                    if is_short:
                        panels[p, k, i] = a | (b << half)
                    else:
                        lost |= (a | b) & low
                        panels[p, k, i] = (a >> half) | (b & high)
            if lost != 0:
                return False
    return True


@compiled()
def pack_wide(bits, panels):  # type: ignore[no-untyped-def]  # numba infers
    """Words `[N, K]` as words `[N / 16, K, 16]`."""
    num_outputs, num_inputs = bits.shape
    for p in range(len(panels)):
        for start in range(0, num_inputs, 16):
            for i in range(16):
                row = 16 * p + i
                for k in range(start, min(start + 16, num_inputs)):
                    panels[p, k, i] = bits[row, k] if row < num_outputs else np.uint32(0)
