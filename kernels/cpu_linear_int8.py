"""Matrix products on the CPU with int8 weights: a quarter of the bytes, whole numbers inside.

::

    x [K] fp32 ──► largest |x| ──► q = round(x / step)  int16 ┐
                                                              ├─► sum of q * w  int32, exact ──► * step * scale + bias
    weight [N, K] ──► largest |w| of each output / 127 ─► int8 ┘

Weights have one scale per output; inputs one step per row, found at run time. Whole-number sums are exact, so their
order means nothing, and a row's bits depend on the row and the weight alone, whoever else is in the step.

Inputs take all the bits that the sum leaves free: `|q| <= (2^31 - 1) / (127 K)`, at most 32767, which is 14 bits for a
thousand inputs. Eight would not be faster without the instructions for them: two products of 16 bits and their sum are
one operation of every SIMD unit (`pmaddwd`; with VNNI the addition too). So the weights alone lose anything.

Layout: panel p, pair s holds the weights of outputs 16p … 16p+15 for inputs 2s and 2s+1, an output's two side by side.
Tiles are those of `cpu_linear`: a row's pair of inputs is spread over the lanes and meets the weights of 16 outputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import njit, types
from numba.core import cgutils
from torch import Tensor

from . import simd
from .compiled import Task, compiled
from .cpu_emit import emit_call, operation_of, spread, sum_pairs
from .cpu_team import argument, num_tasks_of, panels_of_task, share
from .cpu_threads import thread_team
from .linear_weight import PANEL, LinearWeight, input_range

_BYTE, _SHORT, _INT, _LONG = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
_SHORTS, _INTS, _FLOATS = ir.VectorType(_SHORT, 16), ir.VectorType(_INT, 8), ir.VectorType(ir.FloatType(), 8)
_MOST_ROWS = 6  # of a tile: twelve registers of sums, two to a panel
_AT_ONCE = np.array([1, 6, 3, 1, 1, 1, 1])  # panels that a tile of so many rows takes side by side
RUN = 6  # panels that stay together in a task
_INPUT_BYTES = 1 << 18  # inputs of a block of rows, which stay in the second-level cache while the weights pass


def cpu_linear_int8(x: Tensor, weight: LinearWeight) -> Tensor:
    """`linear` for fp32 x `[T, K]` (dense rows, any stride between them) and an int8 weight."""
    num_rows, depth = x.shape
    panels, bias, scales = weight.stored, weight.bias, weight.scales
    assert bias is not None
    assert scales is not None
    num_panels = panels.shape[0]
    out = torch.empty((num_rows, num_panels * PANEL))
    pointers = (x.data_ptr(), 4 * x.stride(0), panels.data_ptr(), scales.data_ptr(), bias.data_ptr(), out.data_ptr())
    shape = (num_rows, depth, num_panels, input_range(depth))
    with thread_team(num_rows * depth * num_panels * PANEL) as team:
        _all_panels(team, PANELS.address, *pointers, *shape)
    return out if num_panels * PANEL == weight.num_outputs else out[:, : weight.num_outputs]


def _store_whole(builder: Any, address: Any, v: Any) -> Any:
    """Eight fp32, rounded to even, as int16."""
    whole = builder.fptosi(emit_call(builder, "llvm.rint.v8f32", _FLOATS, v), _INTS)
    short = builder.trunc(whole, ir.VectorType(_SHORT, 8))
    return builder.store(short, builder.inttoptr(address, short.type.as_pointer()), align=2)


@operation_of
def _store_int16(typing: Any, address: Any, v: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _store_whole(builder, *values)
        return context.get_dummy_value()

    return types.void(types.int64, simd.float32x8), generate


@operation_of
def _tile(
    typing: Any, num_rows: Any, num_panels: Any, x: Any, weight: Any, scales: Any, bias: Any, steps: Any, out: Any,
    out_stride: Any, num_pairs: Any,
) -> Any:  # fmt: skip
    """One to `_MOST_ROWS` rows and `_AT_ONCE[num_rows]` or one neighbouring panels; addresses, strides in bytes."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        done = builder.append_basic_block("done")
        key = builder.add(builder.mul(values[0], _LONG(8)), values[1])
        jump = builder.switch(key, done)
        kinds = [(rows, panels) for rows in range(1, _MOST_ROWS + 1) for panels in {1, int(_AT_ONCE[rows])}]
        for rows, panels in kinds:
            block = builder.append_basic_block(f"rows{rows}x{panels}")
            jump.add_case(_LONG(8 * rows + panels), block)
            builder.position_at_end(block)
            _emit_tile(builder, rows, panels, *values[2:])
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 10), generate


