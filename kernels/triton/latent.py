"""Attention over latents (MLA, DeepSeek-V2, arXiv 2405.04434): one vector per token, shared by all heads.

The cache keeps for a token its latent (RANK numbers, of which keys and values of every head are projections) and its
rotary key (the rest, one for all heads). With the projections absorbed into query and output, a query is a vector of
the cache's width, and attention is that of one KV head whose values are the first RANK numbers of its keys::

    query   │ q · W_k, per head │ rotary │      scores = query · stored
    stored  │ latent, one for all │ rotary │   out = softmax(scores) · latent, then · W_v, per head

So a tile of latents is read once for scores and values, for all heads of a token that fit a tile of rows, and for all
requests that share it. Items, splits, folding and merging are those of `triton.attention`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..attention_mass import LayerMass, SeenScores
from ..launch import SPLIT_SIZE, latent_config
from ..work_buffers import CudaWork
from .attention import LOG2_E
from .items import find_tile, look_up_rows, num_turns, store_rows, store_scores, take_item
from .merge import add_scores, fold, merge_partials, nothing


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def attend_latents(
    q_ptr: tl.tensor,  # [T, H, RANK + ROTARY]
    cache_ptr: tl.tensor,  # [num_blocks, BLOCK_SIZE, RANK + ROTARY]
    out_ptr: tl.tensor,  # [T, H, RANK]
    sums_ptr: tl.tensor,  # [num_slots, RANK] fp32
    tops_ptr: tl.tensor,  # [num_slots, 2] fp32
    items_ptr: tl.tensor,  # [N, 8] int32
    launch_ptr: tl.tensor,  # [2] int32: first item of this launch, number of items
    rows_ptr: tl.tensor,  # [T] int32
    positions_ptr: tl.tensor,  # [T] int32, by token
    slots_ptr: tl.tensor,  # [T, 2] int32
    tables_ptr: tl.tensor,  # int32
    seen_ptr: tl.tensor,  # scores that are kept, and their places `[T, 2]`; written if SEEN
    seen_places_ptr: tl.tensor,
    q_token: tl.tensor,
    q_head: tl.tensor,
    num_heads: tl.tensor,
    scale: tl.tensor,  # times log2(e)
    RANK: tl.constexpr,
    ROTARY: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_KEYS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    SPLIT: tl.constexpr,
    FOLDS: tl.constexpr,
    SEEN: tl.constexpr,  # some rows' attention is summed
    STAGES: tl.constexpr,
) -> None:
    d = tl.arange(0, RANK)
    r = tl.arange(0, ROTARY)
    for turn in range(num_turns(launch_ptr)):
        item, is_there = take_item(turn, items_ptr, launch_ptr)
        if is_there:
            table = tables_ptr + tl.load(item)
            key_begin = tl.load(item + 2)
            key_end = tl.load(item + 3)
            token, head, in_rows = look_up_rows(item, rows_ptr, num_heads, BLOCK_ROWS, "")
            position = tl.load(positions_ptr + token, mask=in_rows, other=-1)
            q_at = q_ptr + (token.to(tl.int64) * q_token + head * q_head)[:, None]
            q = tl.load(q_at + d[None, :], mask=in_rows[:, None], other=0.0)
            q_rotary = tl.load(q_at + RANK + r[None, :], mask=in_rows[:, None], other=0.0)

            folded_top, folded_total, folded = nothing(BLOCK_ROWS, RANK)
            top, total, acc = nothing(BLOCK_ROWS, RANK)
            for start in tl.range(key_begin, key_end, BLOCK_KEYS, num_stages=STAGES):
                n, block, place = find_tile(table, start, key_end, BLOCK_KEYS, BLOCK_SIZE)
                at = cache_ptr + (block * BLOCK_SIZE + place)[:, None] * (RANK + ROTARY)
                latents = tl.load(at + d[None, :])
                rotary = tl.load(at + RANK + r[None, :])
                scores = tl.dot(q, tl.trans(latents), input_precision="ieee")
                scores = tl.dot(q_rotary, tl.trans(rotary), scores, input_precision="ieee") * scale
                visible = (n[None, :] < key_end) & (n[None, :] <= position[:, None])
                scores = tl.where(visible, scores, float("-inf"))
                if SEEN:
                    store_scores(item, rows_ptr, seen_ptr, seen_places_ptr, n, scores, num_heads)
                weights, decay, top, total = add_scores(scores, top, total)
                acc = tl.dot(weights.to(latents.dtype), latents, acc * decay[:, None], input_precision="ieee")
                if FOLDS and (start + BLOCK_KEYS) % SPLIT == 0:
                    folded_top, folded_total, folded = fold(folded_top, folded_total, folded, top, total, acc)
                    top, total, acc = nothing(BLOCK_ROWS, RANK)
            if FOLDS:
                top, total, acc = fold(folded_top, folded_total, folded, top, total, acc)
            places = (out_ptr, sums_ptr, tops_ptr)
            store_rows(item, rows_ptr, slots_ptr, places, (top, total, acc), num_heads, num_heads, RANK, SPLIT)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def scatter_latents(
    latents_ptr: tl.tensor,  # [T, WIDTH]
    cache_ptr: tl.tensor,  # [num_blocks * block_size, WIDTH]
    slots_ptr: tl.tensor,  # [T] int64
    token_stride: tl.tensor,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(slots_ptr + token)
    if slot >= 0:
        c = tl.arange(0, BLOCK)
        values = tl.load(latents_ptr + token * token_stride + c, mask=c < WIDTH)
        tl.store(cache_ptr + slot * WIDTH + c, values.to(cache_ptr.dtype.element_ty), mask=c < WIDTH)


def write_latents(latents: Tensor, cache: Tensor, slots: Tensor) -> None:
    """`ops.write_latents` on the device of the cache, which is dense."""
    num_tokens, width = latents.shape
    if num_tokens:
        block = triton.next_power_of_2(width)
        scatter_latents[(num_tokens,)](latents, cache, slots, latents.stride(0), WIDTH=width, BLOCK=block, num_warps=4)


def latent_attention(
    work: CudaWork, q: Tensor, cache: Tensor, *, scale: float, rank: int, mass: LayerMass | None = None
) -> Tensor:
    """`ops.latent_attention` on the device of `work`; q may be a view with a dense last axis, the cache is dense."""
    num_tokens, num_heads, width = q.shape
    out = torch.empty((num_tokens, num_heads, rank), dtype=q.dtype, device=q.device)
    sums, tops = work.partial_results(rank)
    seen = None if mass is None else SeenScores(mass, num_tokens, num_heads)
    for launch in work.launches:
        config = latent_config(launch.block_rows, q.element_size())
        attend_latents[(work.num_programs or launch.num_items,)](
            q,
            cache,
            out,
            sums,
            tops,
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
            num_heads,
            scale * LOG2_E,
            RANK=rank,
            ROTARY=width - rank,
            BLOCK_ROWS=config.block_rows,
            BLOCK_KEYS=config.block_keys,
            BLOCK_SIZE=cache.shape[1],
            SPLIT=SPLIT_SIZE,
            FOLDS=launch.folds,
            SEEN=seen is not None,
            STAGES=config.num_stages,
            num_warps=config.num_warps,
            num_stages=config.num_stages,
            maxnreg=config.max_registers,
            enable_fp_fusion=True,
        )
    if work.num_merged:
        merge_partials(work, sums, tops, out, None, 0)
    if mass is not None and seen is not None:
        seen.add_to(mass, 1 / LOG2_E, None)
    return out
