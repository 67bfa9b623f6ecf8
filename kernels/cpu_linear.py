"""Matrix products on the CPU whose bits do not depend on the number of rows.

Every output is one chain of fused multiply-adds, from its bias through inputs 0, 1, 2 … in order. Libraries pick
another kernel, and with it another order, by the number of rows (MKL: 1, 2 to 3, and 4 or more), so that a token's
numbers would depend on who else is in the step. Here the order is the definition, and tiles only choose which chains
run side by side::

           16 outputs of a panel (2 vectors)
    row 0  ■ ■      a tile: `rows` inputs are splat, each meets the two vectors of a step;
    row 1  ■ ■      6 rows × 1 panel keep 12 sums in registers, 1 row takes 4 panels instead
      …

Cost: about the machine's peak from 4 rows on, memory bandwidth below. Measured on an AMD Zen 3 core against MKL
(torch 2.13): 1.5 times as fast at 1 row, 2 to 3 times at 2 to 8, 1.1 times from 64 rows on. Weights are packed once
(`linear_weight`).
"""

from __future__ import annotations

from typing import Any

import torch
from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from .cpu_threads import WORTH_THREADS, thread_team
from .linear_weight import PANEL, LinearWeight

_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, 8)
_MOST_ROWS = 6  # of a tile: 12 sums, 2 weights and a splat input fill the 16 vector registers of AVX2
_INPUT_BYTES = 1 << 18  # inputs of a block of rows, which stay in the second-level cache while the weights pass


def cpu_linear(x: Tensor, weight: LinearWeight) -> Tensor:
    """`linear` for fp32 x `[T, K]` (dense rows, any stride between them) and a packed weight."""
    num_rows, depth = x.shape
    panels, bias = weight.stored, weight.bias
    assert bias is not None
    num_panels = panels.shape[0]
    out = torch.empty((num_rows, num_panels * PANEL))
    pointers = (x.data_ptr(), 4 * x.stride(0), panels.data_ptr(), bias.data_ptr(), out.data_ptr())
    work = num_rows * depth * num_panels * PANEL
    if work < WORTH_THREADS:
        _all_panels(*pointers, num_rows, depth, num_panels)
    else:
        with thread_team(work) as num_threads:
            if num_threads == 1:
                _all_panels(*pointers, num_rows, depth, num_panels)
            else:
                _all_panels_parallel(*pointers, num_rows, depth, num_panels, num_threads)
    return out if num_panels * PANEL == weight.num_outputs else out[:, : weight.num_outputs]


def _tile_of(num_rows: int, num_panels: int) -> Any:
    """An operation that computes `num_rows` rows of `num_panels` neighbouring panels, sums in registers throughout.

    tile(x, x_stride, weight, bias, out, out_stride, depth): addresses and strides in bytes.
    """

    def tile(typing: Any, x: Any, x_stride: Any, weight: Any, bias: Any, out: Any, out_stride: Any, depth: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            _emit_tile(builder, num_rows, num_panels, *values)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 7), generate

    return intrinsic(tile)


def _slot(builder: Any) -> Any:
    return cgutils.alloca_once(builder, _VECTOR)  # type: ignore[no-untyped-call]  # numba's


def _emit_tile(
    builder: Any, num_rows: int, num_panels: int, x: Any, x_stride: Any, weight: Any, bias: Any, out: Any,
    out_stride: Any, depth: Any,
) -> None:  # fmt: skip
    """The LLVM code of a tile. The sums are stack slots here; LLVM turns them into registers."""

    def pointer(base: Any, offset: Any, kind: Any) -> Any:
        return builder.inttoptr(builder.add(base, offset), kind.as_pointer())

    def load(base: Any, offset: Any, kind: Any = _VECTOR) -> Any:
        return builder.load(pointer(base, offset, kind), align=4)

    columns = [(panel, half) for panel in range(num_panels) for half in range(2)]
    lanes_of = {column: _LONG(64 * column[0] + 32 * column[1]) for column in columns}
    sums = {(row, column): _slot(builder) for row in range(num_rows) for column in columns}
    for (_, column), total in sums.items():
        builder.store(load(bias, lanes_of[column]), total)
    fma_type = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    fma = cgutils.get_or_insert_function(builder.module, fma_type, "llvm.fma.v8f32")  # type: ignore[no-untyped-call]  # numba's
    panel_bytes = builder.mul(depth, _LONG(4 * PANEL))
    with cgutils.for_range(builder, depth, intp=_LONG) as loop:
        step = builder.add(weight, builder.mul(loop.index, _LONG(4 * PANEL)))
        weights = {}
        for panel, half in columns:
            panel_step = builder.add(step, builder.mul(panel_bytes, _LONG(panel)))
            weights[panel, half] = load(panel_step, _LONG(32 * half))
        for row in range(num_rows):
            offset = builder.add(builder.mul(x_stride, _LONG(row)), builder.mul(loop.index, _LONG(4)))
            one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), load(x, offset, _FLOAT), _INT(0))
            value = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_INT, 8), [_INT(0)] * 8))
            for column in columns:
                total = sums[row, column]
                builder.store(builder.call(fma, [value, weights[column], builder.load(total)]), total)
    for (row, column), total in sums.items():
        offset = builder.add(builder.mul(out_stride, _LONG(row)), lanes_of[column])
        builder.store(builder.load(total), pointer(out, offset, _VECTOR), align=4)


