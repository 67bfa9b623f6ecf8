"""Weights of few bits with a scale for every group of inputs: the one form of GPTQ, AWQ, compressed-tensors, fp8, GGUF.

::

    weight[n, order[k]] = (number[n, k] - zero[n, k // size]) * scale[n, k // size]
                       or  number[n, k] * scale[n, k // size] + offset[n, k // size]

    int4     whole numbers -8 … 7         zeros too
    int8     whole numbers -128 … 127     zeros too, or offsets
    e4m3     floats of one byte, no NaN   neither
    uint4    whole numbers 0 … 15         offsets

Published formats count from 0 and pack in various orders; a checkpoint is converted into this form when it is read
(`runtime/models/published.py`). A block of fp8 shares its scale over several outputs, and here each of them has it; a
scale for a whole output, or a whole tensor, is a group as wide as the inputs. `order` is there where the inputs of a
group do not lie side by side (GPTQ with `desc_act`); then numbers are in the order of the groups.

Where int8 weights have a scale for each output, a format may ask for inputs in int8 as well (`input_step`).

Widening is what the formats define: exact in float64, rounded once in fp32 (with scales of 16 bits exact there too, but
that the sum with an offset is rounded). Offsets are fp32, for GGUF's are products of 16 bits and 6.
Knows no layouts: those of the kernels are in `cpu.grouped` and `device_grouped`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

Element = Literal["int4", "int8", "e4m3", "uint4"]
INPUT_LIMIT = 127.5  # steps in the largest input of a row, as compressed-tensors counts them
BITS: dict[Element, int] = {"int4": 4, "int8": 8, "e4m3": 8, "uint4": 4}


@dataclass(frozen=True, slots=True)
class Grouped:
    """A weight `[N, K]`, not laid out yet.

    Attributes:
        numbers: `[N, K]` int8, of e4m3 float8_e4m3fn.
        scales: `[N, K / size]`, a float type.
        zeros: `[N, K / size]` int8; None: all are 0.
        order: `[K]` int64, which input each column meets; None: its own.
        offsets: `[N, K / size]` fp32, and no zeros then; None: all are 0.
        input_step: of inputs, which are rounded to -128 … 127 steps; 0: a row's own, `largest |x| / input_limit`;
            None: they are not rounded.
        input_limit: `INPUT_LIMIT`, or 127 (BitNet).
    """

    element: Element
    numbers: Tensor
    scales: Tensor
    zeros: Tensor | None = None
    order: Tensor | None = None
    offsets: Tensor | None = None
    input_step: float | None = None
    input_limit: float = INPUT_LIMIT

    @property
    def size(self) -> int:
        """Inputs of a group."""
        return self.numbers.shape[1] // self.scales.shape[1]

    def __getitem__(self, rows: Tensor | slice) -> Grouped:
        """These outputs of it."""
        zeros, offsets = (None if part is None else part[rows] for part in (self.zeros, self.offsets))
        numbers = self.numbers.view(torch.int8)[rows].view(self.numbers.dtype)
        return replace(self, numbers=numbers, scales=self.scales[rows], zeros=zeros, offsets=offsets)

    def columns(self, begin: int, end: int) -> Grouped:
        """These inputs of one without an order; in smaller groups where a group does not end at either end."""
        assert self.order is None
        size = math.gcd(self.size, begin, end)
        fine, groups = self.regrouped(size), slice(begin // size, end // size)
        zeros, offsets = (None if part is None else part[:, groups] for part in (fine.zeros, fine.offsets))
        numbers = self.numbers.view(torch.int8)[:, begin:end].contiguous().view(self.numbers.dtype)
        return replace(fine, numbers=numbers, scales=fine.scales[:, groups], zeros=zeros, offsets=offsets)

    def widen(self, dtype: torch.dtype) -> Tensor:
        """`[N, K]` of dtype, inputs in their own order, computed in fp32."""
        return self._widen(torch.float32).to(dtype)

    def exact(self) -> Tensor:
        """`[N, K]` float64."""
        return self._widen(torch.float64)

    def _widen(self, dtype: torch.dtype) -> Tensor:
        numbers = self.numbers.to(dtype).reshape(len(self.scales), -1, self.size)
        if self.zeros is not None:
            numbers -= self.zeros[..., None]
        numbers *= self.scales.to(dtype)[..., None]
        if self.offsets is not None:
            numbers += self.offsets.to(dtype)[..., None]
        matrix = numbers.flatten(1)
        if self.order is None:
            return matrix
        return torch.empty_like(matrix).index_copy_(1, self.order, matrix)

    def regrouped(self, size: int) -> Grouped:
        """The same weight in groups of `size`, which divides this one's."""
        times = self.size // size
        if times == 1:
            return self
        zeros, offsets = (
            None if part is None else part.repeat_interleave(times, 1) for part in (self.zeros, self.offsets)
        )
        return replace(self, scales=self.scales.repeat_interleave(times, 1), zeros=zeros, offsets=offsets)


