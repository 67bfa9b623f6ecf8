"""The loops of attention on the CPU: a run of items, tile by tile, for one KV head.

::

    item ──► tile of 64 keys (absolute grid) ──► pack of query rows (token x head of the group)
                                                 1. scores         keys two by two, rows by threes
                                                 2. weights        online softmax, row by row
                                                 3. weighted sums  values one by one, rows by threes

All rows of an item (the heads of a group, the rows of a prefill chunk, the rows of all requests that share the keys)
pass over a tile while it is in L1, so shared keys are fetched once, and in a register tile a key that was loaded meets
three rows (`cpu_attention_tile`). The scores of the first rows ask for the tile's values, their sums for the keys of
the next tile: blocks lie anywhere, so the processor cannot foresee them. A row's running (maximum, sum, p V) rests in
memory between items.

Invariant: what a row gets is a function of its query, its position and its keys alone. Tiles lie at absolute
positions, every sum has a written-down order (`simd`), and values that a row does not see are skipped, not added.
Who calls these loops, and in which order, is `cpu_attention`'s affair.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import njit

from . import simd
from .compiled import compiled
from .cpu_attention_tile import pair_keys, score_keys, score_pairs, weigh_values
from .cpu_work import IS_LAST, KEY_BEGIN, KEY_END, ROW_BEGIN, ROW_END, TABLE_ROW, TILE
from .kv_format import FP8

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM, STORED, NUM_TOKENS = 10, 11, 12, 14, 17  # their places among `numbers`
NUM_NUMBERS = 18
FEW_ROWS = 11  # up to so many it does not pay to pair the keys
MAX_PACK = 192  # rows that pass over a tile together; their scores stay in the second-level cache
_FP32, _INT8, _FP8 = range(3)
KINDS = {torch.float32: _FP32, torch.int8: _INT8, FP8: _FP8}
# lists of a pack: of its rows the addresses of output and state, position, first and end key of the tile; of the tile
# the byte offsets of its keys; addresses of what is wanted next, its values and the next tile's keys
_OUT, _STATE, _POSITION, _BEGIN, _END, _OFFSET, _AHEAD = range(7)
NUM_LISTS = 7


@njit
def workspace(head_dim, stored):  # type: ignore[no-untyped-def]  # numba infers
    """Memory of one thread: the lists of a pack, and numbers whose places `_places` tells."""
    size = 16 + MAX_PACK * (head_dim + TILE + 2) + TILE * head_dim * (1 if stored == _FP32 else 3)
    return np.empty((NUM_LISTS, MAX_PACK), np.int64), np.empty(size, np.float32)


@njit
def _places(floats, head_dim):  # type: ignore[no-untyped-def]
    """Addresses of queries, paired keys, scores, maxima, decays, and widened keys and values."""
    q = (floats.ctypes.data + 63) // 64 * 64
    paired = q + 4 * MAX_PACK * head_dim
    scores = paired + 4 * TILE * head_dim
    tops = scores + 4 * TILE * MAX_PACK
    return q, paired, scores, tops, tops + 4 * MAX_PACK, tops + 8 * MAX_PACK


@njit
def _cap(scores, soft_cap):  # type: ignore[no-untyped-def]
    cap = simd.splat(soft_cap)
    for n in range(scores, scores + 4 * TILE, 32):
        simd.store(n, simd.mul(cap, simd.tanh(simd.div(simd.load(n), cap))))


@njit
def _soften(first, end, scores, tops, decays, lists, soft_cap):  # type: ignore[no-untyped-def]
    """Scores of rows become weights, and what a row has summed so far is to decay by decays[r]."""
    begins, ends, states = lists[_BEGIN], lists[_END], lists[_STATE]
    for r in range(first, end):
        at = scores + 4 * TILE * r
        if soft_cap > 0:
            _cap(at, soft_cap)
        if begins[r] > 0 or ends[r] < TILE:
            for n in range(0, TILE, 8):
                simd.store(at + 4 * n, simd.keep(simd.load(at + 4 * n), begins[r] - n, ends[r] - n))
        best = simd.load(at)
        for n in range(32, 4 * TILE, 32):
            best = simd.larger(simd.load(at + n), best)
        before = simd.load_scalar(states[r])
        after = max(before, simd.largest(best))
        if begins[r] >= ends[r]:  # nothing of this tile: no weight, no decay
            before, after = np.float32(0.0), np.float32(0.0)
        else:
            simd.store_scalar(states[r], after)
        simd.store_scalar(tops + 4 * r, after)
        simd.store_scalar(decays + 4 * r, before - after)
    for r in range(first // 8 * 8, end, 8):
        simd.store(decays + 4 * r, simd.exp2(simd.load(decays + 4 * r)))
    for r in range(first, end):
        at = scores + 4 * TILE * r
        sums, top = simd.splat(np.float32(0.0)), simd.splat(simd.load_scalar(tops + 4 * r))
        for n in range(0, 4 * TILE, 32):
            p = simd.exp2(simd.sub(simd.load(at + n), top))
            simd.store(at + n, p)
            sums = simd.add(sums, p)
        before = simd.load_scalar(states[r] + 4) * simd.load_scalar(decays + 4 * r)
        simd.store_scalar(states[r] + 4, before + simd.total(sums))


@njit
def _rows_together(left):  # type: ignore[no-untyped-def]
    """How many of the `left` rows the next register tile takes: threes, without a lonely last one."""
    return left if left < 3 else 2 if left == 4 else 3


@njit
def _weigh_rows(r, rows, lists, v, ahead, scores, decays, begin, end, head_dim):  # type: ignore[no-untyped-def]
    """Rows r, r + 1, … decay, once, and take in the weighted values of keys begin to end - 1."""
    outs, offsets = lists[_OUT].ctypes.data + 8 * r, lists[_OFFSET].ctypes.data
    at, decay = scores + 4 * TILE * r, decays + 4 * r
    weigh_values(rows, outs, v, offsets, ahead, at, decay, begin, end, head_dim)
    for i in range(rows):
        simd.store_scalar(decay + 4 * i, np.float32(1.0))


@njit
def _weigh(first, end, lists, v, ahead, scores, decays, head_dim):  # type: ignore[no-untyped-def]
    """Add the tile's weighted values to the rows; keys that not all rows of a register tile see go row by row."""
    begins, ends = lists[_BEGIN], lists[_END]
    r = first
    while r < end:
        rows = _rows_together(end - r)
        common, common_end = begins[r], ends[r]
        for i in range(r + 1, r + rows):
            common, common_end = max(common, begins[i]), min(common_end, ends[i])
        if common >= common_end:
            common, common_end = TILE, TILE
        for i in range(r, r + rows):
            if begins[i] < min(ends[i], common):
                _weigh_rows(i, 1, lists, v, 0, scores, decays, begins[i], min(ends[i], common), head_dim)
        if common < common_end:
            wanted = ahead if r == first else 0
            _weigh_rows(r, rows, lists, v, wanted, scores, decays, common, common_end, head_dim)
        for i in range(r, r + rows):
            if max(begins[i], common_end) < ends[i]:
                _weigh_rows(i, 1, lists, v, 0, scores, decays, max(begins[i], common_end), ends[i], head_dim)
        r += rows


