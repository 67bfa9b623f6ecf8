"""Rotary position embedding on the device, in place: one program per token and block of heads, q and k together."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

BLOCK_HEADS = 16


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def rotate(
    q_ptr: tl.tensor,  # [T, H, D]
    k_ptr: tl.tensor,  # [T, Hkv, D]
    positions_ptr: tl.tensor,  # [T] int64
    cos_sin_ptr: tl.tensor,  # [P, 2 * half] fp32
    q_token: tl.tensor,
    q_head: tl.tensor,
    k_token: tl.tensor,
    k_head: tl.tensor,
    num_heads: tl.tensor,
    num_kv_heads: tl.tensor,
    half: tl.tensor,
    HEADS: tl.constexpr,
    BLOCK_HALF: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    d = tl.arange(0, BLOCK_HALF)
    in_half = d < half
    row = cos_sin_ptr + tl.load(positions_ptr + token) * 2 * half
    cos = tl.load(row + d, mask=in_half, other=0.0)[None, :]
    sin = tl.load(row + half + d, mask=in_half, other=0.0)[None, :]
    is_q = h < num_heads
    q_at = token * q_token + h * q_head
    k_at = token * k_token + (h - num_heads) * k_head
    q_mask = is_q[:, None] & in_half[None, :]
    k_mask = ((h >= num_heads) & (h < num_heads + num_kv_heads))[:, None] & in_half[None, :]
    q_low, k_low = q_ptr + q_at[:, None] + d[None, :], k_ptr + k_at[:, None] + d[None, :]
    low = tl.load(q_low, mask=q_mask, other=0.0).to(tl.float32)
    low += tl.load(k_low, mask=k_mask, other=0.0).to(tl.float32)
    high = tl.load(q_low + half, mask=q_mask, other=0.0).to(tl.float32)
    high += tl.load(k_low + half, mask=k_mask, other=0.0).to(tl.float32)
    new_low, new_high = low * cos - high * sin, high * cos + low * sin
    tl.store(q_low, new_low.to(q_ptr.dtype.element_ty), mask=q_mask)
    tl.store(q_low + half, new_high.to(q_ptr.dtype.element_ty), mask=q_mask)
    tl.store(k_low, new_low.to(k_ptr.dtype.element_ty), mask=k_mask)
    tl.store(k_low + half, new_high.to(k_ptr.dtype.element_ty), mask=k_mask)


def apply_rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    num_tokens, num_heads, _ = q.shape
    num_kv_heads, half = k.shape[1], cos_sin.shape[1] // 2
    if num_tokens == 0:
        return
    rotate[(num_tokens, triton.cdiv(num_heads + num_kv_heads, BLOCK_HEADS))](
        q,
        k,
        positions,
        cos_sin,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        num_heads,
        num_kv_heads,
        half,
        HEADS=BLOCK_HEADS,
        BLOCK_HALF=triton.next_power_of_2(half),
        num_warps=4,
        enable_fp_fusion=False,
    )
