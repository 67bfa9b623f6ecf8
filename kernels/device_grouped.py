"""Grouped weights for a GPU's products: how one lies in memory. Knows tensors alone, no Triton.

::

    bytes     [N, K / 2] (int4) or [N, K]     an output's inputs one after the other
    int4      in spans of `span_of(size)` inputs: byte j has input j in its low half and input j + span / 2 in its
              high half, so that either half of a loaded tile meets inputs that are neighbours
    scales    [K / size, N]                   of a type of 16 bits if they were published in one, else fp32
    zeros     [K / size, N] int8, or none

Factors of a group lie output by output, so that a program copies those of its tile at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .grouped import Grouped, Groups
from .kv_format import FP8

LEAST_SPAN, MOST_SPAN = 32, 128  # inputs of a step of the kernel


def span_of(size: int) -> int:
    """Inputs of a step: of one group, a power of two."""
    return min(MOST_SPAN, size & -size)


def fits(weight: Grouped) -> bool:
    """Whether the kernel can read it: groups of whole steps."""
    return span_of(weight.size) >= LEAST_SPAN


def lay_out(weight: Grouped, dtype: torch.dtype) -> tuple[Tensor, Groups]:
    """The bytes, and what they mean beside rows of dtype."""
    numbers = weight.numbers.view(torch.uint8)
    if weight.element == "int4":
        halves = ((numbers + 8) & 15).view(len(numbers), -1, 2, span_of(weight.size) // 2)
        numbers = (halves[:, :, 0] | halves[:, :, 1] << 4).flatten(1)
    scales = weight.scales if weight.scales.dtype.itemsize == 2 else weight.scales.float()
    zeros = None if weight.zeros is None else weight.zeros.T.contiguous()
    groups = Groups(weight.element, weight.size, dtype, weight.order, scales.T.contiguous(), zeros)
    return numbers.contiguous(), groups


def take_apart(stored: Tensor, groups: Groups) -> Grouped:
    """The inverse of `lay_out`, without the order."""
    assert groups.scales is not None
    numbers = stored
    if groups.element == "int4":
        spans = stored.view(len(stored), -1, span_of(groups.size) // 2)
        numbers = torch.stack([spans & 15, spans >> 4], 2).flatten(1) - 8
    kind = FP8 if groups.element == "e4m3" else torch.int8
    zeros = None if groups.zeros is None else groups.zeros.T
    return Grouped(groups.element, numbers.view(torch.int8).view(kind), groups.scales.T, zeros)
