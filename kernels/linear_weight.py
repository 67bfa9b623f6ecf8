"""The weight of a linear map, in the layout of the kernel that multiplies with it.

::

    plain    [N, K]               row n makes output n                                 CUDA, and half types on the CPU
    packed   [ceil(N/16), K, 16]  panel p, step k: the weights of outputs 16p … 16p+15      fp32 on the CPU
    short    [ceil(N/16), K, 16]  the same in bf16, output 16p+i next to 16p+i+8            fp32 on the CPU
    mxfp4    [ceil(N/16), K/32, 272]         the same in four bits and scales (`cpu.mxfp4`)    fp32 on the CPU
    int8     [ceil(N/16), ceil(K/2), 16, 2]  the same, inputs in pairs; one scale per output   int8 on the CPU
    grouped  [ceil(N/16), 1, bytes]          four or eight bits and scales of groups (`cpu.grouped`)   fp32 on the CPU
             [N, bytes]                      the same for a GPU's kernel (`device_grouped`)          half types on CUDA

In a panel the 16 weights that meet input k lie together, step after step, so that the CPU kernel reads it from front
to back. Outputs beyond N, and an odd last input's neighbour, are zeros that are never used.

Nearly all checkpoints are published in bf16. As fp32 their weights are half zeros, and those are not stored: `short` is
chosen where it loses nothing, and widening gives back the same fp32 numbers. A shift and a mask do it for 16 weights,
which is why outputs stand in that order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from . import device_grouped
from .cpu import grouped as cpu_grouped
from .cpu.mxfp4 import lay_out, take_apart
from .cpu.panels import PANEL, cpu_grouped_rows, cpu_pack, cpu_rows
from .grouped import BITS, INPUT_LIMIT, Grouped, Groups, round_to_int4
from .mxfp4 import BLOCK, widen

Quantise = Literal["none", "int8", "int4"]
INT4_SIZE = 32  # inputs of a group that is rounded to four bits

_PACKINGS = {torch.float32: 0, torch.bfloat16: 1, torch.uint8: 2}


@dataclass(frozen=True, slots=True)
class LinearWeight:
    """`x -> x @ weight.T + bias`; made by `pack_linear`.

    Attributes:
        stored: the weight in one of the layouts above.
        bias: `[N]`, None if there is none; where packed always there, with zeros up to whole panels.
        num_outputs, num_inputs: N, K.
        has_bias: whether the bias is the model's.
        row_tile: rows of every single product, the last one filled up (0: all rows at once).
        scales: fp32, one per output up to whole panels, where the weight is int8: `weight = stored * scale`.
        groups: what the bytes mean where the weight is grouped.
        input_step, input_limit: as in `Grouped`, of an int8 weight on the CPU; None: inputs take up to 16 bits.
    """

    stored: Tensor
    bias: Tensor | None
    num_outputs: int
    num_inputs: int
    has_bias: bool
    row_tile: int = 0
    scales: Tensor | None = None
    groups: Groups | None = None
    input_step: float | None = None
    input_limit: float = INPUT_LIMIT

    @property
    def dtype(self) -> torch.dtype:
        """Of inputs and outputs."""
        if self.groups is not None:
            return self.groups.dtype
        return torch.float32 if self.is_packed or self.is_int8 else self.stored.dtype

    @property
    def is_int8(self) -> bool:
        return self.scales is not None

    @property
    def is_packed(self) -> bool:
        return self.stored.dim() == 3

    @property
    def is_short(self) -> bool:
        """Whether it is packed in bf16."""
        return self.is_packed and self.stored.dtype is torch.bfloat16

    @property
    def is_mxfp4(self) -> bool:
        """Whether it is packed in four bits a number."""
        return self.is_packed and self.stored.dtype is torch.uint8 and self.groups is None

    @property
    def packing(self) -> int:
        """What it is packed in, for the compiled loops.

        0: fp32 (and int8, which has its own), 1: bf16, 2: MXFP4; grouped ones count from `FIRST_KIND`, or from
        `FIRST_ROUNDING` where they round inputs, and have a flag for offsets and the size of their groups above.
        """
        if self.groups is not None:
            first = cpu_grouped.FIRST_ROUNDING if self.groups.rounds_inputs else cpu_grouped.FIRST_KIND
            # four bits count from 0 where there are offsets, and are the same kind
            kind = first + cpu_grouped.ELEMENTS.index("int4" if self.groups.element == "uint4" else self.groups.element)
            flag = cpu_grouped.HAS_OFFSETS if self.groups.has_offsets else 0
            return kind | flag | self.groups.size << cpu_grouped.KIND_BITS
        return _PACKINGS.get(self.stored.dtype, 0)

    @property
    def num_bytes(self) -> int:
        """Bytes of weight, scales and bias, without what fills the last panel up."""
        if self.groups is not None:
            return self._num_grouped_bytes(self.groups)
        if self.is_mxfp4:
            return self.num_outputs * (self.num_inputs // 2 + self.num_inputs // BLOCK + 4 * self.has_bias)
        if self.is_int8:
            return self.num_outputs * (self.num_inputs + 4 + 4 * self.has_bias)
        return self.num_outputs * (self.num_inputs * self.stored.element_size() + self.has_bias * self.dtype.itemsize)

    def _num_grouped_bytes(self, groups: Groups) -> int:
        num_bytes = self.num_outputs * (
            self.num_inputs * BITS[groups.element] // 8 + self.has_bias * self.dtype.itemsize
        )
        if groups.factors is None:
            factors = cpu_grouped.OFFSET_BYTES if groups.has_offsets else cpu_grouped.FACTOR_BYTES
            num_bytes += self.num_outputs * (self.num_inputs // groups.size) * factors
        return num_bytes + sum(p.nbytes for p in (groups.factors, groups.order) if p is not None)

    def matrix(self) -> Tensor:
        """`[N, K]`: a view where plain, a copy where packed, times the scales where int8; of a grouped one fp32."""
        if self.groups is not None:
            return self._taken_apart(self.groups).widen(torch.float32)[: self.num_outputs]
        if self.scales is not None:
            rows = self.stored.transpose(1, 2).flatten(2).flatten(0, 1).float() * self.scales[:, None]
            return rows[: self.num_outputs, : self.num_inputs].contiguous()
        if not self.is_packed:
            return self.stored
        if self.is_mxfp4:
            return widen(*take_apart(self.stored), torch.float32)[: self.num_outputs]
        panels = self.stored.transpose(1, 2)
        if self.is_short:
            panels = panels.reshape(-1, PANEL // 2, 2, self.num_inputs).transpose(1, 2).flatten(1, 2)
        return panels.flatten(0, 1)[: self.num_outputs].to(self.dtype).contiguous()

    def _taken_apart(self, groups: Groups) -> Grouped:
        if groups.factors is not None:
            apart = device_grouped.take_apart(self.stored, groups)
        else:
            form = (groups.element, groups.size, self.num_inputs)
            apart = cpu_grouped.take_apart(self.stored, *form, has_offsets=groups.has_offsets)
        return replace(apart, order=groups.order)

    def rows(self, indices: Tensor) -> Tensor:
        """Rows `[T]` of the matrix as `[T, K]`: an embedding look-up in the weight of the output projection."""
        groups = self.groups
        if groups is not None and self.is_packed and groups.element != "e4m3" and groups.order is None:
            form = (groups.size, BITS[groups.element], groups.has_offsets)
            return cpu_grouped_rows(self.stored, indices, self.num_inputs, *form)
        if groups is not None and groups.factors is not None and groups.order is None:
            return device_grouped.rows(self.stored, groups, indices)
        if groups is not None:
            return self.matrix()[indices].to(groups.dtype)
        if self.scales is not None:
            row = self.stored[indices // PANEL, :, indices % PANEL].flatten(1)[:, : self.num_inputs]
            return row.float() * self.scales[indices, None]
        if not self.is_packed:
            return F.embedding(indices, self.stored)
        if self.packing == 2:
            return self.matrix()[indices]
        return cpu_rows(self.stored, indices, self.num_inputs)


def input_range(num_inputs: int) -> int:
    """The largest integer that an input is rounded to, for int8 weights: inputs fit int16, their sums int32."""
    return min(32767, (2**31 - 1) // (127 * max(1, num_inputs)))


def pack_linear(
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
    row_tile: int = 0,
    quantise: Quantise = "none",
) -> LinearWeight:
    """Lays weight `[N, K]` and bias `[N]` out for their device and type; plain ones are kept, not copied.

    dtype: of the product's rows, None: the weight's. On the CPU a weight in bf16 is laid out for rows of fp32 without
    being widened. row_tile > 0 makes the bits of a row independent of the other rows where a library computes the
    product: it picks its kernel by the shape, so every product gets the same shape. Packed weights need none. quantise:
    "int8" rounds the weight to 255 levels, spread evenly over the range of each output's weights, "int4" to 16, over
    that of groups of `INT4_SIZE` inputs (fewer where they do not divide the inputs; int8 where these are no multiple of
    8); fp32 on the CPU only.
    """
    num_outputs, num_inputs = weight.shape
    shape = (num_outputs, num_inputs, bias is not None)
    dtype = dtype or weight.dtype
    if weight.device.type != "cpu" or dtype != torch.float32:
        if quantise != "none":
            raise ValueError(f"{quantise} weights are for fp32 on the CPU, not for {dtype} on {weight.device.type}")
        return LinearWeight(weight.to(dtype), bias, *shape, row_tile)
    if quantise != "none":
        weight = weight.float()
    if quantise == "int4" and num_inputs % 8 == 0:
        return pack_grouped(round_to_int4(weight, math.gcd(num_inputs, INT4_SIZE)), bias, rounds_inputs=True)
    missing = -num_outputs % PANEL
    filled = torch.zeros(num_outputs + missing)
    if bias is not None:
        filled[:num_outputs] = bias
    if quantise != "none":
        scales = F.pad(weight.abs().amax(1) / 127, (0, missing))
        levels = (weight / scales[:num_outputs, None].clamp(min=1e-38)).round().to(torch.int8)
        return LinearWeight(_in_pairs(levels), filled, *shape, scales=scales)
    return LinearWeight(cpu_pack(weight), filled, *shape)


def _in_pairs(levels: Tensor) -> Tensor:
    """int8 `[N, K]` in the layout of the product of whole numbers."""
    num_outputs, num_inputs = levels.shape
    levels = F.pad(levels, (0, num_inputs % 2, 0, -num_outputs % PANEL))
    return levels.view(-1, PANEL, -(-num_inputs // 2), 2).transpose(1, 2).contiguous()


def pack_mxfp4(blocks: Tensor, scales: Tensor, bias: Tensor | None = None) -> LinearWeight:
    """Lays MXFP4, blocks `[N, K / 32, 16]` and scales `[N, K / 32]`, out for fp32 on the CPU, exactly."""
    num_outputs, num_groups = scales.shape
    stored = lay_out(blocks, scales)
    filled = torch.zeros(len(stored) * PANEL)
    if bias is not None:
        filled[:num_outputs] = bias
    return LinearWeight(stored, filled, num_outputs, num_groups * BLOCK, bias is not None)


def pack_grouped(
    weight: Grouped,
    bias: Tensor | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    row_tile: int = 0,
    rounds_inputs: bool = False,
) -> LinearWeight:
    """Lays a weight of few bits out for its device, the very numbers, if `can_keep` says that its kernels read it.

    bias `[N]`; dtype: of the product's rows. row_tile: as in `pack_linear`. rounds_inputs: on the CPU inputs may be
    rounded to 16 bits, which is faster (`core/linear_rounded.cpp`), where the weight is one of whole numbers.
    """
    (num_outputs, num_inputs), has_bias = weight.numbers.shape, bias is not None
    if weight.numbers.device.type != "cpu":
        stored, groups = device_grouped.lay_out(weight, dtype)
        return LinearWeight(stored, bias, num_outputs, num_inputs, has_bias, row_tile, groups=groups)
    if weight.input_step is not None:
        missing = -num_outputs % PANEL
        scales = F.pad(weight.scales[:, 0].float(), (0, missing))
        filled = torch.zeros(num_outputs + missing) if bias is None else F.pad(bias.float(), (0, missing))
        shape = (num_outputs, num_inputs, has_bias)
        rounding = (weight.input_step, weight.input_limit)
        return LinearWeight(_in_pairs(weight.numbers), filled, *shape, 0, scales, None, *rounding)
    rounds_inputs = rounds_inputs and cpu_grouped.may_round(weight)
    if rounds_inputs:
        weight = weight.regrouped(cpu_grouped.size_for_rounding(weight.size))
    stored = cpu_grouped.lay_out(weight)
    filled = torch.zeros(len(stored) * PANEL)
    if bias is not None:
        filled[:num_outputs] = bias
    has_offsets = weight.offsets is not None
    groups = Groups(
        weight.element, weight.size, dtype, weight.order, rounds_inputs=rounds_inputs, has_offsets=has_offsets
    )
    return LinearWeight(stored, filled, num_outputs, num_inputs, has_bias, groups=groups)


def can_keep(weight: Grouped, dtype: torch.dtype) -> bool:
    """Whether the kernels of the weight's device can read it in its few bits, for rows of `dtype`."""
    if weight.numbers.device.type == "cpu":
        return dtype is torch.float32 and (weight.input_step is not None or cpu_grouped.fits(weight))
    return dtype.itemsize == 2 and device_grouped.fits(weight)


def tiled_linear(x: Tensor, weight: LinearWeight) -> Tensor:
    """`linear` in products of exactly `row_tile` rows; one product when there are no more rows than that."""
    num_rows, tile = x.shape[0], weight.row_tile
    x = F.pad(x, (0, 0, 0, -num_rows % tile))
    out = x.new_empty((x.shape[0], weight.num_outputs))
    for start in range(0, num_rows, tile):
        rows = slice(start, start + tile)
        if weight.bias is None:
            torch.mm(x[rows], weight.stored.T, out=out[rows])
        else:
            torch.addmm(weight.bias, x[rows], weight.stored.T, out=out[rows])
    return out[:num_rows]
