"""Linear maps on the device whose weights and inputs are both int8, where a checkpoint asks for it (`input_step`).

::

    x [T, K] ─ quantise_rows ─► int8 [T, K], steps [T] ─ multiply_int8_rows ─► sums, int32 ─► * step * scale, fp32
                                                         multiply_int8_tiles   the same of experts, without splits

A split's sum is exact; splits, as many as the weight's shape says, become fp32 and are folded in order, as in
`triton.linear`. So a row's bits are its own in every tile, in deterministic mode and out of it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..grouped import INPUT_LIMIT
from ..launch import elementwise_warps, int8_config
from ..linear_weight import LinearWeight
from .linear import multiply_splits
from .tiles import take_tile

COLUMNS = 2048  # of a row that are looked at together


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def quantise_rows(
    x_ptr: tl.tensor,  # [T, depth]
    out_ptr: tl.tensor,  # [T, depth] int8
    steps_ptr: tl.tensor,  # [T] fp32
    x_stride: tl.tensor,
    depth: tl.tensor,
    input_step: tl.tensor,  # fp32
    input_limit: tl.tensor,  # fp32
    OWN_STEPS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """`plain.rounding.quantise_rows`, a row a program; the step of a row with what is no number is none either."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, COLUMNS)
    most = tl.zeros([COLUMNS], tl.float32)
    nothing = tl.zeros([COLUMNS], tl.float32)
    for begin in range(0, depth, COLUMNS):
        x = tl.load(x_ptr + row * x_stride + begin + k, mask=begin + k < depth, other=0.0).to(tl.float32)
        most = tl.maximum(most, tl.abs(x))
        nothing += x * 0.0
    step = tl.zeros([1], tl.float32) + input_limit
    step = tl.div_rn(tl.max(most, 0, keep_dims=True), step) if OWN_STEPS else step * 0.0 + input_step
    divisor = tl.broadcast_to(tl.where(step > 0, step, 1.0), [COLUMNS])
    for begin in range(0, depth, COLUMNS):
        inside = begin + k < depth
        x = tl.load(x_ptr + row * x_stride + begin + k, mask=inside, other=0.0).to(tl.float32)
        # adding 1.5 * 2^23 leaves no room for a fraction
        whole = (tl.minimum(tl.maximum(tl.div_rn(x, divisor), -128.0), 127.0) + 12582912.0) - 12582912.0
        tl.store(out_ptr + row * depth + begin + k, whole.to(tl.int8), mask=inside)
    tl.store(steps_ptr + row + tl.arange(0, 1), step + tl.sum(nothing, 0))


