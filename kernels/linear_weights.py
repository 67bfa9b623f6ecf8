"""Several linear maps of one shape: one per head (absorbed projections, MLA, arXiv 2405.04434, 2.1.2) or per expert.

::

    packed   a `LinearWeight` per map      fp32 on the CPU: a row's bits do not depend on the other rows
    plain    [num_maps, N, K]              CUDA, and half types on the CPU
    mxfp4    [num_maps, N, K / 2] bytes    experts, for bf16 rows on CUDA: four bits a number, and scales (`mxfp4.py`)
    grouped  [num_maps, N, bytes]          experts, for half-type rows on CUDA, and factors (`device_grouped.py`)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from . import device_grouped
from .grouped import Grouped, Groups, stack
from .linear_weight import LinearWeight, Quantise, pack_grouped, pack_linear, pack_mxfp4
from .mxfp4 import BLOCK, widen


@dataclass(frozen=True, slots=True)
class LinearWeights:
    """`x[:, i] -> x[:, i] @ weight[i].T + bias[i]`; made by `pack_linears`.

    Attributes:
        packed: one weight per map; empty where `stored` is used.
        stored: `[num_maps, N, K]`, or bytes with two numbers each; None where packed.
        row_tile: as in `LinearWeight`.
        bias: `[num_maps, N]`, with `stored`; None if there is none, and where packed, since each map has its own there;
            heads (`linear_heads`) have none.
        scales: `[num_maps, N, K / 32]` uint8 where `stored` is MXFP4; else None.
        groups: what the bytes mean where `stored` is grouped, with the factors of all maps, `[., num_maps * N]`.
    """

    packed: tuple[LinearWeight, ...]
    stored: Tensor | None
    row_tile: int = 0
    bias: Tensor | None = None
    scales: Tensor | None = None
    groups: Groups | None = None

    @property
    def num_maps(self) -> int:
        return len(self.packed) if self.stored is None else len(self.stored)

    @property
    def num_bytes(self) -> int:
        """Bytes of weights and biases, without what fills panels up."""
        if self.stored is not None:
            factors = None if self.groups is None else self.groups.factors
            return sum(part.nbytes for part in (self.stored, self.bias, self.scales, factors) if part is not None)
        return sum(weight.num_bytes for weight in self.packed)

    def one(self, index: int) -> LinearWeight:
        """Map `index` alone; a view where plain, a copy in bf16 where MXFP4."""
        if self.stored is None:
            return self.packed[index]
        matrix, bias = self.stored[index], None if self.bias is None else self.bias[index]
        if self.groups is not None:
            return self._one_grouped(matrix, bias, self.groups, index)
        if self.scales is not None:
            matrix = widen(matrix.view(len(matrix), -1, BLOCK // 2), self.scales[index], torch.bfloat16)
        num_outputs, num_inputs = matrix.shape
        return LinearWeight(matrix, bias, num_outputs, num_inputs, bias is not None, self.row_tile)

    def _one_grouped(self, matrix: Tensor, bias: Tensor | None, groups: Groups, index: int) -> LinearWeight:
        assert groups.factors is not None
        num_outputs = len(matrix)
        factors = groups.factors[:, num_outputs * index : num_outputs * (index + 1)].contiguous()
        num_inputs = groups.size * len(factors) // (2 if groups.has_offsets else 1)
        own = replace(groups, factors=factors)
        return LinearWeight(matrix, bias, num_outputs, num_inputs, bias is not None, self.row_tile, groups=own)

    def matrices(self) -> Tensor:
        """`[num_maps, N, K]`: as stored where plain, else a copy."""
        if self.stored is not None and self.scales is None and self.groups is None:
            return self.stored
        if self.stored is not None:
            return torch.stack([self.one(index).matrix() for index in range(len(self.stored))])
        return torch.stack([weight.matrix() for weight in self.packed])


def pack_linears(
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    dtype: torch.dtype | None = None,
    row_tile: int = 0,
    quantise: Quantise = "none",
) -> LinearWeights:
    """Lays `[num_maps, N, K]` and `[num_maps, N]` out for their device and type; the rest as in `pack_linear`."""
    dtype = dtype or weight.dtype
    if weight.device.type == "cpu" and dtype == torch.float32:
        biases = [None] * len(weight) if bias is None else list(bias)
        maps = zip(weight, biases, strict=True)
        return LinearWeights(
            tuple(pack_linear(matrix.contiguous(), own, dtype=dtype, quantise=quantise) for matrix, own in maps), None
        )
    return LinearWeights((), weight.to(dtype).contiguous(), row_tile, bias)


def pack_grouped_each(
    weights: Sequence[Grouped],
    dtype: torch.dtype,
    row_tile: int = 0,
    *,
    bias: Tensor | None = None,
    rounds_inputs: bool = False,
) -> LinearWeights | None:
    """Weights of few bits, one per map, as `pack_grouped` lays them out; None: the device's kernel cannot read them.

    bias: `[num_maps, N]`.

    On a GPU all have one form and one `input_step`, and none an order of inputs: a row would have to be put in order
    for each map.
    """
    if weights[0].numbers.device.type == "cpu":
        biases = [None] * len(weights) if bias is None else list(bias)
        maps = zip(weights, biases, strict=True)
        packed = [pack_grouped(weight, own, dtype=dtype, rounds_inputs=rounds_inputs) for weight, own in maps]
        return LinearWeights(tuple(packed), None)
    whole = stack(weights)
    if whole is None or whole.order is not None:
        return None
    stored, groups = device_grouped.lay_out(whole, dtype)
    return LinearWeights((), stored.view(len(weights), -1, stored.shape[1]), row_tile, bias, groups=groups)


def keep_mxfp4(blocks: Tensor, scales: Tensor, bias: Tensor | None = None, *, row_tile: int = 0) -> LinearWeights:
    """MXFP4 as it was published: blocks `[num_maps, N, K / 32, 16]`, scales `[num_maps, N, K / 32]`, both uint8.

    For rows of bf16 on a GPU; no scale of 255.
    """
    return LinearWeights((), blocks.flatten(-2).contiguous(), row_tile, bias, scales.contiguous())


def pack_mxfp4s(blocks: Tensor, scales: Tensor, bias: Tensor | None = None) -> LinearWeights:
    """The same for rows of fp32 on the CPU; bias `[num_maps, N]` fp32."""
    biases = [None] * len(blocks) if bias is None else list(bias)
    return LinearWeights(tuple(map(pack_mxfp4, blocks, scales, biases)), None)


def batched_linear_heads(x: Tensor, weight: Tensor, row_tile: int) -> Tensor:
    """`[T, H, K]`, `[H, N, K]` -> `[T, H, N]` in one product, or in products of exactly `row_tile` rows."""
    heads, matrices = x.transpose(0, 1), weight.transpose(1, 2)
    if not row_tile:
        return torch.bmm(heads, matrices).transpose(0, 1)
    num_rows = x.shape[0]
    heads = F.pad(heads, (0, 0, 0, -num_rows % row_tile))
    tiles = [torch.bmm(tile, matrices) for tile in torch.split(heads, row_tile, dim=1)]
    return torch.cat(tiles, dim=1)[:, :num_rows].transpose(0, 1)
