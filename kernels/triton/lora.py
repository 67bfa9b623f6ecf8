"""Adapters of low rank on the device: two launches for each linear map, whatever adapters a step has.

A step's rows are cut into tiles of `TILE_ROWS` of one adapter each (`LoraPlan.tiles`), and a program finds the weights
of its tile's adapter through the adapter's table, so that the number of adapters costs no launch (as in Punica's SGMV,
arXiv 2310.18547, and S-LoRA, arXiv 2311.03285)::

    shrink   tile of rows · 16 ranks · a split of the inputs ─► partial sums of x Aᵀ · scale, fp32
    expand   tile of rows · outputs of a part ─► y += (partials, folded in order) Bᵀ

Splits and steps are cut by the inputs alone, and a tile always has the same number of rows, some of them perhaps empty:
a row's sums are taken in one order whatever else is in the step, as in `triton.linear`. Rows of no adapter are not
read.

Tiles may be empty, and which adapters there are is read on the device: so a captured step serves any mixture of them.
Cost: A and B are read once for each tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ..lora import (
    COLUMNS,
    DOWN,
    FIRST_OUTPUT,
    FIRST_RANK,
    MAX_PARTS,
    NUM_OUTPUTS,
    NUM_PARTS,
    PART_COLUMNS,
    PARTS,
    PLACES,
    RANK,
    RANK_STEP,
    SCALES,
    TILE_ROWS,
    UP,
    WIDTH,
    LoraPlan,
)

SPLIT_LEN = 1024
BLOCK_DEPTH = 128
BLOCK_OUTPUTS = 128
STAGES = 4


@triton.jit  # type: ignore[untyped-decorator]  # triton has no types
def columns_of(tiles_ptr: tl.tensor, tile: tl.tensor, place: tl.tensor, NUM_COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Where the tile's adapter has its row for a layer and place."""
    table = tl.load(tiles_ptr + 3 * tile + 2).to(tl.pointer_type(tl.int64))
    return table + place * NUM_COLUMNS


