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
    """`x[:, i] -> x[:, i] @ weight[i].T`; made by `pack_linears`.

    Attributes:
        packed: one weight per map; empty where `stored` is used.
        stored: `[num_maps, N, K]`; None where packed.
        row_tile: as in `LinearWeight`.
    """

    packed: tuple[LinearWeight, ...]
    stored: Tensor | None
    row_tile: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the weights, without what fills panels up."""
        if self.stored is not None:
            return self.stored.nbytes
        return sum(weight.num_bytes for weight in self.packed)

    def one(self, index: int) -> LinearWeight:
        """Map `index` alone; a view where plain."""
        if self.stored is None:
            return self.packed[index]
        matrix = self.stored[index]
        num_outputs, num_inputs = matrix.shape
        return LinearWeight(matrix, None, num_outputs, num_inputs, has_bias=False, row_tile=self.row_tile)

    def matrices(self) -> Tensor:
        """`[num_maps, N, K]`: as stored where plain, a copy where packed."""
        if self.stored is not None:
            return self.stored
        return torch.stack([weight.matrix() for weight in self.packed])


def pack_linears(weight: Tensor, *, row_tile: int = 0, int8: bool = False) -> LinearWeights:
    """Lays `[num_maps, N, K]` out for its device and type; `row_tile` and `int8` as in `pack_linear`."""
    if weight.device.type == "cpu" and weight.dtype == torch.float32:
        return LinearWeights(tuple(pack_linear(matrix.contiguous(), int8=int8) for matrix in weight), None)
    return LinearWeights((), weight.contiguous(), row_tile)


def batched_linear_heads(x: Tensor, weight: Tensor, row_tile: int) -> Tensor:
    """`[T, H, K]`, `[H, N, K]` -> `[T, H, N]` in one product, or in products of exactly `row_tile` rows."""
    heads, matrices = x.transpose(0, 1), weight.transpose(1, 2)
    if not row_tile:
        return torch.bmm(heads, matrices).transpose(0, 1)
    num_rows = x.shape[0]
    heads = F.pad(heads, (0, 0, 0, -num_rows % row_tile))
    tiles = [torch.bmm(tile, matrices) for tile in torch.split(heads, row_tile, dim=1)]
    return torch.cat(tiles, dim=1)[:, :num_rows].transpose(0, 1)
