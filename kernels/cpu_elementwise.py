"""Norms, rotary embedding, gated activation and KV write on the CPU: one compiled loop per op.

A chain of torch calls pays a few microseconds each, which is most of a decode step of a small model; here an
op is one call. fp32 with a dense last axis only (`ops` takes the reference otherwise). Rows are independent,
and every sum has a written-down order (`simd`), so a row's bits do not depend on the batch.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from . import simd
from .compiled import compiled
from .gate import Gate
from .kv_format import FP8, KV_LIMITS


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    out = torch.empty_like(x)
    num_rows, width = x.shape
    norm_rows(
        x.data_ptr(), 0, 0, weight.data_ptr(), out.data_ptr(), num_rows, width, x.stride(0), 0, out.stride(0), eps
    )
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    out, total = torch.empty_like(x), torch.empty_like(x)
    num_rows, width = x.shape
    pointers = (x.data_ptr(), residual.data_ptr(), total.data_ptr(), weight.data_ptr(), out.data_ptr())
    norm_rows(*pointers, num_rows, width, x.stride(0), residual.stride(0), out.stride(0), eps)
    return out, total


@compiled()
def norm_rows(x, residual, total, weight, out, num_rows, width, x_stride, residual_stride, out_stride, eps):  # type: ignore[no-untyped-def]  # numba infers
    """residual 0: none. Four running sums of eight lanes each, joined as a tree."""
    for row in range(num_rows):
        source = x + 4 * row * x_stride
        if residual != 0:
            target = total + 4 * row * out_stride
            for c in range(0, 4 * width, 32):
                addend = simd.load(residual + 4 * row * residual_stride + c)
                simd.store(target + c, simd.add(simd.load(source + c), addend))
            source = target
        zero = simd.splat(np.float32(0.0))
        a, b, c, d = zero, zero, zero, zero
        i = 0
        while i + 128 <= 4 * width:
            p = source + i
            a = simd.fma(simd.load(p), simd.load(p), a)
            b = simd.fma(simd.load(p + 32), simd.load(p + 32), b)
            c = simd.fma(simd.load(p + 64), simd.load(p + 64), c)
            d = simd.fma(simd.load(p + 96), simd.load(p + 96), d)
            i += 128
        while i < 4 * width:
            a = simd.fma(simd.load(source + i), simd.load(source + i), a)
            i += 32
        mean = simd.total(simd.add(simd.add(a, b), simd.add(c, d))) / np.float32(width)
        scale = simd.splat(np.float32(1.0) / np.sqrt(mean + np.float32(eps)))
        target = out + 4 * row * out_stride
        for i in range(0, 4 * width, 32):
            simd.store(target + i, simd.mul(simd.mul(simd.load(source + i), scale), simd.load(weight + i)))


def apply_rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    half = cos_sin.shape[1] // 2
    num_tokens, num_heads, _ = q.shape
    shape = (num_tokens, num_heads, k.shape[1], half)
    tables = (positions.data_ptr(), cos_sin.data_ptr())
    rotate_heads(q.data_ptr(), k.data_ptr(), *tables, *shape, *q.stride()[:2], *k.stride()[:2])


@compiled()
def rotate_heads(q, k, positions, cos_sin, num_tokens, num_heads, num_kv_heads, half, q_token, q_head, k_token, k_head):  # type: ignore[no-untyped-def]
    for t in range(num_tokens):
        cos = cos_sin + 8 * half * simd.load_int64(positions + 8 * t)
        for h in range(num_heads + num_kv_heads):
            head = q + 4 * (t * q_token + h * q_head)
            if h >= num_heads:
                head = k + 4 * (t * k_token + (h - num_heads) * k_head)
            for d in range(0, 4 * half, 32):
                low, high = head + d, head + 4 * half + d
                x, y = simd.load(low), simd.load(high)
                c, s = simd.load(cos + d), simd.load(cos + 4 * half + d)
                simd.store(low, simd.sub(simd.mul(x, c), simd.mul(y, s)))
                simd.store(high, simd.fma(y, c, simd.mul(x, s)))


def gated(gate_up: Tensor, gate: Gate) -> Tensor:
    num_rows, width = gate_up.shape
    out = torch.empty(num_rows, width // 2)
    places = (gate_up.data_ptr(), out.data_ptr(), num_rows, width // 2, gate_up.stride(0))
    if gate.kind == "clamped":
        clamped_rows(*places, gate.alpha, gate.limit)
    else:
        gate_rows(*places, gate.kind == "gelu_tanh")
    return out


@compiled()
def gate_rows(gate_up, out, num_rows, width, stride, gelu):  # type: ignore[no-untyped-def]
    for row in range(num_rows):
        source, target = gate_up + 4 * row * stride, out + 4 * row * width
        for i in range(0, 4 * width, 32):
            x = simd.load(source + i)
            z = x
            if gelu:  # x/2 (1 + tanh(y)) = x sigmoid(2 y), y = sqrt(2/pi) (x + 0.044715 x^3)
                one = simd.splat(np.float32(1.0))
                cubic = simd.fma(simd.mul(x, x), simd.splat(np.float32(0.044715)), one)
                z = simd.mul(simd.mul(x, cubic), simd.splat(np.float32(2.0 * 0.7978845608028654)))
            y = simd.mul(x, simd.sigmoid(z))
            simd.store(target + i, simd.mul(y, simd.load(source + 4 * width + i)))


@compiled()
def clamped_rows(gate_up, out, num_rows, width, stride, alpha, limit):  # type: ignore[no-untyped-def]
    """`larger` gives its second argument where one is NaN, and that is the number here, not the limit."""
    zero, one = simd.splat(np.float32(0.0)), simd.splat(np.float32(1.0))
    slope, least = simd.splat(np.float32(alpha)), simd.splat(np.float32(-limit))
    for row in range(num_rows):
        source, target = gate_up + 4 * row * stride, out + 4 * row * width
        for i in range(0, 4 * width, 32):
            x = simd.sub(zero, simd.larger(least, simd.sub(zero, simd.load(source + i))))
            up = simd.larger(least, simd.load(source + 4 * width + i))
            up = simd.sub(zero, simd.larger(least, simd.sub(zero, up)))
            y = simd.mul(x, simd.sigmoid(simd.mul(slope, x)))
            simd.store(target + i, simd.mul(y, simd.add(up, one)))


def write_kv(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    num_tokens, num_kv_heads, head_dim = k.shape
    pointers = (k.data_ptr(), v.data_ptr(), k_cache.data_ptr(), v_cache.data_ptr(), slots.data_ptr())
    shape = (num_tokens, num_kv_heads, head_dim, k_cache.shape[2])
    scatter_heads(*pointers, *shape, *k.stride()[:2], *v.stride()[:2], *k_cache.stride()[:3])


@compiled()
def scatter_heads(  # type: ignore[no-untyped-def]
    k,
    v,
    k_cache,
    v_cache,
    slots,
    num_tokens,
    num_kv_heads,
    head_dim,
    block_size,
    k_token,
    k_head,
    v_token,
    v_head,
    cache_block,
    cache_head,
    cache_slot,
):
    for t in range(num_tokens):
        slot = simd.load_int64(slots + 8 * t)
        if slot < 0:
            continue
        for h in range(num_kv_heads):
            target = 4 * (slot // block_size * cache_block + h * cache_head + slot % block_size * cache_slot)
            for d in range(0, 4 * head_dim, 32):
                simd.store(k_cache + target + d, simd.load(k + 4 * (t * k_token + h * k_head) + d))
                simd.store(v_cache + target + d, simd.load(v + 4 * (t * v_token + h * v_head) + d))


def write_quantised_kv(
    k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor, k_scales: Tensor, v_scales: Tensor
) -> None:
    num_tokens, num_kv_heads, head_dim = k.shape
    is_fp8 = k_cache.dtype == FP8
    shape = (num_tokens, num_kv_heads, head_dim, k_cache.shape[2], is_fp8, KV_LIMITS[k_cache.dtype])
    for x, cache, scales in ((k, k_cache, k_scales), (v, v_cache, v_scales)):
        pointers = (x.data_ptr(), cache.data_ptr(), scales.data_ptr(), slots.data_ptr())
        scatter_bytes(*pointers, *shape, *x.stride()[:2], *cache.stride()[:3])


@compiled()
def scatter_bytes(  # type: ignore[no-untyped-def]
    x,
    cache,
    scales,
    slots,
    num_tokens,
    num_kv_heads,
    head_dim,
    block_size,
    is_fp8,
    limit,
    x_token,
    x_head,
    cache_block,
    cache_head,
    cache_slot,
):
    """Each token's head, divided by its scale; the scales lie densely, block by block, head by head."""
    zero = simd.splat(np.float32(0.0))
    for t in range(num_tokens):
        slot = simd.load_int64(slots + 8 * t)
        if slot < 0:
            continue
        block, within = slot // block_size, slot % block_size
        for h in range(num_kv_heads):
            source = x + 4 * (t * x_token + h * x_head)
            target = cache + block * cache_block + h * cache_head + within * cache_slot
            top = zero
            for d in range(0, 4 * head_dim, 32):
                value = simd.load(source + d)
                top = simd.larger(simd.larger(value, simd.sub(zero, value)), top)
            most = simd.largest(top)
            factor = simd.splat(np.float32(limit) / most if most > 0 else np.float32(0.0))
            for d in range(0, head_dim, 8):
                scaled = simd.mul(simd.load(source + 4 * d), factor)
                if is_fp8:
                    simd.store_fp8(target + d, scaled)
                else:
                    simd.store_int8(target + d, scaled)
            place = (block * num_kv_heads + h) * block_size + within
            simd.store_scalar(scales + 4 * place, most / np.float32(limit))