@dataclass(frozen=True, slots=True)
class Groups:
    """What a laid out weight's bytes mean.

    Attributes:
        size: inputs of a group.
        dtype: of inputs and outputs.
        order: as in `Grouped`; the product takes its inputs in this order.
        rounds_inputs: the product rounds its inputs to 16 bits (`core/linear_rounded.cpp`).
        has_offsets: each group has an offset and no zero.
        input_step, input_limit: as in `Grouped`.
        factors: scales and zeros on a GPU (`device_grouped`); None on the CPU, where they are among the bytes.
    """

    element: Element
    size: int
    dtype: torch.dtype
    order: Tensor | None = None
    factors: Tensor | None = None
    rounds_inputs: bool = False
    has_offsets: bool = False
    input_step: float | None = None
    input_limit: float = INPUT_LIMIT


def stack(parts: Sequence[Grouped]) -> Grouped | None:
    """The rows of all parts below each other; None where they have not the same form and the same inputs in order.

    If some have four bits and some eight, all become eight; all get the smallest group size.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    if any((part.input_step, part.input_limit) != (first.input_step, first.input_limit) for part in parts):
        return None
    element = common_element([part.element for part in parts])
    if element is None or any(part.numbers.shape[1] != first.numbers.shape[1] for part in parts):
        return None
    if any((part.order is None) != (first.order is None) for part in parts):
        return None
    if first.order is not None and any(
        part.order is None or not torch.equal(part.order, first.order) for part in parts
    ):
        return None
    size = math.gcd(*(part.size for part in parts))
    parts = [part.regrouped(size) for part in parts]
    zeros, offsets = None, None
    if any(part.zeros is not None for part in parts):
        zeros = torch.cat([_filled(part.zeros, part.scales, torch.int8) for part in parts])
    if any(part.offsets is not None for part in parts):
        if zeros is not None:
            return None
        offsets = torch.cat([_filled(part.offsets, part.scales, torch.float32) for part in parts])
    numbers = torch.cat([part.numbers.view(torch.int8) for part in parts]).view(first.numbers.dtype)
    scales = torch.cat([part.scales for part in parts])
    return replace(first, element=element, numbers=numbers, scales=scales, zeros=zeros, offsets=offsets)


def common_element(elements: Sequence[Element]) -> Element | None:
    """What parts of these elements are as one; None: they cannot be."""
    found = set(elements)
    if len(found) == 1:
        return elements[0]
    return None if "e4m3" in found else "int8"


def _filled(part: Tensor | None, scales: Tensor, dtype: torch.dtype) -> Tensor:
    return scales.new_zeros(scales.shape, dtype=dtype) if part is None else part


def round_to_int4(weight: Tensor, size: int) -> Grouped:
    """Rounds `[N, K]` to 16 levels, spread evenly over each group of `size` inputs, none of them asymmetric.

    The end of the range that is farther from 0 becomes -8, which no other level mirrors, as in llama.cpp's Q4_0: it
    makes the steps a fifteenth smaller than -7 … 7 would be.
    """
    groups = weight.float().view(len(weight), -1, size)
    place = groups.abs().argmax(-1, keepdim=True)
    scales = groups.gather(-1, place) / -8
    factors = torch.where(scales == 0, 0, 1 / scales)
    numbers = (groups * factors).round().clamp(-8, 7).to(torch.int8)
    return Grouped("int4", numbers.flatten(1), scales.squeeze(-1))
