"""From the output of the QKV projection to the input of attention, in one launch: heads are normed and rotated, queries
written densely, keys and values written into the paged caches, rounded if need be.

::

    program (token, b)    the first: query heads    q ─ norm ─ turn ─► out
                          after them: KV heads      k ─ norm ─ turn ─ scale, round ─► cache
                                                    v ─────────────── scale, round ─► cache

A head's numbers are read twice where it turns, once for themselves and once for their partners half a rotation away,
and every step is rounded as if it had been stored (`plain.ops.place_heads`). int8, fp8 and int4 (`kv_format`): a head's
range is found and its scale written in the same pass. A token without a slot writes no keys and no values.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..kv_format import INT4, kv_format

HEADS = 8  # of a program


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def quantise_heads(x: tl.tensor, LIMIT: tl.constexpr, IS_INT: tl.constexpr) -> tl.tensor:
    """(x over its row's scale, rounded to what can be stored; the scales), fp32.

    The rounding, to nearest with ties to even, is spelt out, for not every conversion to e4m3 carries into the exponent
    (Triton's interpreter does not); what is left to the conversion is exact.
    """
    x = x.to(tl.float32)
    most = tl.max(tl.abs(x), 1)
    limit = tl.full(most.shape, LIMIT, tl.float32)
    factor = tl.where(most > 0, tl.div_rn(limit, tl.where(most > 0, most, 1.0)), 0.0)
    scaled = x * factor[:, None]
    if IS_INT:  # adding 1.5 * 2^23 leaves no room for a fraction
        rounded = (scaled + 12582912.0) - 12582912.0
    else:  # three bits of mantissa, or multiples of 2^-9 below 2^-6
        bits = scaled.to(tl.int32, bitcast=True)
        normal = ((bits + 0x7FFFF + ((bits >> 20) & 1)) & -0x100000).to(tl.float32, bitcast=True)
        small = ((scaled + 24576.0) - 24576.0).to(tl.int32, bitcast=True) | (bits & -0x80000000)  # zeros keep signs
        rounded = tl.where(tl.abs(scaled) < 0.015625, small.to(tl.float32, bitcast=True), normal)
    return rounded, tl.div_rn(most, limit)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def to_bf16_bits(x: tl.tensor) -> tl.tensor:
    """fp32 rounded to bf16, ties to even, as the bits of an fp32: spelt out, as above."""
    bits = x.to(tl.int32, bitcast=True)
    return (bits + 0x7FFF + ((bits >> 16) & 1)) & -0x10000


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def quantise_in_pairs(x: tl.tensor, in_head: tl.tensor) -> tl.tensor:
    """(Bytes `[HEADS, BLOCK_DIM / 2]` of two numbers each; words of scale and middle), int32; in_head `[BLOCK_DIM]`."""
    x = x.to(tl.float32)
    least = tl.min(tl.where(in_head[None, :], x, float("inf")), 1)
    most = tl.max(tl.where(in_head[None, :], x, float("-inf")), 1)
    scale = to_bf16_bits(tl.div_rn(most - least, tl.full(most.shape, 15.0, tl.float32)))
    step = scale.to(tl.float32, bitcast=True)
    middle = to_bf16_bits(least + 8.0 * step)
    one = tl.full(most.shape, 1.0, tl.float32)
    factor = tl.where(step > 1e-30, tl.div_rn(one, tl.where(step > 1e-30, step, 1.0)), 0.0)
    scaled = (x - middle.to(tl.float32, bitcast=True)[:, None]) * factor[:, None]
    # adding 1.5 * 2^23 leaves no room for a fraction
    numbers = (tl.minimum(tl.maximum(scaled, -8.0), 7.0) + 12582912.0) - 12582912.0
    pairs = (numbers + 8.0).to(tl.int32).reshape(x.shape[0], x.shape[1] // 2, 2)
    low, high = tl.split(pairs)
    return low | (high << 4), scale | ((middle >> 16) & 0xFFFF)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def load_heads(
    x_ptr: tl.tensor,  # first number of the token
    heads: tl.tensor,  # [HEADS] offsets
    in_heads: tl.tensor,
    weight_ptr: tl.tensor,  # [HEAD_DIM] fp32, read if HAS_NORM
    turn_ptr: tl.tensor,  # [2 * half] fp32, cosines and sines of the position, read if HAS_ROPE
    half: tl.tensor,
    eps: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HAS_ROPE: tl.constexpr,
) -> tl.tensor:
    """Heads `[HEADS, BLOCK_DIM]`, normed and turned, in the type they came in."""
    d = tl.arange(0, BLOCK_DIM)
    mask = in_heads[:, None] & (d < HEAD_DIM)[None, :]
    x = tl.load(x_ptr + heads[:, None] + d[None, :], mask=mask, other=0.0)
    if HAS_NORM:
        exact = x.to(tl.float32)
        scale = tl.rsqrt(tl.sum(exact * exact, 1) / HEAD_DIM + eps)[:, None]
        weight = tl.load(weight_ptr + d, mask=d < HEAD_DIM, other=0.0).to(tl.float32)
        x = (exact * scale * weight[None, :]).to(x.dtype)
    if HAS_ROPE:
        turns = d < 2 * half
        partner = tl.where(d < half, d + half, d - half)
        partner = tl.where(turns, partner, d)
        other = tl.load(x_ptr + heads[:, None] + partner[None, :], mask=mask, other=0.0)
        if HAS_NORM:
            weight = tl.load(weight_ptr + partner, mask=d < HEAD_DIM, other=0.0).to(tl.float32)
            other = (other.to(tl.float32) * scale * weight[None, :]).to(x.dtype)
        angle = tl.where(d < half, d, d - half)
        cos = tl.load(turn_ptr + angle, mask=turns, other=1.0)[None, :]
        sin = tl.load(turn_ptr + half + angle, mask=turns, other=0.0)
        sin = tl.where(d < half, -sin, sin)[None, :]
        x = (x.to(tl.float32) * cos + other.to(tl.float32) * sin).to(x.dtype)
    return x


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def store_rounded(
    x: tl.tensor,  # [HEADS, BLOCK_DIM]
    at: tl.tensor,  # [HEADS], where each begins in the cache
    scales_at: tl.tensor,  # [HEADS], where their scales are; written if they are rounded
    is_head: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    LIMIT: tl.constexpr,
    IS_INT: tl.constexpr,
    IN_PAIRS: tl.constexpr,
) -> None:
    """Writes the keys or values of a token, as the cache has them."""
    if IN_PAIRS:
        x, scale = quantise_in_pairs(x, tl.arange(0, BLOCK_DIM) < HEAD_DIM)
        tl.store(scales_at, scale, mask=is_head)
    elif LIMIT > 0:
        x, scale = quantise_heads(x, LIMIT, IS_INT)
        tl.store(scales_at, scale, mask=is_head)
    c = tl.arange(0, BLOCK_DIM // 2 if IN_PAIRS else BLOCK_DIM)
    mask = is_head[:, None] & (c < (HEAD_DIM // 2 if IN_PAIRS else HEAD_DIM))[None, :]
    tl.store(at[:, None] + c[None, :], x.to(at.dtype.element_ty), mask=mask)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def place_rows(
    q_ptr: tl.tensor,  # [T, H, D]
    k_ptr: tl.tensor,  # [T, Hkv, D]
    v_ptr: tl.tensor,
    out_ptr: tl.tensor,  # [T, H, D], dense
    positions_ptr: tl.tensor,  # [T] int64
    cos_sin_ptr: tl.tensor,  # [P, 2 * half] fp32
    q_norm_ptr: tl.tensor,  # [D] fp32
    k_norm_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,  # [num_blocks, Hkv, BLOCK_SIZE, D], of int4 half as wide
    v_cache_ptr: tl.tensor,
    k_scales_ptr: tl.tensor,  # [num_blocks, Hkv, BLOCK_SIZE] fp32, of int4 int32; written if there is a LIMIT
    v_scales_ptr: tl.tensor,
    slots_ptr: tl.tensor,  # [T] int64
    q_token: tl.tensor,
    q_head: tl.tensor,
    k_token: tl.tensor,
    k_head: tl.tensor,
    v_token: tl.tensor,
    v_head: tl.tensor,
    cache_block: tl.tensor,
    cache_head: tl.tensor,
    cache_slot: tl.tensor,
    num_heads: tl.tensor,
    num_kv_heads: tl.tensor,
    half: tl.tensor,
    eps: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    HEADS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    HAS_NORM: tl.constexpr,
    HAS_ROPE: tl.constexpr,
    LIMIT: tl.constexpr,  # the largest number of int8 or fp8; 0: stored as it is, or as int4
    IS_INT: tl.constexpr,
    IN_PAIRS: tl.constexpr,  # int4
) -> None:
    token = tl.program_id(0).to(tl.int64)
    num_q_blocks = (num_heads + HEADS - 1) // HEADS
    block = tl.program_id(1)
    d = tl.arange(0, BLOCK_DIM)
    turn_ptr = cos_sin_ptr
    if HAS_ROPE:
        turn_ptr += tl.load(positions_ptr + token) * 2 * half
    if block < num_q_blocks:
        h = block * HEADS + tl.arange(0, HEADS)
        is_head = h < num_heads
        q = load_heads(
            q_ptr + token * q_token,
            h * q_head,
            is_head,
            q_norm_ptr,
            turn_ptr,
            half,
            eps,
            HEAD_DIM,
            BLOCK_DIM,
            HAS_NORM,
            HAS_ROPE,
        )
        at = (token * num_heads + h) * HEAD_DIM
        tl.store(out_ptr + at[:, None] + d[None, :], q, mask=is_head[:, None] & (d < HEAD_DIM)[None, :])
    else:
        slot = tl.load(slots_ptr + token)
        if slot >= 0:
            h = (block - num_q_blocks) * HEADS + tl.arange(0, HEADS)
            is_head = h < num_kv_heads
            mask = is_head[:, None] & (d < HEAD_DIM)[None, :]
            k = load_heads(
                k_ptr + token * k_token,
                h * k_head,
                is_head,
                k_norm_ptr,
                turn_ptr,
                half,
                eps,
                HEAD_DIM,
                BLOCK_DIM,
                HAS_NORM,
                HAS_ROPE,
            )
            v = tl.load(v_ptr + token * v_token + h[:, None] * v_head + d[None, :], mask=mask, other=0.0)
            place = (slot // BLOCK_SIZE * num_kv_heads + h) * BLOCK_SIZE + slot % BLOCK_SIZE
            at = slot // BLOCK_SIZE * cache_block + slot % BLOCK_SIZE * cache_slot + h * cache_head
            k_at, k_scales_at = k_cache_ptr + at, k_scales_ptr + place
            store_rounded(k, k_at, k_scales_at, is_head, HEAD_DIM, BLOCK_DIM, LIMIT, IS_INT, IN_PAIRS)
            v_at, v_scales_at = v_cache_ptr + at, v_scales_ptr + place
            store_rounded(v, v_at, v_scales_at, is_head, HEAD_DIM, BLOCK_DIM, LIMIT, IS_INT, IN_PAIRS)


def place_heads(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    cos_sin: Tensor | None,
    norms: tuple[Tensor, Tensor] | None,
    eps: float,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    k_scales: Tensor | None = None,
    v_scales: Tensor | None = None,
) -> Tensor:
    """`plain.ops.place_heads` on the device; q, k and v may be views with a dense last axis, and stay as they are."""
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads = k.shape[1]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if num_tokens == 0:
        return out
    q_norm, k_norm = norms if norms is not None else (q, k)
    form = kv_format(k_cache.dtype) if k_scales is not None else None
    place_rows[(num_tokens, triton.cdiv(num_heads, HEADS) + triton.cdiv(num_kv_heads, HEADS))](
        q,
        k,
        v,
        out,
        positions,
        cos_sin if cos_sin is not None else q,
        q_norm,
        k_norm,
        k_cache,
        v_cache,
        k_scales if k_scales is not None else k,
        v_scales if v_scales is not None else v,
        slots,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        k_cache.stride(0),
        k_cache.stride(1),
        k_cache.stride(2),
        num_heads,
        num_kv_heads,
        cos_sin.shape[1] // 2 if cos_sin is not None else 0,
        eps,
        BLOCK_SIZE=k_cache.shape[2],
        HEAD_DIM=head_dim,
        HEADS=HEADS,
        BLOCK_DIM=triton.next_power_of_2(head_dim),
        HAS_NORM=norms is not None,
        HAS_ROPE=cos_sin is not None,
        LIMIT=form.limit if form is not None else 0.0,
        IS_INT=k_cache.dtype == torch.int8,
        IN_PAIRS=k_cache.dtype == INT4,
        num_warps=4,
        enable_fp_fusion=False,
    )
    return out
