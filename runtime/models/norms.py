"""Norms of hidden states: RMSNorm, which is its weight alone, or LayerNorm, with a bias or without one.

In fp32 on the CPU a row's bits depend on that row alone. Cost: RMSNorm is one compiled loop, LayerNorm one op of torch.
Sources: Ba et al., arXiv 1607.06450; Zhang & Sennrich 1910.07467.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from ...kernels import ops
from .reader import Reader


@dataclass(frozen=True, slots=True)
class LayerNorm:
    """Weight and bias, `[hidden_size]` fp32; bias: None where there is none."""

    weight: Tensor
    bias: Tensor | None

    @property
    def num_bytes(self) -> int:
        return self.weight.nbytes + (0 if self.bias is None else self.bias.nbytes)

    def of(self, x: Tensor, eps: float) -> Tensor:
        """`[T, C]` -> `[T, C]`, computed in fp32."""
        return F.layer_norm(x.float(), x.shape[-1:], self.weight, self.bias, eps).to(x.dtype)


Norm = Tensor | LayerNorm  # a tensor is the weight of an RMSNorm


def read_norm(reader: Reader, module: str, scale: float = 1.0) -> Norm:
    """The norm of hidden states of that name, its results times `scale`. Raises ModelError: a tensor is missing."""
    kind, size = reader.config.options.norm, reader.config.hidden_size
    weight = reader.norm(f"{module}.weight", size) * scale
    if kind == "rms":
        return weight
    bias = reader.tensor([f"{module}.bias"], [size], []).float() * scale if kind == "layer" else None
    return LayerNorm(weight, bias)


def apply_norm(x: Tensor, norm: Norm | None, eps: float) -> Tensor:
    """`[T, C]`, as it is without a norm."""
    if norm is None:
        return x
    return norm.of(x, eps) if isinstance(norm, LayerNorm) else ops.rms_norm(x, norm, eps)


def add_norm(x: Tensor, residual: Tensor, norm: Norm | None, eps: float, factor: float = 1.0) -> tuple[Tensor, Tensor]:
    """The sum of both times a factor, normed, and as it is; without a norm it is the same tensor twice."""
    if isinstance(norm, Tensor) and factor == 1.0:
        return ops.add_rms_norm(x, residual, norm, eps)
    total = scaled(torch.add(x, residual), factor)
    return apply_norm(total, norm, eps), total


def scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else x * factor


def rounded(factor: float, dtype: torch.dtype) -> float:
    """A factor on activations as transformers rounds it, as one of them."""
    return float(torch.tensor(factor).to(dtype))
