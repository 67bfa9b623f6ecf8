"""One attention kernel, driven by a work list, for decode, prefill chunks, drafts and shared prefixes alike.

An item is (block-table row, KV head, range of keys, run of packed query rows). A packed row is (token, head of
the group), so that a tile of the tensor core is filled by the heads that share a KV head, by the tokens of a
chunk and by the requests that share the keys::

    keys        0 ......... 256 ......... 512 ......... 700      absolute grid of splits
    request a   │ partial 0  │ partial 1  │ partial 2 │          three items, merged by `triton.merge`
    request b   │ fold ──────► fold ──────► fold ─────► out      one item that walks all its splits

Every split is reduced on its own, from nothing, in steps of BLOCK_KEYS keys; splits are folded left to right.
Whether splits are folded here (an item that owns all keys of its rows) or in the merge kernel (an item that
owns one split) is a matter of load balance and changes no arithmetic operation. Only the widest tile class runs
through all its keys with one sum: two of them would not fit its registers.

The number of programs suits the device, or is that of a captured graph; each takes its share of the items.

Softmax is in base 2; scores, weights and sums are fp32. It does not know how the items were planned.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..attention_mass import LayerMass, SeenScores
from ..kv_format import INT4
from ..launch import SPLIT_SIZE, attention_config
from ..work_buffers import CudaWork
from .items import find_tile, look_up_rows, num_turns, store_rows, store_scores, take_item
from .merge import add_scores, first_key, fold, merge_partials, nothing

LOG2_E = 1.4426950408889634


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def unpack(pairs: tl.tensor) -> tl.tensor:
    """Bytes `[keys, dims / 2]` of int4 as the numbers -8 … 7 that they hold, `[keys, dims]` fp32."""
    low, high = (pairs & 15).to(tl.int8), (pairs >> 4).to(tl.int8)
    return tl.interleave(low, high).to(tl.float32) - 8.0


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def load_scales(at: tl.tensor, IN_PAIRS: tl.constexpr) -> tl.tensor:
    """The scales that stand there, and the middles of int4 (else nothing of use)."""
    scale = tl.load(at)
    middle = scale
    if IN_PAIRS:
        middle = (scale << 16).to(tl.float32, bitcast=True)
        scale = (scale & -0x10000).to(tl.float32, bitcast=True)
    return scale, middle


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def add_sinks(
    item: tl.tensor, sinks_ptr: tl.tensor, head: tl.tensor, in_rows: tl.tensor, top: tl.tensor, total: tl.tensor
) -> tl.tensor:
    """(Maximum, sum) of each row, whose head is given, after a logit that carries no value, if the item is direct."""
    is_direct = tl.load(item + 6) != 0
    sink = tl.load(sinks_ptr + head, mask=in_rows, other=0.0).to(tl.float32) * 1.4426950408889634
    return tl.where(is_direct, sink, top), tl.where(is_direct, 1.0, total)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def load_tiles(
    k_at: tl.tensor,  # [keys], where they begin
    v_at: tl.tensor,
    K_TYPE: tl.constexpr,
    V_TYPE: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    QUANTISED: tl.constexpr,
    IN_PAIRS: tl.constexpr,
) -> tl.tensor:
    """Keys and values `[keys, BLOCK_DIM]`, with zeros from HEAD_DIM on; rounded ones as numbers of these types."""
    c = tl.arange(0, BLOCK_DIM // 2 if IN_PAIRS else BLOCK_DIM)
    in_row = c < (HEAD_DIM // 2 if IN_PAIRS else HEAD_DIM)
    k_at = k_at[:, None] + c[None, :]
    v_at = v_at[:, None] + c[None, :]
    if HEAD_DIM == BLOCK_DIM:
        k = tl.load(k_at)
        v = tl.load(v_at)
    elif QUANTISED:
        k = tl.load(k_at, mask=in_row[None, :])
        v = tl.load(v_at, mask=in_row[None, :])
    else:
        k = tl.load(k_at, mask=in_row[None, :], other=0.0)
        v = tl.load(v_at, mask=in_row[None, :], other=0.0)
    if IN_PAIRS:
        k, v = unpack(k), unpack(v)
    if QUANTISED:
        k = k.to(tl.float32).to(K_TYPE)
        v = v.to(tl.float32).to(V_TYPE)
        if HEAD_DIM != BLOCK_DIM:
            in_head = tl.arange(0, BLOCK_DIM) < HEAD_DIM
            k = tl.where(in_head[None, :], k, 0.0)
            v = tl.where(in_head[None, :], v, 0.0)
    return k, v


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def score_keys(
    q: tl.tensor,
    q_sum: tl.tensor,  # [rows], what a middle meets; read if IN_PAIRS
    k: tl.tensor,
    scales_at: tl.tensor,  # [keys]; read if QUANTISED
    scale: tl.tensor,
    soft_cap: tl.tensor,
    QUANTISED: tl.constexpr,
    IN_PAIRS: tl.constexpr,
    HAS_CAP: tl.constexpr,
) -> tl.tensor:
    """`[rows, keys]` fp32, in base 2."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    if QUANTISED:
        k_scale, k_middle = load_scales(scales_at, IN_PAIRS)
        scores = scores * k_scale[None, :]
        if IN_PAIRS:
            scores += q_sum[:, None] * k_middle[None, :]
    if HAS_CAP:  # cap * tanh(x), tanh(x) = 1 - 2 / (exp(2 x) + 1)
        e = tl.exp2(tl.minimum(scores / soft_cap, 20.0) * (2.0 * 1.4426950408889634))
        scores = soft_cap * (1.0 - 2.0 / (e + 1.0))
    return scores


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def add_values(
    acc: tl.tensor,
    weights: tl.tensor,
    v: tl.tensor,
    scales_at: tl.tensor,  # [keys]; read if QUANTISED
    QUANTISED: tl.constexpr,
    IN_PAIRS: tl.constexpr,
) -> tl.tensor:
    """The sums `[rows, BLOCK_DIM]` with the values of these keys, each times its weight."""
    if QUANTISED:
        v_scale, v_middle = load_scales(scales_at, IN_PAIRS)
        if IN_PAIRS:
            acc += tl.sum(weights * v_middle[None, :], 1)[:, None]
        weights = weights * v_scale[None, :]
    return tl.dot(weights.to(v.dtype), v, acc, input_precision="ieee")


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def attend_items(
    q_ptr: tl.tensor,  # [T, H, D]
    k_ptr: tl.tensor,  # [num_blocks, Hkv, BLOCK_SIZE, D], of int4 half as wide
    v_ptr: tl.tensor,
    out_ptr: tl.tensor,  # [T, H, D]
    sums_ptr: tl.tensor,  # [num_slots, D] fp32: weighted values of partials
    tops_ptr: tl.tensor,  # [num_slots, 2] fp32: maximum and sum of partials
    sinks_ptr: tl.tensor,  # [H]
    k_scales_ptr: tl.tensor,  # [num_blocks, Hkv, BLOCK_SIZE] fp32, of int4 int32; read if QUANTISED
    v_scales_ptr: tl.tensor,
    items_ptr: tl.tensor,  # [N, 8] int32
    launch_ptr: tl.tensor,  # [2] int32: first item of this launch, number of items
    rows_ptr: tl.tensor,  # [T] int32: token of a row
    positions_ptr: tl.tensor,  # [T] int32, by token
    slots_ptr: tl.tensor,  # [T, 2] int32: first slot of a token, slots from split to split
    tables_ptr: tl.tensor,  # int32: what the block tables' places in items count from
    seen_ptr: tl.tensor,  # scores that are kept, and their places `[T, 2]`; written if SEEN
    seen_places_ptr: tl.tensor,
    q_token: tl.tensor,
    q_head: tl.tensor,
    kv_block: tl.tensor,
    kv_head_stride: tl.tensor,
    kv_slot: tl.tensor,
    scale_block: tl.tensor,  # Hkv * BLOCK_SIZE
    num_heads: tl.tensor,
    scale: tl.tensor,  # times log2(e)
    soft_cap: tl.tensor,  # times log2(e)
    window: tl.tensor,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SPLIT: tl.constexpr,
    FOLDS: tl.constexpr,  # every split is summed up on its own; else an item is one sum
    QUANTISED: tl.constexpr,  # int8, fp8 or int4 keys and values
    IN_PAIRS: tl.constexpr,  # int4
    HAS_WINDOW: tl.constexpr,
    IN_CHUNKS: tl.constexpr,
    HAS_CAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    SEEN: tl.constexpr,  # some rows' attention is summed
    STAGES: tl.constexpr,
) -> None:
    for turn in range(num_turns(launch_ptr)):
        item, is_there = take_item(turn, items_ptr, launch_ptr)
        if is_there:
            table = tables_ptr + tl.load(item)
            kv_head = tl.load(item + 1)
            key_begin = tl.load(item + 2)
            key_end = tl.load(item + 3)
            token, head, in_rows = look_up_rows(item, rows_ptr, GROUP, BLOCK_ROWS, "")
            position = tl.load(positions_ptr + token, mask=in_rows, other=-1)
            d = tl.arange(0, BLOCK_DIM)
            in_head = d < HEAD_DIM
            q_offset = token.to(tl.int64) * q_token + head * q_head
            q_mask = in_rows[:, None] & in_head[None, :]
            q = tl.load(q_ptr + q_offset[:, None] + d[None, :], mask=q_mask, other=0.0)
            q_sum = tl.sum(q.to(tl.float32), 1) * scale if IN_PAIRS else scale

            if HAS_WINDOW:  # blocks that no row can see are skipped; they would add exactly nothing
                edge = first_key(position, window, IN_CHUNKS)
                oldest = tl.min(tl.where(in_rows, edge, 2147483647), 0)
                key_begin = tl.maximum(key_begin, tl.maximum(oldest, 0) // BLOCK_KEYS * BLOCK_KEYS)

            folded_top, folded_total, folded = nothing(BLOCK_ROWS, BLOCK_DIM)
            if HAS_SINKS:
                folded_top, folded_total = add_sinks(item, sinks_ptr, head, in_rows, folded_top, folded_total)
            top, total, acc = nothing(BLOCK_ROWS, BLOCK_DIM)
            kv_offset = kv_head.to(tl.int64) * kv_head_stride
            for start in tl.range(key_begin, key_end, BLOCK_KEYS, num_stages=STAGES):
                n, block, place = find_tile(table, start, key_end, BLOCK_KEYS, BLOCK_SIZE)
                offset = kv_offset + block * kv_block + place * kv_slot
                scale_at = block * scale_block + kv_head * BLOCK_SIZE + place
                # every rounded number is one of q's type as well, and one of bf16: in fp16 weights times scales, which
                # may be tiny, would lose their digits
                v_type: tl.constexpr = tl.bfloat16 if q.dtype == tl.float16 else q.dtype
                k, v = load_tiles(
                    k_ptr + offset, v_ptr + offset, q.dtype, v_type, HEAD_DIM, BLOCK_DIM, QUANTISED, IN_PAIRS
                )
                k_scales_at = k_scales_ptr + scale_at
                scores = score_keys(q, q_sum, k, k_scales_at, scale, soft_cap, QUANTISED, IN_PAIRS, HAS_CAP)
                visible = (n[None, :] < key_end) & (n[None, :] <= position[:, None])
                if HAS_WINDOW:
                    visible = visible & (n[None, :] >= edge[:, None])
                scores = tl.where(visible, scores, float("-inf"))
                if SEEN:
                    store_scores(item, rows_ptr, seen_ptr, seen_places_ptr, n, scores, GROUP)

                weights, decay, top, total = add_scores(scores, top, total)
                acc = acc * decay[:, None]
                acc = add_values(acc, weights, v, v_scales_ptr + scale_at, QUANTISED, IN_PAIRS)
                if FOLDS and (start + BLOCK_KEYS) % SPLIT == 0:
                    folded_top, folded_total, folded = fold(folded_top, folded_total, folded, top, total, acc)
                    top, total, acc = nothing(BLOCK_ROWS, BLOCK_DIM)
            # the last split, or nothing if it was folded just now: folding nothing changes nothing
            folded_top, folded_total, folded = fold(folded_top, folded_total, folded, top, total, acc)
            places = (out_ptr, sums_ptr, tops_ptr)
            result = (folded_top, folded_total, folded)
            store_rows(item, rows_ptr, slots_ptr, places, result, num_heads, GROUP, HEAD_DIM, SPLIT)


def cuda_attention(
    work: CudaWork,
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
    """`attention` on the device of `work`; q `[T, H, D]` may be a view with a dense last axis, scales are dense.

    One launch per tile class in the step (one for a step that only decodes), and one to merge if any request was
    cut. If the work has fixed buffers, nothing here depends on the step but its signature, and nothing but the result
    is allocated. With `mass` something is, and in no graph.
    """
    num_tokens, num_heads, head_dim = q.shape
    _, num_kv_heads, block_size, _ = k_cache.shape
    out = torch.empty((num_tokens, num_heads, head_dim), dtype=q.dtype, device=q.device)
    sums, tops = work.partial_results(head_dim)
    seen = None if mass is None else SeenScores(mass, num_tokens, num_heads)
    for launch in work.launches:
        options = (q.element_size(), k_scales is not None, seen is not None)
        config = attention_config(launch.block_rows, launch.folds, head_dim, *options)
        attend_items[(work.num_programs or launch.num_items,)](
            q,
            k_cache,
            v_cache,
            out,
            sums,
            tops,
            sinks if sinks is not None else q,
            k_scales if k_scales is not None else q,
            v_scales if v_scales is not None else q,
            work.items,
            work.entry(launch.entry),
            work.rows,
            work.positions,
            work.slots,
            work.buffer,
            seen.scores if seen is not None else q,
            seen.places if seen is not None else q,
            q.stride(0),
            q.stride(1),
            k_cache.stride(0),
            k_cache.stride(1),
            k_cache.stride(2),
            num_kv_heads * block_size,
            num_heads,
            scale * LOG2_E,
            soft_cap * LOG2_E,
            window,
            GROUP=num_heads // num_kv_heads,
            HEAD_DIM=head_dim,
            BLOCK_DIM=triton.next_power_of_2(head_dim),
            BLOCK_ROWS=config.block_rows,
            BLOCK_KEYS=config.block_keys,
            BLOCK_SIZE=block_size,
            SPLIT=SPLIT_SIZE,
            FOLDS=launch.folds,
            QUANTISED=k_scales is not None,
            IN_PAIRS=k_cache.dtype == INT4,
            HAS_WINDOW=window > 0,
            IN_CHUNKS=in_chunks,
            HAS_CAP=soft_cap > 0,
            HAS_SINKS=sinks is not None,
            SEEN=seen is not None,
            STAGES=config.num_stages,
            num_warps=config.num_warps,
            num_stages=config.num_stages,
            maxnreg=config.max_registers,
            enable_fp_fusion=True,
        )
    if work.num_merged:
        merge_partials(work, sums, tops, out, sinks, window, in_chunks)
    if mass is not None and seen is not None:
        seen.add_to(mass, 1 / LOG2_E, sinks)
    return out