def _emit_tile(
    builder: Any, num_rows: int, num_panels: int, x: Any, weight: Any, scales: Any, bias: Any, steps: Any, out: Any,
    out_stride: Any, num_pairs: Any,
) -> None:  # fmt: skip
    """The LLVM code of one tile. The sums are stack slots here; LLVM turns them into registers."""

    def address(base: Any, offset: Any, kind: Any) -> Any:
        return builder.inttoptr(builder.add(base, offset), kind.as_pointer())

    def load(base: Any, offset: Any, kind: Any, align: int = 4) -> Any:
        return builder.load(address(base, offset, kind), align=align)

    halves = range(2 * num_panels)  # of panels, eight outputs each
    places = [(row, half) for row in range(num_rows) for half in halves]
    sums = {place: cgutils.alloca_once(builder, _INTS) for place in places}  # type: ignore[no-untyped-call]  # numba's
    for place in places:
        builder.store(ir.Constant(_INTS, [_INT(0)] * 8), sums[place])
    row_bytes, panel_bytes = builder.shl(num_pairs, _LONG(2)), builder.shl(num_pairs, _LONG(5))
    with cgutils.for_range(builder, num_pairs, intp=_LONG) as loop:
        pair = builder.add(weight, builder.shl(loop.index, _LONG(5)))
        weights = []
        for half in halves:
            there = builder.add(pair, builder.mul(panel_bytes, _LONG(half // 2)))
            weights.append(builder.sext(load(there, _LONG(half % 2 * 16), ir.VectorType(_BYTE, 16), 1), _SHORTS))
        column = builder.add(x, builder.shl(loop.index, _LONG(2)))
        for row in range(num_rows):
            both = builder.bitcast(
                spread(builder, load(column, builder.mul(row_bytes, _LONG(row)), _INT), _INTS), _SHORTS
            )
            for half in halves:
                total = sums[row, half]
                builder.store(builder.add(builder.load(total), sum_pairs(builder, both, weights[half])), total)
    for row, half in places:
        step = spread(builder, load(steps, _LONG(4 * row), ir.FloatType()), _FLOATS)
        factor = builder.fmul(step, load(scales, _LONG(32 * half), _FLOATS))
        value = builder.fmul(builder.sitofp(builder.load(sums[row, half]), _FLOATS), factor)
        offset = builder.add(builder.mul(out_stride, _LONG(row)), _LONG(32 * half))
        builder.store(
            builder.fadd(value, load(bias, _LONG(32 * half), _FLOATS)), address(out, offset, _FLOATS), align=4
        )


@njit
def _round_rows(x, x_stride, num_rows, depth, limit):  # type: ignore[no-untyped-def]  # numba infers
    """int16 `[num_rows, K or K + 1]` and the fp32 step of each row; the last input of an odd row is 0."""
    end, width = depth // 8 * 8, (depth + 1) // 2 * 2
    whole, steps = np.empty((num_rows, width), np.int16), np.empty(num_rows, np.float32)
    for row in range(num_rows):
        source, target = x + row * x_stride, whole.ctypes.data + 2 * row * width
        top, zero = simd.splat(np.float32(0.0)), simd.splat(np.float32(0.0))
        spoilt = zero
        for i in range(0, 4 * end, 32):
            value = simd.load(source + i)
            top = simd.larger(simd.larger(value, simd.sub(zero, value)), top)
            spoilt = simd.fma(value, zero, spoilt)  # NaN if there is one: it has no whole number
        most, nothing = simd.largest(top), simd.total(spoilt)
        for i in range(4 * end, 4 * depth, 4):
            most = max(most, abs(simd.load_scalar(source + i)))
            nothing += simd.load_scalar(source + i) * np.float32(0.0)
        factor = np.float32(limit) / most if most > 0 else np.float32(0.0)
        steps[row] = most / np.float32(limit) + nothing
        for i in range(0, end, 8):
            _store_int16(target + 2 * i, simd.mul(simd.load(source + 4 * i), simd.splat(factor)))
        for i in range(end, width):
            whole[row, i] = np.int16(np.rint(simd.load_scalar(source + 4 * i) * factor)) if i < depth else np.int16(0)
    return whole, steps


@njit
def _panels(whole, steps, weight, scales, bias, out, num_rows, num_pairs, num_panels, begin, end):  # type: ignore[no-untyped-def]
    """Panels begin … end - 1 of all rows, block of rows by block; a block's rows are dealt evenly to tiles."""
    out_stride = 4 * PANEL * num_panels
    block_rows = max(_MOST_ROWS, _INPUT_BYTES // (4 * num_pairs) // _MOST_ROWS * _MOST_ROWS)
    for first in range(0, num_rows, block_rows):
        count = min(num_rows - first, block_rows)
        num_tiles = (count + _MOST_ROWS - 1) // _MOST_ROWS
        panel = begin
        while panel < end:
            at_once = _AT_ONCE[count] if num_tiles == 1 else 1
            if panel + at_once > end:
                at_once = 1
            w, s, b = weight + 32 * num_pairs * panel, scales + 4 * PANEL * panel, bias + 4 * PANEL * panel
            row = first
            for index in range(num_tiles):
                rows = (count - (row - first)) // (num_tiles - index)
                inputs, outputs = whole + 4 * num_pairs * row, out + row * out_stride + 4 * PANEL * panel
                _tile(rows, at_once, inputs, w, s, b, steps + 4 * row, outputs, out_stride, num_pairs)
                row += rows
            panel += at_once


@njit
def all_panels(team, function, x, x_stride, weight, scales, bias, out, num_rows, depth, num_panels, limit):  # type: ignore[no-untyped-def]
    """The product, by the team's threads (0: by the caller alone), behind the caller's rounding of the rows.

    function: the address of `PANELS`.
    """
    whole, steps = _round_rows(x, x_stride, num_rows, depth, limit)
    num_tasks = num_tasks_of(team, num_panels, RUN)
    rows, factors, num_pairs = np.int64(whole.ctypes.data), np.int64(steps.ctypes.data), whole.shape[1] // 2
    words = np.array((rows, factors, weight, scales, bias, out, num_rows, num_pairs, num_panels, num_tasks), np.int64)
    share(team, function, words, num_tasks)
    whole[0, 0], steps[0] = 0, 0.0  # so that they are still there


@compiled()
def _all_panels(team, function, x, x_stride, weight, scales, bias, out, num_rows, depth, num_panels, limit):  # type: ignore[no-untyped-def]
    all_panels(team, function, x, x_stride, weight, scales, bias, out, num_rows, depth, num_panels, limit)


@Task
def PANELS(at, index):  # type: ignore[no-untyped-def]
    """A task of `all_panels`: whole runs of panels."""
    rows, factors, weight, scales = argument(at, 0), argument(at, 1), argument(at, 2), argument(at, 3)
    bias, out, num_rows, num_pairs = argument(at, 4), argument(at, 5), argument(at, 6), argument(at, 7)
    num_panels, num_tasks = argument(at, 8), argument(at, 9)
    begin, end = panels_of_task(index, num_tasks, num_panels, RUN)
    _panels(rows, factors, weight, scales, bias, out, num_rows, num_pairs, num_panels, begin, end)
