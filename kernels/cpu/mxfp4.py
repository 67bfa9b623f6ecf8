"""MXFP4 for the CPU's products: how a weight lies in memory.

::

    panel p, group g of 32 inputs    16 bytes: scales of outputs 16p … 16p+15
                                     16 · 16 bytes: for each pair of inputs a byte of each of these outputs, the first
                                     input in its low half

A processor reads it from front to back, 17 bytes for 32 weights. Widening is exact, so products have the bits
of those with the same numbers in fp32. Knows no tiles and no sums.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from ..mxfp4 import BLOCK
from .panels import PANEL


def lay_out(blocks: Tensor, scales: Tensor) -> Tensor:
    """blocks `[N, K / 32, 16]`, scales `[N, K / 32]` -> `[ceil(N / 16), K / 32, 272]`, all uint8."""
    missing, num_groups = -len(blocks) % PANEL, scales.shape[1]
    blocks = F.pad(blocks, (0, 0, 0, 0, 0, missing)).view(-1, PANEL, num_groups, BLOCK // 2)
    scales = F.pad(scales, (0, 0, 0, missing)).view(-1, PANEL, num_groups)
    return torch.cat([scales.transpose(1, 2), blocks.permute(0, 2, 3, 1).flatten(2)], 2).contiguous()


def take_apart(stored: Tensor) -> tuple[Tensor, Tensor]:
    """The inverse of `lay_out`, with the outputs that fill the last panel up."""
    num_groups = stored.shape[1]
    blocks = stored[..., PANEL:].view(-1, num_groups, BLOCK // 2, PANEL).permute(0, 3, 1, 2)
    return blocks.reshape(-1, num_groups, BLOCK // 2), stored[..., :PANEL].transpose(1, 2).reshape(-1, num_groups)
