"""Linear maps on the device whose weights stay in four or eight bits until they are in registers (`device_grouped`).

Few rows are bound by reading weights, and these are a quarter or a half of bf16. As in `triton.mxfp4` weights are the
left side of the product. A step is at most one group of inputs::

    bytes [outputs, step / 2] ─► low, high halves ─► numbers minus zeros, exact in bf16 and fp16 ┐
    x [step, rows] ──────────────────────────────────────────────────────────────────────────────┴─► part, in fp32
    sum = part * scale of the group + sum                                        one fused multiply-add per output, row

So no weight is rounded, and a scale meets 16 rows instead of 128 weights; an offset meets the sum of a step's inputs.
Whole numbers become floats without a conversion: as the last bits of a power of two, which is subtracted with the zero.
Splits, and why a row's bits are its own, are those of `triton.linear`; the choice of tile by the number of rows is left
out in deterministic mode.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..device_grouped import span_of
from ..launch import grouped_config
from ..linear_weight import LinearWeight
from . import int8
from .linear import multiply_splits
from .tiles import take_tile


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def widen(stored: tl.tensor, word: tl.tensor, ELEMENT: tl.constexpr, HAS_ZEROS: tl.constexpr, DTYPE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Bytes `[outputs, .]` of one number each as what they mean but for the scale, exactly; word `[outputs]`."""
    IS_BF16: tl.constexpr = tl.bfloat16 == DTYPE
    zero = ((word << 24) >> 24).to(tl.float32)
    if ELEMENT == "int4" or ELEMENT == "uint4":
        ONE: tl.constexpr = 0x4300 if IS_BF16 else 0x6400  # 128 or 1024, whose last bits count ones
        number = (stored.to(tl.int16) | ONE).to(DTYPE, bitcast=True)
        START: tl.constexpr = 128.0 if IS_BF16 else 1024.0
        MIDDLE: tl.constexpr = START + (8.0 if ELEMENT == "int4" else 0.0)
        offset = zero + MIDDLE if HAS_ZEROS else tl.full(zero.shape, MIDDLE, tl.float32)
        number = number - offset.to(DTYPE)[:, None]
    elif ELEMENT == "int8":
        number = stored.to(tl.int8, bitcast=True).to(tl.float32).to(DTYPE)
        if HAS_ZEROS:
            number = number - zero.to(DTYPE)[:, None]
    else:
        bits = stored.to(tl.int16)
        # the fields of e4m3 in those of a wider exponent, which counts from further down
        SHIFT: tl.constexpr = 4 if IS_BF16 else 7
        FACTOR: tl.constexpr = 2.0**120 if IS_BF16 else 256.0
        number = (((bits & 0x7F) << SHIFT) | ((bits & 0x80) << 8)).to(DTYPE, bitcast=True)
        number = number * tl.full([1, 1], FACTOR, DTYPE)
    return number


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def add_product(acc: tl.tensor, offset: tl.tensor, inputs: tl.tensor):  # type: ignore[no-untyped-def]
    """acc `[outputs, rows]` and each offset `[outputs]` times each sum of inputs `[rows]`, rounded once."""
    return tl.fma(tl.broadcast_to(offset[:, None], acc.shape), tl.broadcast_to(inputs[None, :], acc.shape), acc)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def sum_steps(  # type: ignore[no-untyped-def]
    acc: tl.tensor,  # [outputs, rows] fp32
    x_at: tl.tensor,  # [1, rows] where rows begin
    weight_at: tl.tensor,  # [outputs, 1] where outputs begin
    factor: tl.tensor,  # [outputs], places of adjacent outputs
    factors_ptr: tl.tensor,  # [depth / size, num_factors] int32, twice with offsets
    num_factors: tl.tensor,
    depth: tl.tensor,
    size: tl.tensor,
    first: tl.tensor,
    end: tl.tensor,
    ELEMENT: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    HAS_OFFSETS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
):
    """acc and the products of inputs first … end - 1, a whole number of steps of one group each."""
    DTYPE: tl.constexpr = x_at.dtype.element_ty
    HALF: tl.constexpr = BLOCK_DEPTH // 2
    offsets_ptr = factors_ptr + (depth // size).to(tl.int64) * num_factors
    if ELEMENT == "int4" or ELEMENT == "uint4":
        byte = tl.arange(0, HALF)
        for begin in tl.range(first, end, BLOCK_DEPTH, num_stages=STAGES):
            stored = tl.load(weight_at + (begin // 2 + byte)[None, :])
            low = tl.load(x_at + (begin + byte)[:, None])
            high = tl.load(x_at + (begin + HALF + byte)[:, None])
            word = tl.load(factors_ptr + (begin // size).to(tl.int64) * num_factors + factor)
            scale = (word & -256 if HAS_ZEROS else word).to(tl.float32, bitcast=True)
            part = tl.dot(widen(stored & 15, word, ELEMENT, HAS_ZEROS, DTYPE), low)
            part = tl.dot(widen(stored >> 4, word, ELEMENT, HAS_ZEROS, DTYPE), high, part)
            acc = tl.fma(part, tl.broadcast_to(scale[:, None], part.shape), acc)
            if HAS_OFFSETS:
                offset = tl.load(offsets_ptr + (begin // size).to(tl.int64) * num_factors + factor)
                inputs = tl.sum(low.to(tl.float32) + high.to(tl.float32), 0)
                acc = add_product(acc, offset.to(tl.float32, bitcast=True), inputs)
    else:
        k = tl.arange(0, BLOCK_DEPTH)
        for begin in tl.range(first, end, BLOCK_DEPTH, num_stages=STAGES):
            stored = tl.load(weight_at + (begin + k)[None, :])
            x = tl.load(x_at + (begin + k)[:, None])
            word = tl.load(factors_ptr + (begin // size).to(tl.int64) * num_factors + factor)
            scale = (word & -256 if HAS_ZEROS else word).to(tl.float32, bitcast=True)
            part = tl.dot(widen(stored, word, ELEMENT, HAS_ZEROS, DTYPE), x)
            acc = tl.fma(part, tl.broadcast_to(scale[:, None], part.shape), acc)
            if HAS_OFFSETS:
                offset = tl.load(offsets_ptr + (begin // size).to(tl.int64) * num_factors + factor)
                inputs = tl.sum(x.to(tl.float32), 0)
                acc = add_product(acc, offset.to(tl.float32, bitcast=True), inputs)
    return acc


@triton.jit(do_not_specialize=("num_rows",))  # type: ignore[untyped-decorator]  # triton has no types
def multiply_grouped_rows(
    x_ptr: tl.tensor,  # [num_rows, depth]
    weight_ptr: tl.tensor,  # [num_outputs, row_bytes] uint8
    factors_ptr: tl.tensor,  # [depth / size, num_outputs] int32, twice with offsets
    bias_ptr: tl.tensor,  # [num_outputs]
    out_ptr: tl.tensor,  # [num_rows, num_outputs], or one such per split, fp32
    x_stride: tl.tensor,
    num_rows: tl.tensor,
    num_outputs: tl.tensor,
    depth: tl.tensor,
    row_bytes: tl.tensor,
    size: tl.tensor,
    split_len: tl.tensor,
    ELEMENT: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    HAS_OFFSETS: tl.constexpr,
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
    # rows and outputs past the end are computed from the last ones and not stored
    output = tl.minimum(n, num_outputs - 1)
    x_at = x_ptr + tl.minimum(row, num_rows - 1)[None, :] * x_stride
    weight_at = weight_ptr + output.to(tl.int64)[:, None] * row_bytes
    first = 0 if FOLDS else tl.program_id(1) * split_len
    last = depth if FOLDS else tl.minimum(first + split_len, depth)
    total = tl.zeros([BLOCK_OUTPUTS, BLOCK_ROWS], tl.float32)
    for split in tl.range(first, last, split_len, num_stages=1):
        acc = sum_steps(
            tl.zeros([BLOCK_OUTPUTS, BLOCK_ROWS], tl.float32),
            x_at,
            weight_at,
            output,
            factors_ptr,
            num_outputs,
            depth,
            size,
            split,
            tl.minimum(split + split_len, depth),
            ELEMENT,
            HAS_ZEROS,
            HAS_OFFSETS,
            BLOCK_DEPTH,
            STAGES,
        )
        total += acc
    mask = (n < num_outputs)[:, None] & (row < num_rows)[None, :]
    to = row[None, :] * num_outputs + n[:, None]
    if FOLDS:
        if HAS_BIAS:
            total += tl.load(bias_ptr + output).to(tl.float32)[:, None]
        tl.store(out_ptr + to, total.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        tl.store(out_ptr + tl.program_id(1).to(tl.int64) * num_rows * num_outputs + to, total, mask=mask)


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def multiply_grouped_tiles(
    x_ptr: tl.tensor,  # [., depth] rows of tokens, or of sorted pairs
    weight_ptr: tl.tensor,  # [num_experts, num_outputs, row_bytes] uint8
    factors_ptr: tl.tensor,  # [depth / size, num_experts * num_outputs] int32, twice with offsets
    bias_ptr: tl.tensor,  # [num_experts, num_outputs]
    out_ptr: tl.tensor,  # [num_pairs, num_outputs]
    order_ptr: tl.tensor,  # [num_pairs] int32: pair of a sorted place
    starts_ptr: tl.tensor,  # [num_experts + 1] int32
    tiles_ptr: tl.tensor,  # [num_experts + 1] int32
    x_stride: tl.tensor,
    num_experts: tl.tensor,
    num_outputs: tl.tensor,
    depth: tl.tensor,
    row_bytes: tl.tensor,
    size: tl.tensor,
    ELEMENT: tl.constexpr,
    HAS_ZEROS: tl.constexpr,
    HAS_OFFSETS: tl.constexpr,
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
        row = pair // NUM_CHOSEN if IN_ORDER else place
        n = tl.program_id(1) * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
        # outputs past the end are computed from the last one's weights and not stored
        output = expert.to(tl.int64) * num_outputs + tl.minimum(n, num_outputs - 1)
        acc = sum_steps(
            tl.zeros([BLOCK_OUTPUTS, BLOCK_ROWS], tl.float32),
            x_ptr + tl.where(is_there, row, 0).to(tl.int64)[None, :] * x_stride,
            weight_ptr + output[:, None] * row_bytes,
            output,
            factors_ptr,
            num_experts * num_outputs,
            depth,
            size,
            0,
            depth,
            ELEMENT,
            HAS_ZEROS,
            HAS_OFFSETS,
            BLOCK_DEPTH,
            STAGES,
        )
        if HAS_BIAS:
            acc += tl.load(bias_ptr + output).to(tl.float32)[:, None]
        to = (place if IN_ORDER else pair).to(tl.int64)
        mask = (n < num_outputs)[:, None] & is_there[None, :]
        tl.store(out_ptr + to[None, :] * num_outputs + n[:, None], acc.to(out_ptr.dtype.element_ty), mask=mask)


def linear(x: Tensor, weight: LinearWeight) -> Tensor:
    """`x @ weight.T + bias`, x `[T, K]` in the order of the groups' inputs -> `[T, N]`, for a grouped weight."""
    groups = weight.groups
    assert groups is not None
    assert groups.factors is not None
    if groups.input_step is not None:
        return int8.linear(x, weight, groups.input_step, groups.input_limit)
    return multiply_splits(
        multiply_grouped_rows,
        x,
        weight,
        [weight.stored, groups.factors.view(torch.int32)],
        [weight.stored.shape[1], groups.size],
        grouped_config(x.shape[0], span_of(groups.size), deterministic=weight.row_tile > 0),
        ELEMENT=groups.element,
        HAS_ZEROS=groups.factors.dtype is torch.int32,
        HAS_OFFSETS=groups.has_offsets,
    )