@njit
def _score(first, end, places, lists, k, ahead, head_dim):  # type: ignore[no-untyped-def]
    """Dot products of rows first to end - 1 with all keys of the tile that one of them sees, and some around them."""
    q, paired, scores = places[0], places[1], places[2]
    begin, end_key = lists[_BEGIN, first], lists[_END, first]
    for r in range(first + 1, end):
        begin, end_key = min(begin, lists[_BEGIN, r]), max(end_key, lists[_END, r])
    begin, end_key = begin // 8 * 8, (end_key + 7) // 8 * 8
    offsets = lists[_OFFSET].ctypes.data
    is_few = end - first <= FEW_ROWS
    if not is_few:
        pair_keys(k, offsets, ahead, paired, begin, end_key, head_dim)
    r = first
    while r < end:
        rows = _rows_together(end - r)
        queries, at = q + 4 * head_dim * r, scores + 4 * TILE * r
        if is_few:
            score_keys(rows, queries, k, offsets, ahead if r == first else 0, at, begin, end_key, head_dim)
        else:
            score_pairs(rows, queries, paired, at, begin, end_key, head_dim)
        r += rows


@njit(inline="always")
def _attend_tile(count, places, lists, k, v, ahead, soft_cap, head_dim):  # type: ignore[no-untyped-def]
    """The rows of a pack over one tile; row r sees keys begins[r] to ends[r] - 1 of it."""
    scores, tops, decays = places[2], places[3], places[4]
    first, end = 0, count
    while first < end and lists[_BEGIN, first] >= lists[_END, first]:
        first += 1
    while first < end and lists[_BEGIN, end - 1] >= lists[_END, end - 1]:
        end -= 1
    if first < end:
        _score(first, end, places, lists, k, ahead, head_dim)
        _soften(first, end, scores, tops, decays, lists, soft_cap)
        _weigh(first, end, lists, v, ahead + 8 * TILE if ahead != 0 else 0, scores, decays, head_dim)


