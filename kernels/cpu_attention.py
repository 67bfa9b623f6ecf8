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

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from numba import njit, prange
from torch import Tensor

from . import simd
from .sharing import forest, order_by_prefix, shared_lens

IntArray = npt.NDArray[np.int32]

TILE = 64  # keys per tile; the grid of prefix sharing on the CPU
MAX_ITEM_TOKENS = 32  # of one item: their queries and sums stay in L2 beside the tile
_NO_SINKS = np.empty(0, np.float32)

# columns of an item
TABLE_ROW, KEY_BEGIN, KEY_END, ROW_BEGIN, ROW_END, IS_LAST = range(6)


@dataclass(frozen=True, slots=True)
class CpuWork:
    """The work list of one step."""

    items: IntArray  # [N, 6], see the column names above
    chain_starts: IntArray  # [C + 1] chain c = items[chain_starts[c] : chain_starts[c + 1]]
    rows: IntArray  # [T] token of each row; requests in prefix order
    positions: IntArray  # [T] absolute position of each row's token


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
    run = _run_parallel if torch.get_num_threads() > 1 else _run_serial
    run(
        work.chain_starts,
        num_kv_heads,
        work.items,
        work.rows,
        work.positions,
        block_tables,
        q.data_ptr(),
        q.stride()[:2],
        k_cache.data_ptr(),
        v_cache.data_ptr(),
        k_cache.stride()[:3],
        block_size,
        out.data_ptr(),
        states,
        _NO_SINKS if sinks is None else sinks.float().numpy(),
        num_heads // num_kv_heads,
        num_heads,
        head_dim,
        np.float32(scale) * simd.LOG2_E,
        window,
        np.float32(soft_cap) * simd.LOG2_E,
    )
    return out


def plan_cpu_work(
    query_starts: IntArray, context_lens: IntArray, block_tables: IntArray, block_size: int, share: bool
) -> CpuWork:
    """Lay out one step. share: read keys that several requests share once (never changes a bit)."""
    num_requests = len(context_lens)
    q_lens = query_starts[1:] - query_starts[:-1]
    if share and num_requests > 1:
        order = order_by_prefix(block_tables)
        shared = shared_lens(order, block_tables, context_lens, q_lens, block_size, TILE)
    else:
        order = np.arange(num_requests, dtype=np.int32)
        shared = np.zeros(num_requests, np.int32)
    return CpuWork(*_lay_out(forest(shared, context_lens[order]), order, query_starts, context_lens))


