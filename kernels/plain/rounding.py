"""Rounding to few bits by a scale of one's own: heads of keys and values, and rows that meet int8 weights."""

from __future__ import annotations

import torch
from torch import Tensor

from ..grouped import INPUT_LIMIT
from ..kv_format import INT4, kv_format


def quantise_rows(x: Tensor, input_step: float, input_limit: float = INPUT_LIMIT) -> tuple[Tensor, Tensor]:
    """(int8 `[T, K]`, step `[T]` fp32) of x `[T, K]` as compressed-tensors has it: within -128 … 127, ties to even.

    input_step: one for all rows; 0: `largest |x| / input_limit`, each row's own.
    """
    x = x.float()
    limit = torch.full_like(x[:, 0], input_limit)  # a tensor, for `number / tensor` rounds twice
    steps = torch.full_like(limit, input_step) if input_step else x.abs().amax(1) / limit
    return (x / torch.where(steps > 0, steps, 1.0)[:, None]).round().clamp(-128, 127).to(torch.int8), steps


def quantise_heads(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """`(stored [T, H, D] of dtype, scale [T, H] fp32)` of x `[T, H, D]`; int4: D / 2 and int32 (`kv_format`)."""
    form = kv_format(dtype)
    assert form is not None
    if not form.limit:
        return _quantise_in_pairs(x.float())
    most = x.float().abs().amax(-1)
    limit = torch.full_like(most, form.limit)  # a tensor, for `number / tensor` rounds twice
    scaled = x.float() * torch.where(most > 0, limit / most, 0.0)[..., None]
    return (scaled.round() if dtype == torch.int8 else scaled).to(dtype), most / limit


def _quantise_in_pairs(x: Tensor) -> tuple[Tensor, Tensor]:
    least, largest = x.amin(-1), x.amax(-1)
    divisor = torch.full_like(least, 15.0)  # a tensor, for `number / tensor` rounds twice
    scale = ((largest - least) / divisor).bfloat16()
    middle = (least + 8 * scale.float()).bfloat16()
    factor = torch.where(scale > 1e-30, torch.ones_like(least) / scale.float(), 0.0)
    numbers = ((x - middle.float()[..., None]) * factor[..., None]).round().clamp(-8, 7).to(torch.int8) + 8
    pairs = numbers.view(torch.uint8).view(*numbers.shape[:-1], -1, 2)
    words = scale.view(torch.int16).int() << 16 | middle.view(torch.int16).int() & 0xFFFF
    return pairs[..., 0] | pairs[..., 1] << 4, words


def widen_heads(stored: Tensor, scales: Tensor) -> Tensor:
    """What `quantise_heads` has rounded, fp32 `[..., D]`: stored `[..., D]`, of int4 `[..., D / 2]`, scales `[...]`."""
    if stored.dtype != INT4:
        return stored.float() * scales[..., None]
    numbers = torch.stack([stored & 15, stored >> 4], -1).flatten(-2).float() - 8
    scale, middle = (words.view(torch.float32)[..., None] for words in (scales & -65536, scales << 16))
    return numbers * scale + middle
