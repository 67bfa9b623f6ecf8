"""Products of rows with weights of experts in MXFP4, which stay in four bits until they are in registers.

Few rows are bound by reading weights, and these are a quarter of bf16. The weights are the left side of the product
and the rows the right one: on Hopper the left side may come from registers, where the numbers are widened, exactly, to
bf16 with their scales. Otherwise as `triton.experts.multiply_tiles`, tile by tile.

Weights are copied into shared memory some steps ahead. On Hopper the compiler does so neither with rows (there they lie
side by side, other than in memory) nor anywhere with scales (four bytes that begin at any byte), and every step would
wait for both as long as it computes. Where rows are few, a step therefore loads those of the next one.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .tiles import take_tile


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def multiply_mxfp4_tiles(
    x_ptr: tl.tensor,  # [., depth] bf16, rows of tokens, or of sorted pairs
    weight_ptr: tl.tensor,  # [num_experts, num_outputs, depth / 2] uint8
    scales_ptr: tl.tensor,  # [num_experts, num_outputs, depth / 32] uint8
    bias_ptr: tl.tensor,  # [num_experts, num_outputs]
    out_ptr: tl.tensor,  # [num_pairs, num_outputs]
    order_ptr: tl.tensor,  # [num_pairs] int32: pair of a sorted place
    starts_ptr: tl.tensor,  # [num_experts + 1] int32
    tiles_ptr: tl.tensor,  # [num_experts + 1] int32
    x_stride: tl.tensor,
    num_experts: tl.tensor,
    num_outputs: tl.tensor,
    depth: tl.tensor,
    NUM_CHOSEN: tl.constexpr,  # pairs of a token
    IN_ORDER: tl.constexpr,  # x has a row per token and out one per sorted place; else a sorted one, and one per pair
    HAS_BIAS: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    LOOKS_AHEAD: tl.constexpr = BLOCK_ROWS == 16  # with more rows its registers would cost a program per processor
    expert, place, is_there = take_tile(starts_ptr, tiles_ptr, num_experts, BLOCK_EXPERTS, BLOCK_ROWS)
    if expert < num_experts:
        pair = tl.load(order_ptr + place, mask=is_there, other=0)
        row = pair // NUM_CHOSEN if IN_ORDER else place
        n = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
        k = tl.arange(0, BLOCK_DEPTH)
        byte = tl.arange(0, BLOCK_DEPTH // 2)
        group = tl.arange(0, BLOCK_DEPTH // 32)
        # outputs past the end are computed from the last one's weights and not stored
        output = expert.to(tl.int64) * num_outputs + tl.minimum(n, num_outputs - 1)
        x_at = x_ptr + tl.where(is_there, row, 0).to(tl.int64)[None, :] * x_stride + k[:, None]
        num_groups = depth // 32
        num_bytes = num_groups * 16  # the compiler sees that rows begin where 16 bytes can be copied at once
        weight_at = weight_ptr + output[:, None] * num_bytes + byte[None, :]
        scales_at = scales_ptr + output[:, None] * num_groups + group[None, :]
        acc = tl.zeros([BLOCK_OUTPUTS, BLOCK_ROWS], tl.float32)
        if LOOKS_AHEAD:
            x = tl.load(x_at, mask=k[:, None] < depth, other=0.0)
            scale = tl.load(scales_at, mask=group[None, :] < num_groups, other=127)
        for begin in tl.range(0, depth, BLOCK_DEPTH, num_stages=STAGES):
            ahead = begin + BLOCK_DEPTH if LOOKS_AHEAD else begin
            loaded_x = tl.load(x_at + ahead, mask=k[:, None] < depth - ahead, other=0.0)
            weight = tl.load(weight_at + begin // 2, mask=byte[None, :] < num_bytes - begin // 2, other=0)
            loaded_scale = tl.load(scales_at + ahead // 32, mask=group[None, :] < num_groups - ahead // 32, other=127)
            if not LOOKS_AHEAD:
                x, scale = loaded_x, loaded_scale
            # fast: no look at each scale whether it is 255, which is refused when the model is loaded
            acc = tl.dot_scaled(weight, scale, "e2m1", x, None, "bf16", acc, fast_math=True)
            if LOOKS_AHEAD:
                x, scale = loaded_x, loaded_scale
        if HAS_BIAS:
            acc += tl.load(bias_ptr + output).to(tl.float32)[:, None]
        to = (place if IN_ORDER else pair).to(tl.int64)
        mask = (n < num_outputs)[:, None] & is_there[None, :]
        tl.store(out_ptr + to[None, :] * num_outputs + n[:, None], acc.to(out_ptr.dtype.element_ty), mask=mask)
