"""Norms, rotary embedding, gated activation and KV write on the CPU: one compiled loop per op (`core/elementwise.cpp`).

A chain of torch calls pays a few microseconds each, which is most of a decode step of a small model; here an op is one
call. fp32 with a dense last axis only (`ops` takes the reference otherwise). Rows are independent, and the order of
every sum is fixed, so a row's bits do not depend on the batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..._core import kernels as core
from ..gate import Gate
from .attention import STORED

GATES = {"silu": 0, "gelu_tanh": 1, "clamped": 2, "squared": 3}


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    out = torch.empty_like(x)
    num_rows, width = x.shape
    strides = (x.stride(0), 0, out.stride(0))
    core.norm_rows(x.data_ptr(), 0, 0, weight.data_ptr(), out.data_ptr(), num_rows, width, *strides, eps)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    out, total = torch.empty_like(x), torch.empty_like(x)
    num_rows, width = x.shape
    pointers = (x.data_ptr(), residual.data_ptr(), total.data_ptr(), weight.data_ptr(), out.data_ptr())
    core.norm_rows(*pointers, num_rows, width, x.stride(0), residual.stride(0), out.stride(0), eps)
    return out, total


def apply_rope(q: Tensor, k: Tensor, positions: Tensor, cos_sin: Tensor) -> None:
    num_tokens, num_heads, _ = q.shape
    pointers = (q.data_ptr(), k.data_ptr(), positions.data_ptr(), cos_sin.data_ptr())
    shape = (num_tokens, num_heads, k.shape[1], cos_sin.shape[1] // 2)
    core.rotate_heads(*pointers, *shape, *q.stride()[:2], *k.stride()[:2])


def gated(gate_up: Tensor, gate: Gate) -> Tensor:
    num_rows, width = gate_up.shape
    out = torch.empty(num_rows, width // 2)
    places = (gate_up.data_ptr(), out.data_ptr(), num_rows, width // 2, gate_up.stride(0))
    core.gate_rows(*places, GATES[gate.kind], gate.alpha, gate.limit)
    return out


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
    shape = (num_tokens, num_kv_heads, head_dim, k_cache.shape[2])
    for x, cache, scales in ((k, k_cache, k_scales), (v, v_cache, v_scales)):
        places = (x.data_ptr(), cache.data_ptr(), 0 if scales is None else scales.data_ptr(), slots.data_ptr())
        token, head, _ = x.stride()
        block_stride, head_stride, slot_stride, _ = cache.stride()
        strides = (token, head, block_stride, head_stride, slot_stride)
        core.scatter_heads(*places, *shape, *strides, STORED[cache.dtype])
