"""Linear maps on the device whose rows do not depend on each other: the products of deterministic mode.

A library picks its kernel, and with it the order of every sum, by the number of rows. Here the inputs are cut into
splits, whose number depends on the shape of the weight only; each split is summed from nothing in steps of
BLOCK_DEPTH, and the splits are folded left to right::

    inputs     0 ........ 1024 ........ 2048 ........ 3072 ........ 4096
    few rows   │ partial 0  │  partial 1  │  partial 2  │  partial 3  │    a program each, then `fold_splits`
    many rows  │ fold ──────► fold ───────► fold ───────► fold ───────► out      one program that walks them

Few rows are bound by reading the weight, which takes more programs than there are tiles of outputs; many rows have
tiles enough, and would only write partial sums and read them again. Either way the same numbers are added by the same
instructions in the same order: so the bits of a row are its own, if rows of a product of one instruction do not depend
on their places in the tile (which only a device can show; `tests/kernels/triton/test_gpu.py`).

Cost: the weight is read once for up to 64 rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..launch import LinearConfig, linear_config, linear_splits, most_registers
from ..linear_weight import LinearWeight

FOLD_BLOCK = 1024


@triton.jit(do_not_specialize=("num_rows",))  # type: ignore[untyped-decorator]  # triton has no types
def multiply_rows(
    x_ptr: tl.tensor,  # [num_rows, depth]
    weight_ptr: tl.tensor,  # [num_outputs, depth]
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
    # neighbours have the weight in common: it is the larger one, and passes the second-level cache once
    num_tiles = tl.cdiv(num_rows, BLOCK_ROWS)
    tile = tl.program_id(0)
    row = (tile % num_tiles).to(tl.int64) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
    n = tile // num_tiles * BLOCK_OUTPUTS + tl.arange(0, BLOCK_OUTPUTS)
    k = tl.arange(0, BLOCK_DEPTH)
    # rows and outputs past the end are computed from the last ones and not stored
    x_at = x_ptr + tl.minimum(row, num_rows - 1)[:, None] * x_stride + k[None, :]
    weight_at = weight_ptr + tl.minimum(n, num_outputs - 1).to(tl.int64)[:, None] * depth + k[None, :]
    first = 0 if FOLDS else tl.program_id(1) * split_len
    last = depth if FOLDS else tl.minimum(first + split_len, depth)
    total = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float32)
    for split in tl.range(first, last, split_len, num_stages=1):
        end = tl.minimum(split + split_len, depth)
        acc = tl.zeros([BLOCK_ROWS, BLOCK_OUTPUTS], tl.float32)
        for begin in tl.range(split, end, BLOCK_DEPTH, num_stages=STAGES):
            is_inside = k[None, :] < end - begin
            x = tl.load(x_at + begin, mask=is_inside, other=0.0)
            weight = tl.load(weight_at + begin, mask=is_inside, other=0.0)
            acc = tl.dot(x, tl.trans(weight), acc, input_precision="ieee")
        total += acc
    mask = (row < num_rows)[:, None] & (n < num_outputs)[None, :]
    to = row[:, None] * num_outputs + n[None, :]
    if FOLDS:
        if HAS_BIAS:
            total += tl.load(bias_ptr + n, mask=n < num_outputs, other=0.0).to(tl.float32)[None, :]
        tl.store(out_ptr + to, total.to(out_ptr.dtype.element_ty), mask=mask)
    else:
        tl.store(out_ptr + tl.program_id(1).to(tl.int64) * num_rows * num_outputs + to, total, mask=mask)


@triton.jit(do_not_specialize=("num_rows",))  # type: ignore[untyped-decorator]  # triton has no types
def fold_splits(
    partial_ptr: tl.tensor,  # [num_splits, num_rows, num_outputs] fp32
    bias_ptr: tl.tensor,  # [num_outputs]
    out_ptr: tl.tensor,  # [num_rows, num_outputs]
    num_rows: tl.tensor,
    num_outputs: tl.tensor,
    num_splits: tl.tensor,
    HAS_BIAS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = n < num_outputs
    total = tl.zeros([COLUMNS], tl.float32)
    for split in range(num_splits):
        at = (split * num_rows + row) * num_outputs + n
        total += tl.load(partial_ptr + at, mask=mask, other=0.0)
    if HAS_BIAS:
        total += tl.load(bias_ptr + n, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * num_outputs + n, total.to(out_ptr.dtype.element_ty), mask=mask)


def multiply_splits(
    kernel: Any,
    x: Tensor,
    weight: LinearWeight,
    stored: Sequence[Tensor],
    sizes: Sequence[int],
    config: LinearConfig,
    dtype: torch.dtype | None = None,
    **constants: object,
) -> Tensor:
    """Launches `multiply_rows`, or its like for another form of `weight`, and folds the splits if it has not.

    stored, sizes: what the kernel takes of the weight, and more integers. dtype: of the result, None: x's.
    """
    num_rows, depth = x.shape
    num_outputs = weight.num_outputs
    out = torch.empty((num_rows, num_outputs), dtype=dtype or x.dtype, device=x.device)
    if num_rows == 0:
        return out
    x = x if x.stride(1) == 1 else x.contiguous()
    bias = out if weight.bias is None else weight.bias
    num_splits = linear_splits(num_outputs, depth)
    split_len = -(-depth // (num_splits * config.block_depth)) * config.block_depth
    num_splits = -(-depth // split_len)
    folds = num_splits == 1 or not config.splits
    sums = out if folds else torch.empty((num_splits, num_rows, num_outputs), dtype=torch.float32, device=x.device)
    num_tiles = triton.cdiv(num_rows, config.block_rows) * triton.cdiv(num_outputs, config.block_outputs)
    kernel[(num_tiles, 1 if folds else num_splits)](
        x,
        *stored,
        bias,
        sums,
        x.stride(0),
        num_rows,
        num_outputs,
        depth,
        *sizes,
        split_len,
        **constants,
        HAS_BIAS=weight.bias is not None,
        FOLDS=folds,
        BLOCK_ROWS=config.block_rows,
        BLOCK_OUTPUTS=config.block_outputs,
        BLOCK_DEPTH=config.block_depth,
        STAGES=config.num_stages,
        num_warps=config.num_warps,
        maxnreg=most_registers(config.num_warps),  # or the compiler may spill, to fit another program
    )
    if not folds:
        fold_splits[(num_rows, triton.cdiv(num_outputs, FOLD_BLOCK))](
            sums,
            bias,
            out,
            num_rows,
            num_outputs,
            num_splits,
            HAS_BIAS=weight.bias is not None,
            COLUMNS=FOLD_BLOCK,
        )
    return out


def linear(x: Tensor, weight: LinearWeight) -> Tensor:
    """`x @ weight.T + bias`, x `[T, K]` -> `[T, N]`, for a weight that is stored as it is `[N, K]`."""
    config = linear_config(x.shape[0], x.element_size())
    return multiply_splits(multiply_rows, x, weight, [weight.stored], [], config)
