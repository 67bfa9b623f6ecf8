"""Several linear maps of one shape: one per head (absorbed projections, MLA, arXiv 2405.04434, 2.1.2) or per expert.

::

    packed   a `LinearWeight` per map      fp32 on the CPU: a row's bits do not depend on the other rows
    plain    [num_maps, N, K]              CUDA, and half types on the CPU
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from .linear_weight import LinearWeight, pack_linear


@dataclass(frozen=True, slots=True)
class LinearWeights:
    """`x[:, i] -> x[:, i] @ weight[i].T + bias[i]`; made by `pack_linears`.

    Attributes:
        packed: one weight per map; empty where `stored` is used.
        stored: `[num_maps, N, K]`; None where packed.
        row_tile: as in `LinearWeight`.
        bias: `[num_maps, N]` beside `stored`; None if there is none, and where packed, for there each map has its own;
            heads (`linear_heads`) have none.
    """

    packed: tuple[LinearWeight, ...]
    stored: Tensor | None
    row_tile: int = 0
    bias: Tensor | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of weights and biases, without what fills panels up."""
        if self.stored is not None:
            return self.stored.nbytes + (0 if self.bias is None else self.bias.nbytes)
        return sum(weight.num_bytes for weight in self.packed)

    def one(self, index: int) -> LinearWeight:
        """Map `index` alone; a view where plain."""
        if self.stored is None:
            return self.packed[index]
        matrix, bias = self.stored[index], None if self.bias is None else self.bias[index]
        num_outputs, num_inputs = matrix.shape
        return LinearWeight(matrix, bias, num_outputs, num_inputs, bias is not None, self.row_tile)

    def matrices(self) -> Tensor:
        """`[num_maps, N, K]`: as stored where plain, a copy where packed."""
        if self.stored is not None:
            return self.stored
        return torch.stack([weight.matrix() for weight in self.packed])


def pack_linears(weight: Tensor, bias: Tensor | None = None, *, row_tile: int = 0, int8: bool = False) -> LinearWeights:
    """Lays `[num_maps, N, K]` and `[num_maps, N]` out for their device and type; the rest as in `pack_linear`."""
    if weight.device.type == "cpu" and weight.dtype == torch.float32:
        biases = [None] * len(weight) if bias is None else list(bias)
        maps = zip(weight, biases, strict=True)
        return LinearWeights(tuple(pack_linear(matrix.contiguous(), own, int8=int8) for matrix, own in maps), None)
    return LinearWeights((), weight.contiguous(), row_tile, bias)


def batched_linear_heads(x: Tensor, weight: Tensor, row_tile: int) -> Tensor:
    """`[T, H, K]`, `[H, N, K]` -> `[T, H, N]` in one product, or in products of exactly `row_tile` rows."""
    heads, matrices = x.transpose(0, 1), weight.transpose(1, 2)
    if not row_tile:
        return torch.bmm(heads, matrices).transpose(0, 1)
    num_rows = x.shape[0]
    heads = F.pad(heads, (0, 0, 0, -num_rows % row_tile))
    tiles = [torch.bmm(tile, matrices) for tile in torch.split(heads, row_tile, dim=1)]
    return torch.cat(tiles, dim=1)[:, :num_rows].transpose(0, 1)