@triton.jit(do_not_specialize=("num_rows",))  # type: ignore[untyped-decorator]  # triton has no types
def multiply_int8_rows(
    x_ptr: tl.tensor,  # [num_rows, depth] int8
    weight_ptr: tl.tensor,  # [num_outputs, depth] int8
    scales_ptr: tl.tensor,  # [num_outputs] fp32
    steps_ptr: tl.tensor,  # [num_rows] fp32
    bias_ptr: tl.tensor,  # [num_outputs]
    out_ptr: tl.tensor,  # [num_rows, num_outputs], or one such per split, fp32
    x_stride: tl.tensor,
    num_rows: tl.tensor,
    num_outputs: tl.tensor,
    depth: tl.tensor,
    split_len: tl.tensor,
    HAS_BIAS: tl.constexpr,
    FOLDS: tl.constexpr,  # a program walks all splits; else it has one, and its sum is a partial one
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    # neighbours have the weight in common, as in `triton.linear`
    num_tiles = tl.cdiv(num_rows, BLOCK_ROWS)
    tile = tl.program_id(0)
    row = (tile % num_tiles).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    n = tile // num_tiles * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    k = tl.arange(0, BLOCK_DEPTH)
    # rows and outputs past the end are computed from the last ones and not stored
    output = tl.minimum(n, num_outputs - 1)
    x_at = x_ptr + tl.minimum(row, num_rows - 1)[:, None] * x_stride + k[None, :]
    weight_at = weight_ptr + output.to(tl.int64)[:, None] * depth + k[None, :]
    first = 0 if FOLDS else tl.program_id(1) * split_len
    last = depth if FOLDS else tl.minimum(first + split_len, depth)
    total = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float32)
    for split in tl.range(first, last, split_len, num_stages=1):
        end = tl.minimum(split + split_len, depth)
        acc = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.int32)
        for begin in tl.range(split, end, BLOCK_DEPTH, num_stages=STAGES):
            is_inside = k[None, :] < end - begin
            x = tl.load(x_at + begin, mask=is_inside, other=0)
            weight = tl.load(weight_at + begin, mask=is_inside, other=0)
            acc = tl.dot(x, tl.trans(weight), acc, out_dtype=tl.int32)
        step = tl.load(steps_ptr + tl.minimum(row, num_rows - 1))
        scale = tl.load(scales_ptr + output)
        total += acc.to(tl.float32) * (step[:, None] * scale[None, :])
    mask = (row < num_rows)[:, None] & (n < num_outputs)[None, :]
    to = row[:, None] * num_outputs + n[None, :]
    if FOLDS:
        if HAS_BIAS:
            total += tl.load(bias_ptr + output).to(tl.float32)[None, :]
        tl.store(out_ptr + to, total.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        tl.store(out_ptr + tl.program_id(1).to(tl.int64) * num_rows * num_outputs + to, total, mask=mask)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def multiply_int8_tiles(
    x_ptr: tl.tensor,  # [., depth] int8, rows of tokens, or of sorted pairs
    weight_ptr: tl.tensor,  # [num_experts, num_outputs, depth] int8
    scales_ptr: tl.tensor,  # [num_experts * num_outputs] fp32
    steps_ptr: tl.tensor,  # [.] fp32, of the rows
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
    IN_ORDER: tl.constexpr,  # as in `triton.experts.multiply_tiles`
    HAS_BIAS: tl.constexpr,
    BLOCK_EXPERTS: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    expert, place, is_there = take_tile(starts_ptr, tiles_ptr, num_experts, BLOCK_EXPERTS, BLOCK_ROWS)
    if expert < num_experts:
        pair = tl.load(order_ptr + place, mask=is_there, other=0)
        row = tl.where(is_there, pair // NUM_CHOSEN if IN_ORDER else place, 0)
        n = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
        k = tl.arange(0, BLOCK_DEPTH)
        # outputs past the end are computed from the last one's weights and not stored
        output = expert.to(tl.int64) * num_outputs + tl.minimum(n, num_outputs - 1)
        x_at = x_ptr + row.to(tl.int64)[:, None] * x_stride + k[None, :]
        weight_at = weight_ptr + output[:, None] * depth + k[None, :]
        acc = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.int32)
        for begin in tl.range(0, depth, BLOCK_DEPTH, num_stages=STAGES):
            is_inside = k[None, :] < depth - begin
            x = tl.load(x_at + begin, mask=is_inside, other=0)
            weight = tl.load(weight_at + begin, mask=is_inside, other=0)
            acc = tl.dot(x, tl.trans(weight), acc, out_dtype=tl.int32)
        total = acc.to(tl.float32) * (tl.load(steps_ptr + row)[:, None] * tl.load(scales_ptr + output)[None, :])
        if HAS_BIAS:
            total += tl.load(bias_ptr + output).to(tl.float32)[None, :]
        to = (place if IN_ORDER else pair).to(tl.int64)
        mask = is_there[:, None] & (n < num_outputs)[None, :]
        tl.store(out_ptr + to[:, None] * num_outputs + n[None, :], total.to(out_ptr.dtype.element_ty), mask=mask)


def quantised(x: Tensor, input_step: float, input_limit: float = INPUT_LIMIT) -> tuple[Tensor, Tensor]:
    """(int8 `[T, K]`, steps `[T]`) of x `[T, K]`, whose last axis is dense."""
    num_rows, depth = x.shape
    rows = torch.empty((num_rows, depth), dtype=torch.int8, device=x.device)
    steps = torch.empty(num_rows, dtype=torch.float32, device=x.device)
    if num_rows:
        warps = elementwise_warps(COLUMNS)
        sizes = (x.stride(0), depth, float(input_step), float(input_limit))
        quantise_rows[(num_rows,)](
            x, rows, steps, *sizes, OWN_STEPS=input_step == 0, COLUMNS=COLUMNS, num_warps=warps, enable_fp_fusion=False
        )
    return rows, steps


def linear(x: Tensor, weight: LinearWeight, input_step: float, input_limit: float) -> Tensor:
    """`x @ weight.T + bias`, x `[T, K]` -> `[T, N]`, with x rounded to int8 as `Grouped` says."""
    assert weight.groups is not None
    assert weight.groups.factors is not None
    rows, steps = quantised(x if x.stride(1) == 1 else x.contiguous(), input_step, input_limit)
    stored = [weight.stored.view(torch.int8), weight.groups.factors, steps]
    return multiply_splits(multiply_int8_rows, rows, weight, stored, [], int8_config(len(rows)), x.dtype)
