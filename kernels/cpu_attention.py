"""Attention on the CPU: straight over the paged blocks, one compiled call per layer for the whole batch.

A work item is (block-table row, range of keys, run of query rows); it is done for every KV head::

    chain ──► item ──► tile of 64 keys (absolute grid) ──► pack of query rows (token x head of the group)
              root                                          1. scores         K of the tile from L1, rows by threes
              to leaf                                       2. weights        online softmax, row by row
                                                            3. weighted sums  V of the tile from L1, rows by threes

All rows of an item (the heads of a group, the rows of a prefill chunk, the rows of all requests that share the keys)
pass over a tile while it is in L1, so shared keys are fetched once, and in a register tile a key that was loaded meets
three rows (`cpu_attention_tile`). The scores of the first rows ask for the tile's values, their sums for the keys of
the next tile: blocks lie anywhere, so the processor cannot foresee them. A row's running (maximum, sum, p V) rests in
memory between items; a chain is a list of items that run one after another, and chains are independent (the threads'
unit of work).

Invariant: what a row gets is a function of its query, its position and its keys alone. Tiles lie at absolute
positions, every sum has a written-down order (`simd`), and the masked tail of a tile is skipped, not added.
So a row's bits are the same for every batch, chunking, cache hit, prefix sharing and number of threads.
(The matmuls around it are another matter: a BLAS may change its order of summation with the row count.)

q is fp32, KV fp32, int8 or fp8; `ops.attention` takes the reference for other types.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from numba import njit, prange
from torch import Tensor

from . import simd
from .cpu_attention_tile import score_keys, weigh_values
from .cpu_threads import thread_team
from .cpu_work import IS_LAST, KEY_BEGIN, KEY_END, ROW_BEGIN, ROW_END, TABLE_ROW, TILE, CpuWork
from .kv_format import FP8

IntArray = npt.NDArray[np.int32]

NUM_KV_HEADS = 11  # its place among `numbers`
MAX_PACK = 192  # rows that pass over a tile together; their scores stay in the second-level cache
_FP32, _INT8, _FP8 = range(3)
_STORED = {torch.float32: _FP32, torch.int8: _INT8, FP8: _FP8}
_LIST = 8 * MAX_PACK  # bytes of a list of addresses
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
    k_scales: Tensor | None,
    v_scales: Tensor | None,
) -> Tensor:
    """`attention` for fp32 q on the CPU; q `[T, H, D]` may be a view with any strides but a dense last axis.

    The caches are fp32, or int8 or fp8 with their scales: a tile of those is widened once for all its rows.
    """
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
            _STORED[k_cache.dtype],
            0 if k_scales is None else k_scales.data_ptr(),
            0 if v_scales is None else v_scales.data_ptr(),
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


@njit
def _soften(scores, state, decay, begin, end, scale, soft_cap):  # type: ignore[no-untyped-def]  # numba infers
    """Scores of keys begin to end - 1 become weights; state = [running maximum, running sum]."""
    best = simd.splat(np.float32(-np.inf))
    for n in range(begin // 8 * 8, end, 8):
        s = simd.mul(simd.load(scores + 4 * n), simd.splat(scale))
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
    factor = simd.first(simd.exp2(simd.splat(before - after)))
    simd.store_scalar(decay, factor)
    simd.store_scalar(state, after)
    simd.store_scalar(state + 4, simd.load_scalar(state + 4) * factor + simd.total(sums))


@njit(inline="always")
def _rows_together(left):  # type: ignore[no-untyped-def]
    """How many of the `left` rows the next register tile takes: threes, without a lonely last one."""
    return left if left < 3 else 2 if left == 4 else 3


@njit
def _attend_tile(pack, begins, ends, num_rows, k, v, offsets, ahead, scale, soft_cap, head_dim):  # type: ignore[no-untyped-def]
    """Rows of a pack over one tile of keys; row r sees keys begins[r] to ends[r] - 1 of it.

    pack: the address of five lists of MAX_PACK: addresses of a row's query, output, state and scores, and its decays.
    """
    q, out, state, scores, decay = pack, pack + _LIST, pack + 2 * _LIST, pack + 3 * _LIST, pack + 4 * _LIST
    r = 0
    while r < num_rows:
        rows = _rows_together(num_rows - r)
        begin, end = begins[r], ends[r]
        for i in range(r + 1, r + rows):
            begin, end = min(begin, begins[i]), max(end, ends[i])
        score_keys(rows, q + 8 * r, k, offsets, ahead if r == 0 else 0, scores + 8 * r, begin // 8 * 8, end, head_dim)
        r += rows
    for r in range(num_rows):
        if begins[r] < ends[r]:
            at, sums = simd.load_int64(scores + 8 * r), simd.load_int64(state + 8 * r)
            _soften(at, sums, decay + 4 * r, begins[r], ends[r], scale, soft_cap)
    r = 0
    while r < num_rows:
        rows = _rows_together(num_rows - r)
        begin, end = begins[r], ends[r]
        for i in range(r + 1, r + rows):
            if begins[i] != begin or ends[i] != end:
                rows = 1
        if begin < end:
            wanted = ahead + 8 * TILE if ahead != 0 and r == 0 else 0
            weigh_values(rows, out + 8 * r, v, offsets, wanted, scores + 8 * r, decay + 4 * r, begin, end, head_dim)
        r += rows


@njit
def _run_items(  # type: ignore[no-untyped-def]
    first_item, end_item, kv_head, items, rows, positions, block_tables, states, sinks, numbers, factors
):
    """A run of items for one KV head; numbers and factors as `cpu_attention` packs them."""
    q, q_token, q_head = numbers[0], 4 * numbers[1], 4 * numbers[2]
    k, v, block_stride, head_stride, slot_stride, block_size = numbers[3:9]
    out, num_heads, num_kv_heads, head_dim, window, stored, k_scales, v_scales = numbers[9:]
    group = num_heads // num_kv_heads
    offsets = np.empty(TILE, np.int64)
    ahead = np.empty(2 * TILE, np.int64)  # values of this tile, keys of the next
    scratch = np.empty((MAX_PACK, TILE), np.float32)
    widened = np.empty((2, TILE * head_dim if stored != _FP32 else 0), np.float32)
    pack = np.empty((5, MAX_PACK), np.int64)
    begins, ends = np.empty(MAX_PACK, np.int64), np.empty(MAX_PACK, np.int64)
    for i in range(first_item, end_item):
        row_begin, row_end = items[i, ROW_BEGIN], items[i, ROW_END]
        if items[i, KEY_BEGIN] == 0:
            _open_rows(rows[row_begin:row_end], kv_head, group, num_heads, head_dim, out, states, sinks)
        first_key = items[i, KEY_BEGIN]
        if window > 0:
            oldest = np.min(positions[row_begin:row_end])
            first_key = max(first_key, (oldest - window + 1) // TILE * TILE)
        num_packed = (row_end - row_begin) * group
        for tile in range(first_key, items[i, KEY_END], TILE):
            num_keys = min(TILE, items[i, KEY_END] - tile)
            table = block_tables[items[i, TABLE_ROW]]
            base = kv_head * head_stride
            if stored == _FP32:
                _locate_keys(offsets, table, tile, num_keys, base, block_stride, slot_stride, block_size)
            else:
                tile_k, tile_v = widened[0].ctypes.data, widened[1].ctypes.data
                shape = (tile, num_keys, kv_head, num_kv_heads, block_size, head_dim)
                strides = (base, block_stride, slot_stride)
                _widen(tile_k, numbers[3], k_scales, table, shape, strides, stored)
                _widen(tile_v, numbers[4], v_scales, table, shape, strides, stored)
                k, v = tile_k, tile_v
                for n in range(TILE):
                    offsets[n] = 4 * n * head_dim
            has_next = stored == _FP32 and tile + 2 * TILE <= items[i, KEY_END]
            if has_next:
                _locate_keys(ahead, table, tile + TILE, TILE, base, block_stride, slot_stride, block_size)
                for n in range(TILE):
                    ahead[TILE + n] = k + ahead[n]
                    ahead[n] = v + offsets[n]
            for first in range(0, num_packed, MAX_PACK):
                count = min(num_packed - first, MAX_PACK)
                for r in range(count):
                    row = row_begin + (first + r) // group
                    head = kv_head * group + (first + r) % group
                    o = rows[row] * num_heads + head
                    pack[0, r] = q + rows[row] * q_token + head * q_head
                    pack[1, r] = out + 4 * o * head_dim
                    pack[2, r] = states.ctypes.data + 8 * o
                    pack[3, r] = scratch.ctypes.data + 4 * TILE * r
                    begins[r] = max(0, positions[row] - window + 1 - tile) if window > 0 else 0
                    ends[r] = min(num_keys, positions[row] + 1 - tile)
                    if begins[r] >= ends[r]:
                        begins[r], ends[r] = num_keys, 0
                _attend_tile(
                    pack.ctypes.data,
                    begins,
                    ends,
                    count,
                    k,
                    v,
                    offsets.ctypes.data,
                    ahead.ctypes.data if has_next and first == 0 else 0,
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


@njit
def _widen(target, cache, scales, table, shape, strides, stored):  # type: ignore[no-untyped-def]
    """A tile's keys (or values) as fp32, one after another."""
    first_key, num_keys, kv_head, num_kv_heads, block_size, head_dim = shape
    base, block_stride, slot_stride = strides
    for n in range(num_keys):
        block, slot = divmod(first_key + n, block_size)
        source = cache + base + table[block] * block_stride + slot * slot_stride
        place = (table[block] * num_kv_heads + kv_head) * block_size + slot
        scale = simd.splat(simd.load_scalar(scales + 4 * place))
        to = target + 4 * n * head_dim
        if stored == _INT8:
            for d in range(0, head_dim, 8):
                simd.store(to + 4 * d, simd.mul(simd.load_int8(source + d), scale))
        else:
            for d in range(0, head_dim, 8):
                simd.store(to + 4 * d, simd.mul(simd.load_fp8(source + d), scale))


@njit(cache=True, nogil=True)
def _run_serial(chain_starts, items, rows, positions, tables, states, sinks, numbers, factors):  # type: ignore[no-untyped-def]
    """Item by item, all heads of each: in memory the heads of a block are neighbours."""
    for i in range(chain_starts[-1]):
        for h in range(numbers[NUM_KV_HEADS]):
            _run_items(i, i + 1, h, items, rows, positions, tables, states, sinks, numbers, factors)


@njit(cache=True, nogil=True, parallel=True)
def _run_parallel(chain_starts, items, rows, positions, tables, states, sinks, numbers, factors):  # type: ignore[no-untyped-def]
    num_kv_heads = numbers[NUM_KV_HEADS]
    for task in prange((len(chain_starts) - 1) * num_kv_heads):
        c, h = task // num_kv_heads, task % num_kv_heads
        begin, end = chain_starts[c], chain_starts[c + 1]
        _run_items(begin, end, h, items, rows, positions, tables, states, sinks, numbers, factors)
