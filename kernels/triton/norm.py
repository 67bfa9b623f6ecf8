"""RMS norm on the device, with the residual addition fused: one program per row, the row in registers.

Rows may lie in groups (the heads of a token, a part of what a projection wrote); they are read where they are.

The order of the sum is fixed by the tile shape, which depends on the width alone: rows are batch-invariant.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch import elementwise_warps


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def norm_rows(
    x_ptr: tl.tensor,
    residual_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    out_ptr: tl.tensor,
    total_ptr: tl.tensor,
    num_heads: tl.tensor,
    x_stride: tl.tensor,  # from group to group
    head_stride: tl.tensor,
    residual_stride: tl.tensor,
    width: tl.tensor,
    eps: tl.tensor,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    mask = c < width
    begin = row // num_heads * x_stride + row % num_heads * head_stride
    x = tl.load(x_ptr + begin + c, mask=mask, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        x += tl.load(residual_ptr + row * residual_stride + c, mask=mask, other=0.0).to(tl.float32)
        rounded = x.to(total_ptr.dtype.element_ty)
        tl.store(total_ptr + row * width + c, rounded, mask=mask)
        x = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / width + eps)
    weight = tl.load(weight_ptr + c, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * width + c, (x * scale * weight).to(out_ptr.dtype.element_ty), mask=mask)


def _launch(x: Tensor, residual: Tensor | None, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    num_heads, head_stride = (x.shape[1], x.stride(1)) if x.dim() == 3 else (1, 0)
    num_rows, width = x.shape[0] * num_heads, x.shape[-1]
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    total = out if residual is None else torch.empty_like(out)
    if num_rows:
        norm_rows[(num_rows,)](
            x,
            x if residual is None else residual,
            weight,
            out,
            total,
            num_heads,
            x.stride(0),
            head_stride,
            0 if residual is None else residual.stride(0),
            width,
            eps,
            HAS_RESIDUAL=residual is not None,
            BLOCK=triton.next_power_of_2(width),
            num_warps=elementwise_warps(width),
            enable_fp_fusion=False,
        )
    return out, total


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x `[T, C]` or `[T, H, C]`, whose last axis is contiguous."""
    return _launch(x, None, weight, eps)[0]


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return _launch(x, residual, weight, eps)
