"""Online softmax; join the partial results of a row's splits, root to leaf, and write the row. Knows slots, no keys.

Partials of token t, head h, split j lie in slot `slots[t, 0] + j * slots[t, 1] + h`, whichever program computed it: an
item of the request alone or one that it shared with others. The order of folding is the order of the keys.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ..launch import SPLIT_SIZE
from ..work_buffers import MERGE_ENTRY, CudaWork


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def first_key(position: tl.tensor, window: tl.tensor, IN_CHUNKS: tl.constexpr) -> tl.tensor:
    """The first key that the row at a position sees through a window, or in its chunk; may be negative."""
    return position // window * window if IN_CHUNKS else position - window + 1


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def nothing(ROWS: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """Maximum, sum and weighted values of no key."""
    top = tl.full([ROWS], float("-inf"), tl.float32)
    return top, tl.zeros([ROWS], tl.float32), tl.zeros([ROWS, WIDTH], tl.float32)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def add_scores(scores: tl.tensor, top: tl.tensor, total: tl.tensor) -> tl.tensor:
    """A step of online softmax (arXiv 1805.02867), in base 2: scores `[rows, keys]`, maximum and sum so far `[rows]` ->
    weights of the keys, by what earlier sums shrink, maximum, sum."""
    new_top = tl.maximum(top, tl.max(scores, 1))
    base = tl.where(new_top == float("-inf"), 0.0, new_top)
    weights = tl.exp2(scores - base[:, None])
    decay = tl.exp2(top - base)
    return weights, decay, new_top, total * decay + tl.sum(weights, 1)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def fold(
    top: tl.tensor, total: tl.tensor, acc: tl.tensor, next_top: tl.tensor, next_total: tl.tensor, next_acc: tl.tensor
) -> tl.tensor:
    """Join two partial softmaxes (maximum, sum, weighted values), the earlier keys first.

    Folding into nothing (-inf, 0, 0), or nothing into something, returns the other one exactly. The fused
    multiply-adds are spelt out, so that both callers round alike.
    """
    new_top = tl.maximum(top, next_top)
    base = tl.where(new_top == float("-inf"), 0.0, new_top)
    decay = tl.exp2(top - base)
    weight = tl.exp2(next_top - base)
    total = tl.fma(total, decay, next_total * weight)
    if len(acc.shape) == 2:
        decay = tl.broadcast_to(decay[:, None], acc.shape)
        acc = tl.fma(acc, decay, next_acc * weight[:, None])
    else:
        acc = tl.fma(acc, tl.broadcast_to(decay, acc.shape), next_acc * weight)
    return new_top, total, acc


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def merge_rows(
    sums_ptr: tl.tensor,  # [num_slots, D] fp32
    tops_ptr: tl.tensor,  # [num_slots, 2] fp32
    sinks_ptr: tl.tensor,  # [H]
    tokens_ptr: tl.tensor,  # int32: the tokens whose rows were cut
    count_ptr: tl.tensor,  # [1] int32: how many they are
    positions_ptr: tl.tensor,  # [T] int32
    slots_ptr: tl.tensor,  # [T, 2] int32
    out_ptr: tl.tensor,  # [T, H, D]
    num_heads: tl.tensor,
    window: tl.tensor,
    HEAD_DIM: tl.constexpr,
    BLOCK_DIM: tl.constexpr,
    SPLIT: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    IN_CHUNKS: tl.constexpr,
    HAS_SINKS: tl.constexpr,
) -> None:
    index = tl.program_id(0)
    if index < tl.load(count_ptr):
        token = tl.load(tokens_ptr + index)
        head = tl.program_id(1)
        position = tl.load(positions_ptr + token)
        slot = tl.load(slots_ptr + 2 * token).to(tl.int64) + head
        next_split = tl.load(slots_ptr + 2 * token + 1)
        d = tl.arange(0, BLOCK_DIM)
        in_head = d < HEAD_DIM
        top = tl.full([1], float("-inf"), tl.float32)
        total = tl.zeros([1], tl.float32)
        acc = tl.zeros([BLOCK_DIM], tl.float32)
        if HAS_SINKS:  # a logit that was seen first and carries no value
            top = tl.load(sinks_ptr + head + tl.zeros([1], tl.int32)).to(tl.float32) * 1.4426950408889634
            total += 1.0
        first = 0
        if HAS_WINDOW:
            first = tl.maximum(first_key(position, window, IN_CHUNKS), 0) // SPLIT
        # a split's loads are few: unrolled, those of several are under way together, and folded in the same order
        for split in tl.range(first, position // SPLIT + 1, loop_unroll_factor=16 if BLOCK_DIM <= 128 else 4):
            at = slot + split * next_split
            next_acc = tl.load(sums_ptr + at * HEAD_DIM + d, mask=in_head, other=0.0)
            next_top = tl.load(tops_ptr + 2 * at + tl.zeros([1], tl.int32))
            next_total = tl.load(tops_ptr + 2 * at + 1 + tl.zeros([1], tl.int32))
            top, total, acc = fold(top, total, acc, next_top, next_total, next_acc)
        out = acc / tl.where(total > 0, total, 1.0)
        out_offset = (token.to(tl.int64) * num_heads + head) * HEAD_DIM
        tl.store(out_ptr + out_offset + d, out.to(out_ptr.dtype.element_ty), mask=in_head)


def merge_partials(
    work: CudaWork, sums: Tensor, tops: Tensor, out: Tensor, sinks: Tensor | None, window: int, in_chunks: bool = False
) -> None:
    """Fold the partials of every cut row into out `[T, H, D]`."""
    _, num_heads, head_dim = out.shape
    merge_rows[(work.num_merge_programs, num_heads)](
        sums,
        tops,
        sinks if sinks is not None else out,
        work.merged_tokens,
        work.entry(MERGE_ENTRY),
        work.positions,
        work.slots,
        out,
        num_heads,
        window,
        HEAD_DIM=head_dim,
        BLOCK_DIM=triton.next_power_of_2(head_dim),
        SPLIT=SPLIT_SIZE,
        HAS_WINDOW=window > 0,
        IN_CHUNKS=in_chunks,
        HAS_SINKS=sinks is not None,
        num_warps=1 if head_dim <= 128 else 2,
        enable_fp_fusion=True,
    )