@njit
def _pass_keys(count, kv_head, key_begin, key_end, table, lists, places, numbers, soft_cap):  # type: ignore[no-untyped-def]
    """The rows of a pack over all keys of an item, tile by tile."""
    k, v, block_stride, head_stride, slot_stride, block_size = numbers[3:9]
    num_kv_heads, head_dim, window, stored, k_scales, v_scales = numbers[NUM_KV_HEADS:NUM_TOKENS]
    widened = places[5]
    base = kv_head * head_stride
    offsets, ahead = lists[_OFFSET], lists[_AHEAD]
    oldest, newest = lists[_POSITION, 0], lists[_POSITION, 0]
    for r in range(1, count):
        oldest, newest = min(oldest, lists[_POSITION, r]), max(newest, lists[_POSITION, r])
    if window > 0:
        key_begin = max(key_begin, (oldest - window + 1) // TILE * TILE)
    key_end = min(key_end, newest + 1)
    was_full = False
    for tile in range(key_begin, key_end, TILE):
        num_keys = min(TILE, key_end - tile)
        is_full = tile + TILE <= oldest + 1 and (window == 0 or tile > newest - window)
        if not (is_full and was_full):
            for r in range(count):
                position = lists[_POSITION, r] - tile
                begin, end = max(0, position - window + 1) if window > 0 else 0, min(num_keys, position + 1)
                if begin >= end:
                    begin, end = TILE, 0
                lists[_BEGIN, r], lists[_END, r] = begin, end
        was_full = is_full
        has_next = False
        if stored == _FP32:
            _locate_keys(offsets, table, tile, num_keys, base, block_stride, slot_stride, block_size)
            has_next = tile + 2 * TILE <= key_end
        else:
            shape = (tile, num_keys, kv_head, num_kv_heads, block_size, head_dim)
            strides = (base, block_stride, slot_stride)
            k, v = widened, widened + 4 * TILE * head_dim
            _widen(k, numbers[3], k_scales, table, shape, strides, stored)
            _widen(v, numbers[4], v_scales, table, shape, strides, stored)
            for n in range(TILE):
                offsets[n] = 4 * min(n, num_keys - 1) * head_dim
        if has_next:
            _locate_keys(ahead, table, tile + TILE, TILE, base, block_stride, slot_stride, block_size)
            for n in range(TILE):
                ahead[TILE + n] = k + ahead[n]
                ahead[n] = v + offsets[n]
        _attend_tile(count, places, lists, k, v, ahead.ctypes.data if has_next else 0, soft_cap, head_dim)


@njit(inline="always")
def run_items(  # type: ignore[no-untyped-def]
    first_item, end_item, kv_head, items, rows, positions, block_tables, states, sinks, numbers, factors, lists, floats
):
    """A run of items for one KV head; numbers and factors as `cpu_attention` packs them."""
    q, q_token, q_head = numbers[0], 4 * numbers[1], 4 * numbers[2]
    out, num_heads, num_kv_heads, head_dim = numbers[9:13]
    group = num_heads // num_kv_heads
    places = _places(floats, head_dim)
    for i in range(first_item, end_item):
        row_begin, row_end = items[i, ROW_BEGIN], items[i, ROW_END]
        if items[i, KEY_BEGIN] == 0:
            _open_rows(rows[row_begin:row_end], kv_head, group, num_heads, head_dim, out, states, sinks)
        num_packed = (row_end - row_begin) * group
        for first in range(0, num_packed, MAX_PACK):
            count = min(num_packed - first, MAX_PACK)
            for r in range(count):
                row = row_begin + (first + r) // group
                head = kv_head * group + (first + r) % group
                source, target = q + rows[row] * q_token + head * q_head, places[0] + 4 * r * head_dim
                for d in range(0, 4 * head_dim, 32):
                    simd.store(target + d, simd.mul(simd.load(source + d), simd.splat(np.float32(factors[0]))))
                o = rows[row] * num_heads + head
                lists[_OUT, r] = out + 4 * o * head_dim
                lists[_STATE, r] = states.ctypes.data + 8 * o
                lists[_POSITION, r] = positions[row]
            keys = (items[i, KEY_BEGIN], items[i, KEY_END], block_tables[items[i, TABLE_ROW]])
            _pass_keys(count, kv_head, *keys, lists, places, numbers, np.float32(factors[1]))
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


@njit
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


@compiled()
def run_serial(chain_starts, items, rows, positions, tables, sinks, numbers, factors):  # type: ignore[no-untyped-def]
    """Item by item, all heads of each: in memory the heads of a block are neighbours."""
    states = np.empty((numbers[NUM_TOKENS] * numbers[NUM_HEADS], 2), np.float32)
    lists, floats = workspace(numbers[HEAD_DIM], numbers[STORED])
    for i in range(chain_starts[-1]):
        for h in range(numbers[NUM_KV_HEADS]):
            run_items(i, i + 1, h, items, rows, positions, tables, states, sinks, numbers, factors, lists, floats)
