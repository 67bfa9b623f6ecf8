"""MXFP4: 32 numbers of four bits each and one power of two for them (OCP Microscaling Formats v1.0, sections 5.3, 6.3).

::

    number    sign, two bits of exponent, one of mantissa      ± 0, 0.5, 1, 1.5, 2, 3, 4, 6
    block     32 neighbouring inputs of one output, two to a byte, the first of them in the low half
    scale     one byte s, 2 ** (s - 127); 255 is no number
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 32  # numbers that share a scale
MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def widen(blocks: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """blocks `[..., N, K / 32, 16]` uint8, scales `[..., N, K / 32]` uint8 -> `[..., N, K]` of dtype.

    Exact in fp32 and bf16 but where a number exceeds their range, which makes it infinite.
    """
    numbers, byte = torch.tensor([*MAGNITUDES, *(-x for x in MAGNITUDES)]), torch.arange(256)
    pairs = torch.stack([numbers[byte & 15], numbers[byte >> 4]], -1).to(blocks.device)
    factors = torch.ldexp(torch.ones(256), byte - 127)
    factors[255] = torch.nan
    wide = pairs[blocks.int()].flatten(-2) * factors.to(blocks.device)[scales.int()][..., None]
    return wide.flatten(-2).to(dtype)