@njit(cache=True)
def _lay_out(
    nodes: IntArray, order: IntArray, query_starts: IntArray, context_lens: IntArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    num_tokens = query_starts[-1]
    rows, positions = np.empty(num_tokens, np.int32), np.empty(num_tokens, np.int32)
    row_starts = np.zeros(len(order) + 1, np.int32)
    for i in range(len(order)):
        b, row = order[i], row_starts[i]
        for token in range(query_starts[b], query_starts[b + 1]):
            rows[row] = token
            positions[row] = context_lens[b] - query_starts[b + 1] + token
            row += 1
        row_starts[i + 1] = row
    capacity = 0
    for n in range(len(nodes)):
        capacity += (row_starts[nodes[n, 1]] - row_starts[nodes[n, 0]]) // MAX_ITEM_TOKENS + 1
    items, chain_starts = np.empty((capacity, 6), np.int32), np.empty(capacity + 1, np.int32)
    num_items, num_chains, tree = 0, 0, -1
    for n in range(len(nodes)):
        first, last, key_begin, key_end, node_tree = nodes[n, 0], nodes[n, 1], nodes[n, 2], nodes[n, 3], nodes[n, 4]
        is_leaf = last - first == 1 and key_end == context_lens[order[first]]
        is_alone = is_leaf and key_begin == 0  # its row tiles depend on nobody: a chain each
        for row in range(row_starts[first], row_starts[last], MAX_ITEM_TOKENS):
            row_end = min(row + MAX_ITEM_TOKENS, row_starts[last])
            end = min(key_end, positions[row_end - 1] + 1) if is_leaf else key_end
            if is_alone or tree != node_tree:
                chain_starts[num_chains] = num_items
                num_chains += 1
                tree = node_tree
            item = items[num_items]
            item[TABLE_ROW], item[KEY_BEGIN], item[KEY_END] = order[first], key_begin, end
            item[ROW_BEGIN], item[ROW_END], item[IS_LAST] = row, row_end, is_leaf
            num_items += 1
    chain_starts[num_chains] = num_items
    return items[:num_items], chain_starts[: num_chains + 1], rows, positions


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
def _run_chain(  # type: ignore[no-untyped-def]  # numba infers
    begin,
    end,
    kv_head,
    items,
    rows,
    positions,
    block_tables,
    q,
    q_strides,
    k,
    v,
    cache_strides,
    block_size,
    out,
    states,
    sinks,
    group,
    num_heads,
    head_dim,
    scale,
    window,
    soft_cap,
):
    """Items begin to end - 1 of the list for one KV head; pointers are byte addresses, strides count floats."""
    offsets = np.empty(TILE, np.int64)
    scratch = np.empty(TILE, np.float32)
    scores = scratch.ctypes.data
    for i in range(begin, end):
        table, key_begin, key_end = items[i, TABLE_ROW], items[i, KEY_BEGIN], items[i, KEY_END]
        row_begin, row_end = items[i, ROW_BEGIN], items[i, ROW_END]
        if key_begin == 0:
            for r in range(row_begin, row_end):
                for h in range(kv_head * group, (kv_head + 1) * group):
                    o = rows[r] * num_heads + h
                    states[o, 0] = sinks[h] * simd.LOG2_E if len(sinks) else -np.inf
                    states[o, 1] = 1.0 if len(sinks) else 0.0
                    for d in range(0, 4 * head_dim, 32):
                        simd.store(out + 4 * o * head_dim + d, simd.splat(np.float32(0.0)))
        first_key = key_begin
        if window > 0:
            oldest = positions[row_begin]
            for r in range(row_begin, row_end):
                oldest = min(oldest, positions[r])
            first_key = max(key_begin, (oldest - window + 1) // TILE * TILE)
        for tile in range(first_key, key_end, TILE):
            num_keys = min(TILE, key_end - tile)
            _locate_keys(offsets, block_tables[table], tile, num_keys, kv_head, cache_strides, block_size)
            for r in range(row_begin, row_end):
                keys_end = min(num_keys, positions[r] + 1 - tile)
                keys_begin = max(0, positions[r] - window + 1 - tile) if window > 0 else 0
                if keys_begin >= keys_end:
                    continue
                for h in range(kv_head * group, (kv_head + 1) * group):
                    o = rows[r] * num_heads + h
                    _attend_tile(
                        q + 4 * (rows[r] * q_strides[0] + h * q_strides[1]),
                        out + 4 * o * head_dim,
                        states.ctypes.data + 8 * o,
                        k,
                        v,
                        offsets,
                        keys_begin,
                        keys_end,
                        scores,
                        scale,
                        soft_cap,
                        head_dim,
                    )
        if items[i, IS_LAST]:
            for r in range(row_begin, row_end):
                for h in range(kv_head * group, (kv_head + 1) * group):
                    o = rows[r] * num_heads + h
                    for d in range(0, 4 * head_dim, 32):
                        p = out + 4 * o * head_dim + d
                        simd.store(p, simd.div(simd.load(p), simd.splat(states[o, 1])))


@njit(inline="always")
def _locate_keys(offsets, block_table, first_key, num_keys, kv_head, strides, block_size):  # type: ignore[no-untyped-def]
    """Byte offsets of a tile's keys in a cache; the rest of the last group of eight repeats the last key."""
    n = 0
    while n < num_keys:
        block, within = divmod(first_key + n, block_size)
        base = block_table[block] * strides[0] + kv_head * strides[1]
        for slot in range(within, min(block_size, within + num_keys - n)):
            offsets[n] = 4 * (base + slot * strides[2])
            n += 1
    while n % 8:
        offsets[n] = offsets[n - 1]
        n += 1


@njit(cache=True, nogil=True)
def _run_serial(chain_starts, num_kv_heads, *arguments):  # type: ignore[no-untyped-def]
    for c in range(len(chain_starts) - 1):
        for h in range(num_kv_heads):
            _run_chain(chain_starts[c], chain_starts[c + 1], h, *arguments)


@njit(cache=True, nogil=True, parallel=True)
def _run_parallel(chain_starts, num_kv_heads, *arguments):  # type: ignore[no-untyped-def]
    for task in prange((len(chain_starts) - 1) * num_kv_heads):
        c = task // num_kv_heads
        _run_chain(chain_starts[c], chain_starts[c + 1], task % num_kv_heads, *arguments)