@triton.jit(do_not_specialize=("num_rows", "place"))  # type: ignore[untyped-decorator]  # triton has no types
def shrink_rows(
    x_ptr: tl.tensor,  # [., depth]
    tiles_ptr: tl.tensor,  # [num_tiles, 3] int64: first row, end (the same: an empty tile), address of the table
    partial_ptr: tl.tensor,  # [num_splits, num_rows, width] fp32
    x_stride: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    depth: tl.tensor,
    place: tl.tensor,  # row of the tables
    NUM_COLUMNS: tl.constexpr,
    DOWN: tl.constexpr,
    WIDTH: tl.constexpr,
    SCALES: tl.constexpr,
    IS_ALIGNED: tl.constexpr,  # rows of the weight begin at multiples of 16 bytes
    SPLIT_LEN: tl.constexpr,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_DEPTH: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    tile = tl.program_id(0)
    begin, end = tl.load(tiles_ptr + 3 * tile), tl.load(tiles_ptr + 3 * tile + 1)
    if begin >= end:
        return
    columns = columns_of(tiles_ptr, tile, place, NUM_COLUMNS)
    first_rank = tl.program_id(1) * RANKS
    if first_rank >= tl.load(columns + WIDTH):  # of an adapter that adds nothing here it is 0
        return
    down_ptr = tl.load(columns + DOWN).to(tl.pointer_type(x_ptr.dtype.element_ty))
    row = begin + tl.arange(0, ROWS)
    rank = first_rank + tl.arange(0, RANKS)
    k = tl.arange(0, BLOCK_DEPTH)
    # rows past the end are computed from the last one and not stored
    x_at = x_ptr + tl.minimum(row, end - 1)[:, None] * x_stride + k[None, :]
    down_at = down_ptr + rank.to(tl.int64)[:, None] * depth + k[None, :]
    if IS_ALIGNED:  # of an address out of a table the compiler knows nothing by itself
        down_at = tl.multiple_of(down_at, [1, 16])
    first = tl.program_id(2) * SPLIT_LEN
    last = tl.minimum(first + SPLIT_LEN, depth)
    acc = tl.zeros([ROWS, RANKS], tl.float32)
    for at in tl.range(first, last, BLOCK_DEPTH, num_stages=STAGES):
        is_inside = k[None, :] < last - at
        x = tl.load(x_at + at, mask=is_inside, other=0.0)
        down = tl.load(down_at + at, mask=is_inside, other=0.0)
        acc = tl.dot(x, tl.trans(down), acc, input_precision="ieee")
    scale = tl.load(tl.load(columns + SCALES).to(tl.pointer_type(tl.float32)) + rank)
    to = (tl.program_id(2).to(tl.int64) * num_rows + row)[:, None] * width + rank[None, :]
    tl.store(partial_ptr + to, acc * scale[None, :], mask=(row < end)[:, None])


@triton.jit(do_not_specialize=("num_rows", "num_splits", "num_blocks", "place"))  # type: ignore[untyped-decorator]
def expand_rows(
    out_ptr: tl.tensor,  # [., num_outputs], added to
    tiles_ptr: tl.tensor,  # as above
    partial_ptr: tl.tensor,  # as above
    out_stride: tl.tensor,
    num_rows: tl.tensor,
    width: tl.tensor,
    num_splits: tl.tensor,
    num_blocks: tl.tensor,  # of outputs of a part, at most
    place: tl.tensor,
    NUM_COLUMNS: tl.constexpr,
    NUM_PARTS: tl.constexpr,
    PARTS: tl.constexpr,
    PART_COLUMNS: tl.constexpr,
    UP: tl.constexpr,
    RANK: tl.constexpr,
    FIRST_RANK: tl.constexpr,
    NUM_OUTPUTS: tl.constexpr,
    FIRST_OUTPUT: tl.constexpr,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_OUTPUTS: tl.constexpr,
    STAGES: tl.constexpr,
) -> None:
    DTYPE: tl.constexpr = out_ptr.dtype.element_ty
    tile = tl.program_id(0)
    begin, end = tl.load(tiles_ptr + 3 * tile), tl.load(tiles_ptr + 3 * tile + 1)
    if begin >= end:
        return
    columns = columns_of(tiles_ptr, tile, place, NUM_COLUMNS)
    part = tl.program_id(1) // num_blocks
    if part >= tl.load(columns + NUM_PARTS):
        return
    columns += PARTS + part * PART_COLUMNS
    num_outputs = tl.load(columns + NUM_OUTPUTS)
    first_output = tl.program_id(1) % num_blocks * BLOCK_OUTPUTS
    if first_output >= num_outputs:
        return
    n = first_output + tl.arange(0, BLOCK_OUTPUTS)
    rank = tl.load(columns + RANK)
    up_ptr = tl.load(columns + UP).to(tl.pointer_type(DTYPE))
    row = begin + tl.arange(0, ROWS)
    k = tl.arange(0, RANKS)
    # what is past the end is computed from the last ones and not stored
    hidden_at = partial_ptr + tl.minimum(row, end - 1)[:, None] * width + tl.load(columns + FIRST_RANK) + k[None, :]
    # its rows are whole multiples of `RANK_STEP` numbers
    up_at = tl.multiple_of(up_ptr + tl.minimum(n, num_outputs - 1)[:, None] * rank + k[None, :], [1, 16])
    acc = tl.zeros([ROWS, BLOCK_OUTPUTS], tl.float32)
    for first in tl.range(0, rank, RANKS, num_stages=STAGES):
        up = tl.load(up_at + first)
        hidden = tl.zeros([ROWS, RANKS], tl.float32)
        partial_at = hidden_at + first
        for _ in range(num_splits):
            hidden += tl.load(partial_at)
            partial_at += num_rows * width
        acc = tl.dot(hidden.to(DTYPE), tl.trans(up), acc, input_precision="ieee")
    mask = (row < end)[:, None] & (n < num_outputs)[None, :]
    to = out_ptr + row[:, None] * out_stride + (tl.load(columns + FIRST_OUTPUT) + n)[None, :]
    tl.store(to, (tl.load(to, mask=mask, other=0.0).to(tl.float32) + acc).to(DTYPE), mask=mask)


def add_lora(out: Tensor, x: Tensor, plan: LoraPlan, layer: int, place: int) -> None:
    """`reference.add_lora`; what is between the products is rounded to the type of the rows."""
    assert plan.tiles is not None
    x = x if x.stride(1) == 1 else x.contiguous()
    assert out.stride(1) == 1
    num_rows, depth = x.shape
    num_tiles, width = len(plan.tiles), plan.most_rank
    num_splits = triton.cdiv(depth, SPLIT_LEN)
    partial = torch.empty((num_splits, num_rows, width), dtype=torch.float32, device=x.device)
    row_of_table = layer * len(PLACES) + place
    shrink_rows[(num_tiles, triton.cdiv(width, RANK_STEP), num_splits)](
        x,
        plan.tiles,
        partial,
        x.stride(0),
        num_rows,
        width,
        depth,
        row_of_table,
        NUM_COLUMNS=COLUMNS,
        DOWN=DOWN,
        WIDTH=WIDTH,
        SCALES=SCALES,
        IS_ALIGNED=depth * x.element_size() % 16 == 0,
        SPLIT_LEN=SPLIT_LEN,
        ROWS=TILE_ROWS,
        RANKS=RANK_STEP,
        BLOCK_DEPTH=BLOCK_DEPTH,
        STAGES=STAGES,
        num_warps=4,
    )
    num_blocks = triton.cdiv(min(plan.most_outputs, out.shape[1]), BLOCK_OUTPUTS)
    expand_rows[(num_tiles, MAX_PARTS * num_blocks)](
        out,
        plan.tiles,
        partial,
        out.stride(0),
        num_rows,
        width,
        num_splits,
        num_blocks,
        row_of_table,
        NUM_COLUMNS=COLUMNS,
        NUM_PARTS=NUM_PARTS,
        PARTS=PARTS,
        PART_COLUMNS=PART_COLUMNS,
        UP=UP,
        RANK=RANK,
        FIRST_RANK=FIRST_RANK,
        NUM_OUTPUTS=NUM_OUTPUTS,
        FIRST_OUTPUT=FIRST_OUTPUT,
        ROWS=TILE_ROWS,
        RANKS=RANK_STEP,
        BLOCK_OUTPUTS=BLOCK_OUTPUTS,
        STAGES=STAGES,
        num_warps=4,
    )
