"""Packing: how a model's matrices are laid out for the kernels that multiply with them. Knows no names of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels import (
    Grouped,
    LinearWeight,
    LinearWeights,
    keep_mxfp4,
    pack_grouped,
    pack_grouped_each,
    pack_linear,
    pack_linears,
    pack_mxfp4s,
)
from ...kernels.linear_weight import Quantise


@dataclass(frozen=True, slots=True)
class Packing:
    """The layout of a model's matrices.

    Attributes:
        dtype: of weights and activations.
        device_type: where they are.
        row_tile, quantise: as in `pack_linear`; rounding lets products with published few bits round their inputs.
    """

    dtype: torch.dtype
    device_type: str
    row_tile: int
    quantise: Quantise

    def one(self, weight: Tensor | Grouped, bias: Tensor | None = None) -> LinearWeight:
        """A linear map, `[N, K]`."""
        if isinstance(weight, Grouped):
            rounds = self.quantise != "none"
            return pack_grouped(weight, bias, dtype=self.dtype, row_tile=self.row_tile, rounds_inputs=rounds)
        return pack_linear(weight, bias, dtype=self.dtype, row_tile=self.row_tile, quantise=self.quantise)

    def exact(self, weight: Tensor, bias: Tensor | None) -> LinearWeight:
        """A linear map that is kept and computed in fp32, whatever becomes of the others."""
        return pack_linear(weight.float(), None if bias is None else bias.float(), row_tile=self.row_tile)

    def each(self, weight: Tensor, bias: Tensor | None = None) -> LinearWeights:
        """Linear maps of one shape, `[num_maps, N, K]`."""
        return pack_linears(weight, bias, dtype=self.dtype, row_tile=self.row_tile, quantise=self.quantise)

    def each_grouped(self, weights: Sequence[Grouped], bias: Tensor | None) -> LinearWeights | None:
        """The same in few bits; None: no kernel reads them so."""
        rounds = self.quantise != "none"
        return pack_grouped_each(weights, self.dtype, self.row_tile, bias=bias, rounds_inputs=rounds)

    @property
    def keeps_mxfp4(self) -> bool:
        """Whether weights in four bits stay so: a GPU's kernel takes rows of bf16, the CPU's of fp32."""
        return self.dtype is (torch.float32 if self.device_type == "cpu" else torch.bfloat16)

    def each_mxfp4(self, blocks: Tensor, scales: Tensor, bias: Tensor | None) -> LinearWeights:
        """Linear maps of one shape in four bits as they are published, where `keeps_mxfp4`."""
        if self.dtype is torch.float32:
            return pack_mxfp4s(blocks, scales, bias)
        return keep_mxfp4(blocks, scales, bias, row_tile=self.row_tile)
