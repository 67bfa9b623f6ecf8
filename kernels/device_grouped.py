"""Grouped weights for the matrix products of a GPU: their layout in memory. Knows tensors only, no Triton.

::

    bytes     [N, K / 2] (int4, uint4) or [N, K]     an output's inputs one after the other
    int4      in spans of `span_of(size)` inputs: byte j has input j in its low half and input j + span / 2 in its
              high half, so that either half of a loaded tile meets inputs that are neighbours
    factors   [K / size, N] words: the scale as fp32, whose last eight bits are the zero where there are zeros;
              as many rows again with the offsets where there are offsets

Factors of a group lie output by output, and are words of four bytes, so that a program copies those of its tile ahead.
A published scale of 16 bits needs no more than the first 24 of an fp32.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from .grouped import BITS, Grouped, Groups
from .kv_format import FP8

LEAST_SPAN, MOST_SPAN = 32, 128  # inputs of a step of the kernel


def span_of(size: int) -> int:
    """Inputs of a step: of one group, a power of two."""
    return min(MOST_SPAN, size & -size)


def fits(weight: Grouped) -> bool:
    """Whether the kernel can read it: groups of whole steps; with zeros, scales whose last 8 bits are free."""
    if span_of(weight.size) < LEAST_SPAN:
        return False
    return weight.zeros is None or bool((weight.scales.float().view(torch.int32) & 0xFF == 0).all())


def lay_out(weight: Grouped, dtype: torch.dtype) -> tuple[Tensor, Groups]:
    """The bytes and their meaning, for products with rows of `dtype`."""
    numbers = weight.numbers.view(torch.uint8)
    if BITS[weight.element] == 4:
        counted = (numbers + 8) & 15 if weight.element == "int4" else numbers
        halves = counted.view(len(numbers), -1, 2, span_of(weight.size) // 2)
        numbers = (halves[:, :, 0] | halves[:, :, 1] << 4).flatten(1)
    factors = weight.scales.float()
    if weight.zeros is not None:
        factors = factors.view(torch.int32) | weight.zeros.int() & 0xFF
    if weight.offsets is not None:
        factors = torch.cat([factors, weight.offsets], 1)
    has_offsets = weight.offsets is not None
    groups = Groups(
        weight.element,
        weight.size,
        dtype,
        weight.order,
        factors.T.contiguous(),
        has_offsets=has_offsets,
        input_step=weight.input_step,
        input_limit=weight.input_limit,
    )
    return numbers.contiguous(), groups


def take_apart(stored: Tensor, groups: Groups) -> Grouped:
    """The inverse of `lay_out`, without the order."""
    assert groups.factors is not None
    numbers, scales, zeros, offsets = stored, groups.factors.T, None, None
    if BITS[groups.element] == 4:
        spans = stored.view(len(stored), -1, span_of(groups.size) // 2)
        numbers = torch.stack([spans & 15, spans >> 4], 2).flatten(1) - (8 if groups.element == "int4" else 0)
    if groups.has_offsets:
        scales, offsets = scales.chunk(2, 1)
    if scales.dtype is torch.int32:
        zeros = scales.to(torch.int8)
        scales = (scales & -256).contiguous().view(torch.float32)
    kind = FP8 if groups.element == "e4m3" else torch.int8
    return Grouped(groups.element, numbers.view(torch.int8).view(kind), scales, zeros, offsets=offsets)


def rows(stored: Tensor, groups: Groups, indices: Tensor) -> Tensor:
    """Rows `[T]` int64 of the matrix as `[T, K]`, of the groups' dtype, inputs in the order of the groups."""
    assert groups.factors is not None
    own = replace(groups, factors=groups.factors[:, indices])
    return take_apart(stored[indices], own).widen(groups.dtype)
