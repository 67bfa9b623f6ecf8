"""KV write on the device: one program per token scatters all its heads into the paged caches, rounded if need be.

int8 and fp8 (`kv_format`): a head's largest number is found and its scale written in the same pass.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from .kv_format import KV_LIMITS


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
        small = (scaled + 24576.0) - 24576.0
        rounded = tl.where(tl.abs(scaled) < 0.015625, small, normal)
    return rounded, tl.div_rn(most, limit)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def scatter_kv(
    k_ptr: tl.tensor,  # [T, Hkv, D]
    v_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,  # [num_blocks, Hkv, block_size, D]
    v_cache_ptr: tl.tensor,
    k_scales_ptr: tl.tensor,  # [num_blocks, Hkv, BLOCK_SIZE] fp32, written if LIMIT
    v_scales_ptr: tl.tensor,
    slots_ptr: tl.tensor,  # [T] int64
    k_token: tl.tensor,
    k_head: tl.tensor,
    v_token: tl.tensor,
    v_head: tl.tensor,
    cache_block: tl.tensor,
    cache_head: tl.tensor,
    cache_slot: tl.tensor,
    num_kv_heads: tl.tensor,
    BLOCK_SIZE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_HEADS: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    LIMIT: tl.constexpr,  # the largest number of a quantised type; 0: stored as it is
    IS_INT: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    if slot >= 0:
        h = tl.arange(0, BLOCK_HEADS)[:, None]
        d = tl.arange(0, BLOCK_DIM)[None, :]
        mask = (h < num_kv_heads) & (d < HEAD_DIM)
        at = slot // BLOCK_SIZE * cache_block + slot % BLOCK_SIZE * cache_slot + h * cache_head + d
        k = tl.load(k_ptr + token * k_token + h * k_head + d, mask=mask, other=0.0)
        v = tl.load(v_ptr + token * v_token + h * v_head + d, mask=mask, other=0.0)
        if LIMIT > 0:
            k, k_scale = quantise_heads(k, LIMIT, IS_INT)
            v, v_scale = quantise_heads(v, LIMIT, IS_INT)
            heads = tl.arange(0, BLOCK_HEADS)
            place = (slot // BLOCK_SIZE * num_kv_heads + heads) * BLOCK_SIZE + slot % BLOCK_SIZE
            tl.store(k_scales_ptr + place, k_scale, mask=heads < num_kv_heads)
            tl.store(v_scales_ptr + place, v_scale, mask=heads < num_kv_heads)
        tl.store(k_cache_ptr + at, k.to(k_cache_ptr.dtype.element_ty), mask=mask)
        tl.store(v_cache_ptr + at, v.to(v_cache_ptr.dtype.element_ty), mask=mask)


def write_kv(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slots: Tensor,
    k_scales: Tensor | None = None,
    v_scales: Tensor | None = None,
) -> None:
    num_tokens, num_kv_heads, head_dim = k.shape
    if num_tokens == 0:
        return
    scatter_kv[(num_tokens,)](
        k,
        v,
        k_cache,
        v_cache,
        k_scales if k_scales is not None else k,
        v_scales if v_scales is not None else v,
        slots,
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        k_cache.stride(0),
        k_cache.stride(1),
        k_cache.stride(2),
        num_kv_heads,
        BLOCK_SIZE=k_cache.shape[2],
        HEAD_DIM=head_dim,
        BLOCK_HEADS=triton.next_power_of_2(num_kv_heads),
        BLOCK_DIM=triton.next_power_of_2(head_dim),
        LIMIT=KV_LIMITS[k_cache.dtype] if k_scales is not None else 0.0,
        IS_INT=k_cache.dtype == torch.int8,
        num_warps=4,
        enable_fp_fusion=False,
    )