_tile_1x1, _tile_2x1, _tile_3x1 = _tile_of(1, 1), _tile_of(2, 1), _tile_of(3, 1)
_tile_4x1, _tile_5x1, _tile_6x1 = _tile_of(4, 1), _tile_of(5, 1), _tile_of(6, 1)
_tile_1x4, _tile_2x2 = _tile_of(1, 4), _tile_of(2, 2)


@njit(inline="always")
def _rows_of_panel(num_rows, x, x_stride, weight, bias, out, out_stride, depth):  # type: ignore[no-untyped-def]  # numba infers
    if num_rows == 6:
        _tile_6x1(x, x_stride, weight, bias, out, out_stride, depth)
    elif num_rows == 5:
        _tile_5x1(x, x_stride, weight, bias, out, out_stride, depth)
    elif num_rows == 4:
        _tile_4x1(x, x_stride, weight, bias, out, out_stride, depth)
    elif num_rows == 3:
        _tile_3x1(x, x_stride, weight, bias, out, out_stride, depth)
    elif num_rows == 2:
        _tile_2x1(x, x_stride, weight, bias, out, out_stride, depth)
    else:
        _tile_1x1(x, x_stride, weight, bias, out, out_stride, depth)


@njit(inline="always")
def _few_rows(num_rows, x, x_stride, weight, bias, out, out_stride, depth, begin, end):  # type: ignore[no-untyped-def]
    """1 or 2 rows: several panels at a time, for enough independent chains. Returns the first panel not done."""
    panel = begin
    if num_rows == 1:
        while panel + 4 <= end:
            w = weight + 64 * depth * panel
            _tile_1x4(x, x_stride, w, bias + 64 * panel, out + 64 * panel, out_stride, depth)
            panel += 4
    elif num_rows == 2:
        while panel + 2 <= end:
            w = weight + 64 * depth * panel
            _tile_2x2(x, x_stride, w, bias + 64 * panel, out + 64 * panel, out_stride, depth)
            panel += 2
    return panel


@njit(cache=True, nogil=True)
def _panels(x, x_stride, weight, bias, out, out_stride, num_rows, depth, begin, end):  # type: ignore[no-untyped-def]
    """Panels begin … end - 1 of all rows, block of rows by block; a block's rows are dealt evenly to tiles."""
    block_rows = max(_MOST_ROWS, _INPUT_BYTES // (4 * depth) // _MOST_ROWS * _MOST_ROWS)
    for first in range(0, num_rows, block_rows):
        count = min(num_rows - first, block_rows)
        panel = begin
        if count <= 2:
            inputs, outputs = x + first * x_stride, out + first * out_stride
            panel = _few_rows(count, inputs, x_stride, weight, bias, outputs, out_stride, depth, begin, end)
        num_tiles = (count + _MOST_ROWS - 1) // _MOST_ROWS
        while panel < end:
            w = weight + 64 * depth * panel
            row = first
            for index in range(num_tiles):
                tile_rows = (count - (row - first)) // (num_tiles - index)
                inputs, outputs = x + row * x_stride, out + row * out_stride + 64 * panel
                _rows_of_panel(tile_rows, inputs, x_stride, w, bias + 64 * panel, outputs, out_stride, depth)
                row += tile_rows
            panel += 1


@njit(cache=True, nogil=True)
def _all_panels(x, x_stride, weight, bias, out, num_rows, depth, num_panels):  # type: ignore[no-untyped-def]
    _panels(x, x_stride, weight, bias, out, 64 * num_panels, num_rows, depth, 0, num_panels)


@njit(cache=True, nogil=True, parallel=True)
def _all_panels_parallel(x, x_stride, weight, bias, out, num_rows, depth, num_panels, num_threads):  # type: ignore[no-untyped-def]
    """Panels are dealt out in runs of fours, a few per thread, so that a slow thread holds nobody up for long."""
    num_tasks = min(4 * num_threads, (num_panels + 3) // 4)
    for task in prange(num_tasks):
        begin = (num_panels + 3) // 4 * task // num_tasks * 4
        end = min(num_panels, (num_panels + 3) // 4 * (task + 1) // num_tasks * 4)
        _panels(x, x_stride, weight, bias, out, 64 * num_panels, num_rows, depth, begin, end)
