"""KV write on the device: one program per token scatters all its heads into the paged caches."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def scatter_kv(
    k_ptr: tl.tensor,  # [T, Hkv, D]
    v_ptr: tl.tensor,
    k_cache_ptr: tl.tensor,  # [num_blocks, Hkv, block_size, D]
    v_cache_ptr: tl.tensor,
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
) -> None:
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    if slot >= 0:
        h = tl.arange(0, BLOCK_HEADS)[:, None]
        d = tl.arange(0, BLOCK_DIM)[None, :]
        mask = (h < num_kv_heads) & (d < HEAD_DIM)
        at = slot // BLOCK_SIZE * cache_block + slot % BLOCK_SIZE * cache_slot + h * cache_head + d
        k = tl.load(k_ptr + token * k_token + h * k_head + d, mask=mask)
        v = tl.load(v_ptr + token * v_token + h * v_head + d, mask=mask)
        tl.store(k_cache_ptr + at, k.to(k_cache_ptr.dtype.element_ty), mask=mask)
        tl.store(v_cache_ptr + at, v.to(v_cache_ptr.dtype.element_ty), mask=mask)


def write_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    num_tokens, num_kv_heads, head_dim = k.shape
    if num_tokens == 0:
        return
    scatter_kv[(num_tokens,)](
        k,
        v,
        k_cache,
        v_cache,
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
        num_warps=4,
        enable_fp_fusion=False,
    )
