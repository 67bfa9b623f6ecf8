"""Attention on the CPU: straight over the paged blocks, one compiled call per layer for the whole batch.

A work item is (block-table row, range of keys, run of query rows); it is done for every KV head::

    chain ──► item ──► tile of 64 keys (absolute grid) ──► query row (token x head of the group)
              root       K, V of the tile stay in L1         scores, online softmax, p V
              to leaf

All rows of an item (the heads of a group, the rows of a prefill chunk, the rows of all requests that share
the keys) pass over a tile while it is in L1, so shared keys are fetched once. A row's running (maximum, sum,
p V) rests in memory between items; a chain is a list of items that run one after another, and chains are
independent (the threads' unit of work).

Invariant: what a row gets is a function of its query, its position and its keys alone. Tiles lie at absolute
positions, every sum has a written-down order (`simd`), and the masked tail of a tile is skipped, not added.
So a row's bits are the same for every batch, chunking, cache hit, prefix sharing and number of threads.
(The matmuls around it are another matter: a BLAS may change its order of summation with the row count.)

fp32 only; `ops.attention` takes the reference for other types.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from numba import njit, prange
from torch import Tensor

from . import simd
from .cpu_threads import thread_team
from .cpu_work import IS_LAST, KEY_BEGIN, KEY_END, ROW_BEGIN, ROW_END, TABLE_ROW, TILE, CpuWork

IntArray = npt.NDArray[np.int32]

NUM_KV_HEADS = 11  # its place among `numbers`
_NO_SINKS = np.empty(0, np.float32)


def cpu_attention(
    work: CpuWork,
    block_tables: IntArray,
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    *,
    scale: float,
    window: int,
    soft_cap: float,
    sinks: Tensor | None,
) -> Tensor:
    """`attention` on fp32 CPU tensors; q `[T, H, D]` may be a view with any strides but a dense last axis."""
    num_tokens, num_heads, head_dim = q.shape
    _, num_kv_heads, block_size, _ = k_cache.shape
    out = torch.empty(q.shape)
    states = np.empty((num_tokens * num_heads, 2), np.float32)
    numbers = np.array(
        (
            q.data_ptr(),
            *q.stride()[:2],
            k_cache.data_ptr(),
            v_cache.data_ptr(),
            *k_cache.stride()[:3],
            block_size,
            out.data_ptr(),
            num_heads,
            num_kv_heads,
            head_dim,
            window,
        ),
        np.int64,
    )
    factors = np.array((scale, soft_cap), np.float32) * simd.LOG2_E
    lists = (work.chain_starts, work.items, work.rows, work.positions, block_tables)
    sink_logits = _NO_SINKS if sinks is None else sinks.float().contiguous().numpy()
    with thread_team(work.num_pairs * num_heads * head_dim * 2) as num_threads:
        run = _run_serial if num_threads == 1 else _run_parallel
        run(*lists, states, sink_logits, numbers, factors)
    return out


@njit(inline="always")
def _score_keys(q, k, offsets, head_dim):  # type: ignore[no-untyped-def]  # numba infers
    """Dot products of a query row with eight keys: lanes d, d + 8, ... are summed apart, then as a tree."""
    k0, k1, k2, k3 = k + offsets[0], k + offsets[1], k + offsets[2], k + offsets[3]
    k4, k5, k6, k7 = k + offsets[4], k + offsets[5], k + offsets[6], k + offsets[7]
    zero = simd.splat(np.float32(0.0))
    a0, a1, a2, a3, a4, a5, a6, a7 = zero, zero, zero, zero, zero, zero, zero, zero
    for d in range(0, 4 * head_dim, 32):
        x = simd.load(q + d)
        a0 = simd.fma(x, simd.load(k0 + d), a0)
        a1 = simd.fma(x, simd.load(k1 + d), a1)
        a2 = simd.fma(x, simd.load(k2 + d), a2)
        a3 = simd.fma(x, simd.load(k3 + d), a3)
        a4 = simd.fma(x, simd.load(k4 + d), a4)
        a5 = simd.fma(x, simd.load(k5 + d), a5)
        a6 = simd.fma(x, simd.load(k6 + d), a6)
        a7 = simd.fma(x, simd.load(k7 + d), a7)
    return simd.sum_each(a0, a1, a2, a3, a4, a5, a6, a7)


@njit(inline="always")
def _weigh_values(out, v, offsets, weights, begin, end, decay, head_dim):  # type: ignore[no-untyped-def]
    """out = out * decay + sum of weights[n] * value[n], keys in order, in strips as wide as registers allow."""
    d = 0
    while d + 256 <= 4 * head_dim:
        o = out + d
        a0, a1 = simd.mul(simd.load(o), decay), simd.mul(simd.load(o + 32), decay)
        a2, a3 = simd.mul(simd.load(o + 64), decay), simd.mul(simd.load(o + 96), decay)
        a4, a5 = simd.mul(simd.load(o + 128), decay), simd.mul(simd.load(o + 160), decay)
        a6, a7 = simd.mul(simd.load(o + 192), decay), simd.mul(simd.load(o + 224), decay)
        for n in range(begin, end):
            p, w = v + offsets[n] + d, simd.splat(simd.load_scalar(weights + 4 * n))
            a0 = simd.fma(w, simd.load(p), a0)
            a1 = simd.fma(w, simd.load(p + 32), a1)
            a2 = simd.fma(w, simd.load(p + 64), a2)
            a3 = simd.fma(w, simd.load(p + 96), a3)
            a4 = simd.fma(w, simd.load(p + 128), a4)
            a5 = simd.fma(w, simd.load(p + 160), a5)
            a6 = simd.fma(w, simd.load(p + 192), a6)
            a7 = simd.fma(w, simd.load(p + 224), a7)
        simd.store(o, a0)
        simd.store(o + 32, a1)
        simd.store(o + 64, a2)
        simd.store(o + 96, a3)
        simd.store(o + 128, a4)
        simd.store(o + 160, a5)
        simd.store(o + 192, a6)
        simd.store(o + 224, a7)
        d += 256
    while d + 128 <= 4 * head_dim:
        o = out + d
        a0, a1 = simd.mul(simd.load(o), decay), simd.mul(simd.load(o + 32), decay)
        a2, a3 = simd.mul(simd.load(o + 64), decay), simd.mul(simd.load(o + 96), decay)
        for n in range(begin, end):
            p, w = v + offsets[n] + d, simd.splat(simd.load_scalar(weights + 4 * n))
            a0 = simd.fma(w, simd.load(p), a0)
            a1 = simd.fma(w, simd.load(p + 32), a1)
            a2 = simd.fma(w, simd.load(p + 64), a2)
            a3 = simd.fma(w, simd.load(p + 96), a3)
        simd.store(o, a0)
        simd.store(o + 32, a1)
        simd.store(o + 64, a2)
        simd.store(o + 96, a3)
        d += 128
    while d < 4 * head_dim:
        a0 = simd.mul(simd.load(out + d), decay)
        for n in range(begin, end):
            a0 = simd.fma(simd.splat(simd.load_scalar(weights + 4 * n)), simd.load(v + offsets[n] + d), a0)
        simd.store(out + d, a0)
        d += 32


@njit(inline="always")
def _attend_tile(q, out, state, k, v, offsets, begin, end, scores, scale, soft_cap, head_dim):  # type: ignore[no-untyped-def]
    """One query row over keys begin to end - 1 of a tile; state = [running maximum, running sum]."""
    best = simd.splat(np.float32(-np.inf))
    for n in range(begin // 8 * 8, end, 8):
        s = simd.mul(_score_keys(q, k, offsets[n:], head_dim), simd.splat(scale))
        if soft_cap > 0:
            cap = simd.splat(soft_cap)
            s = simd.mul(cap, simd.tanh(simd.div(s, cap)))
        if n < begin or n + 8 > end:
            s = simd.keep(s, begin - n, end - n)
        simd.store(scores + 4 * n, s)
        best = simd.larger(s, best)
    before = simd.load_scalar(state)
    after = max(before, simd.largest(best))
    sums, top = simd.splat(np.float32(0.0)), simd.splat(after)
    for n in range(begin // 8 * 8, end, 8):
        p = simd.exp2(simd.sub(simd.load(scores + 4 * n), top))
        simd.store(scores + 4 * n, p)
        sums = simd.add(sums, p)
    decay = simd.exp2(simd.splat(before - after))
    simd.store_scalar(state, after)
    simd.store_scalar(state + 4, simd.load_scalar(state + 4) * simd.first(decay) + simd.total(sums))
    _weigh_values(out, v, offsets, scores, begin, end, decay, head_dim)


@njit
def _run_chain(  # type: ignore[no-untyped-def]
    chain, kv_head, chain_starts, items, rows, positions, block_tables, states, sinks, numbers, factors
):
    """All items of one chain for one KV head; numbers and factors as `cpu_attention` packs them."""
    q, q_token, q_head = numbers[0], 4 * numbers[1], 4 * numbers[2]
    k, v, block_stride, head_stride, slot_stride, block_size = numbers[3:9]
    out, num_heads, num_kv_heads, head_dim, window = numbers[9:]
    group = num_heads // num_kv_heads
    offsets = np.empty(TILE, np.int64)
    scratch = np.empty(TILE, np.float32)
    for i in range(chain_starts[chain], chain_starts[chain + 1]):
        row_begin, row_end = items[i, ROW_BEGIN], items[i, ROW_END]
        if items[i, KEY_BEGIN] == 0:
            _open_rows(rows[row_begin:row_end], kv_head, group, num_heads, head_dim, out, states, sinks)
        first_key = items[i, KEY_BEGIN]
        if window > 0:
            oldest = np.min(positions[row_begin:row_end])
            first_key = max(first_key, (oldest - window + 1) // TILE * TILE)
        for tile in range(first_key, items[i, KEY_END], TILE):
            num_keys = min(TILE, items[i, KEY_END] - tile)
            table = block_tables[items[i, TABLE_ROW]]
            base = kv_head * head_stride
            _locate_keys(offsets, table, tile, num_keys, base, block_stride, slot_stride, block_size)
            for r in range(row_begin, row_end):
                end = min(num_keys, positions[r] + 1 - tile)
                begin = max(0, positions[r] - window + 1 - tile) if window > 0 else 0
                if begin >= end:
                    continue
                for h in range(kv_head * group, (kv_head + 1) * group):
                    o = rows[r] * num_heads + h
                    _attend_tile(
                        q + rows[r] * q_token + h * q_head,
                        out + 4 * o * head_dim,
                        states.ctypes.data + 8 * o,
                        k,
                        v,
                        offsets,
                        begin,
                        end,
                        scratch.ctypes.data,
                        factors[0],
                        factors[1],
                        head_dim,
                    )
        if items[i, IS_LAST]:
            _close_rows(rows[row_begin:row_end], kv_head, group, num_heads, head_dim, out, states)


@njit
def _open_rows(rows, kv_head, group, num_heads, head_dim, out, states, sinks):  # type: ignore[no-untyped-def]
    """Nothing seen yet; a sink is a logit that has been seen, with no value."""
    for token in rows:
        for h in range(kv_head * group, (kv_head + 1) * group):
            o = token * num_heads + h
            states[o, 0] = sinks[h] * simd.LOG2_E if len(sinks) else -np.inf
            states[o, 1] = 1.0 if len(sinks) else 0.0
            for d in range(0, 4 * head_dim, 32):
                simd.store(out + 4 * o * head_dim + d, simd.splat(np.float32(0.0)))


@njit
def _close_rows(rows, kv_head, group, num_heads, head_dim, out, states):  # type: ignore[no-untyped-def]
    for token in rows:
        for h in range(kv_head * group, (kv_head + 1) * group):
            o = token * num_heads + h
            for d in range(0, 4 * head_dim, 32):
                p = out + 4 * o * head_dim + d
                simd.store(p, simd.div(simd.load(p), simd.splat(states[o, 1])))


@njit(inline="always")
def _locate_keys(offsets, table, first_key, num_keys, base, block_stride, slot_stride, block_size):  # type: ignore[no-untyped-def]
    """Byte offsets of a tile's keys in a cache; the rest of the last group of eight repeats the last key."""
    n = 0
    while n < num_keys:
        block, within = divmod(first_key + n, block_size)
        start = base + table[block] * block_stride
        for slot in range(within, min(block_size, within + num_keys - n)):
            offsets[n] = 4 * (start + slot * slot_stride)
            n += 1
    while n % 8:
        offsets[n] = offsets[n - 1]
        n += 1


@njit(cache=True, nogil=True)
def _run_serial(chain_starts, items, rows, positions, tables, states, sinks, numbers, factors):  # type: ignore[no-untyped-def]
    for chain in range(len(chain_starts) - 1):
        for h in range(numbers[NUM_KV_HEADS]):
            _run_chain(chain, h, chain_starts, items, rows, positions, tables, states, sinks, numbers, factors)


@njit(cache=True, nogil=True, parallel=True)
def _run_parallel(chain_starts, items, rows, positions, tables, states, sinks, numbers, factors):  # type: ignore[no-untyped-def]
    num_kv_heads = numbers[NUM_KV_HEADS]
    for task in prange((len(chain_starts) - 1) * num_kv_heads):
        c, h = task // num_kv_heads, task % num_kv_heads
        _run_chain(c, h, chain_starts, items, rows, positions, tables, states, sinks, numbers, factors)
