"""Rounding to few bits by a scale of one's own: heads of keys and values, and rows that meet int8 weights."""

from __future__ import annotations

import torch
from torch import Tensor

from ..kv_format import KV_LIMITS


def quantise_rows(x: Tensor, input_step: float) -> tuple[Tensor, Tensor]:
    """(int8 `[T, K]`, step `[T]` fp32) of x `[T, K]` as compressed-tensors has it: within -128 … 127, ties to even.

    input_step: one for all rows; 0: `largest |x| / 127.5`, each row's own.
    """
    x = x.float()
    limit = torch.full_like(x[:, 0], 127.5)  # a tensor, for `number / tensor` rounds twice
    steps = torch.full_like(limit, input_step) if input_step else x.abs().amax(1) / limit
    return (x / torch.where(steps > 0, steps, 1.0)[:, None]).round().clamp(-128, 127).to(torch.int8), steps


def quantise_heads(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """`(stored [T, H, D] of dtype, scale [T, H] fp32)` of x `[T, H, D]`, as `kv_format` says."""
    most = x.float().abs().amax(-1)
    limit = torch.full_like(most, KV_LIMITS[dtype])  # a tensor, for `number / tensor` rounds twice
    scaled = x.float() * torch.where(most > 0, limit / most, 0.0)[..., None]
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), most / limit
