"""Attention on the CPU: straight over the paged blocks, one compiled call per layer for the whole batch.

A row's bits are the same for every batch, chunking, cache hit, prefix sharing and number of threads: see
`core/attention.cpp`. The work list is that of `cpu.work`.

q is fp32, KV fp32, int8, fp8 or int4; `ops.attention` takes the reference for other types.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..._core import kernels as core
from ..attention_mass import LayerMass
from ..kv_format import KV_FORMATS
from .threads import ONE_TEAM, num_cpu_threads
from .work import CpuWork

STORED = {torch.float32: 0, **{one.dtype: one.in_loops for one in KV_FORMATS.values()}}


def cpu_attention(
    work: CpuWork,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    scale: float,
    window: int = 0,
    in_chunks: bool = False,
    soft_cap: float = 0.0,
    sinks: Tensor | None = None,
    k_scales: Tensor | None = None,
    v_scales: Tensor | None = None,
    mass: LayerMass | None = None,
) -> Tensor:
    """`attention` for fp32 q on the CPU; q `[T, H, D]` may be a view with any strides but a dense last axis.

    The caches are fp32, or int8, fp8 or int4 with their scales: a tile of those is widened once for all its rows.
    """
    num_tokens, num_heads, head_dim = q.shape
    _, num_kv_heads, block_size, _ = k_cache.shape
    q_token, q_head, _ = q.stride()
    block_stride, head_stride, slot_stride, _ = k_cache.stride()
    out = torch.empty(q.shape)
    sink_logits = None if sinks is None else sinks.float().contiguous()
    core.attend(
        ONE_TEAM,
        num_cpu_threads(),
        work.lists,
        q.data_ptr(),
        q_token,
        q_head,
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        block_stride,
        head_stride,
        slot_stride,
        block_size,
        STORED[k_cache.dtype],
        0 if k_scales is None else k_scales.data_ptr(),
        0 if v_scales is None else v_scales.data_ptr(),
        out.data_ptr(),
        num_tokens,
        num_heads,
        num_kv_heads,
        head_dim,
        window,
        in_chunks,
        0 if sink_logits is None else sink_logits.data_ptr(),
        scale,
        soft_cap,
        0 if mass is None else mass.runs.ctypes.data,
        0 if mass is None else len(mass.runs),
        0 if mass is None else mass.sums.data_ptr(),
    )
    return out
