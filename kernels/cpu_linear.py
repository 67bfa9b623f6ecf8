"""Matrix products on the CPU whose bits do not depend on the number of rows.

Every output is one chain of fused multiply-adds, from its bias through inputs 0, 1, 2 … in order. Libraries pick
another kernel, and with it another order, by the number of rows (MKL: 1, 2 to 3, and 4 or more), so that a token's
numbers would depend on who else is in the step. Here the order is the definition, and tiles only choose which chains
run side by side::

           16 outputs of a panel
    row 0  ■■■■     a tile: its sums stay in registers over all inputs; an input of each row is spread over
    row 1  ■■■■     16 lanes and meets the 16 weights of the step. Few rows take several panels at a time,
      …             because a processor needs about eight independent chains to be busy.

Sixteen lanes are one register of AVX-512, two of AVX2, four of NEON: the same bits everywhere.

Cost: about the machine's peak from 4 rows on, memory bandwidth below. Measured on an AMD Zen 3 core against MKL
(torch 2.13): 1.5 times as fast at 1 row, 2 to 3 times at 2 to 8, 1.1 times from 64 rows on. Weights are packed once
(`linear_weight`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from llvmlite import binding, ir  # type: ignore[import-untyped]  # ships no types
from numba import njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from torch import Tensor

from .cpu_threads import WORTH_THREADS, thread_team
from .linear_weight import PANEL, LinearWeight

_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, PANEL)
_HAS_AVX512 = bool(binding.get_host_cpu_features().get("avx512f"))
_MOST_ROWS = 12 if _HAS_AVX512 else 6  # of a tile: 12 registers of sums; AVX2 has 16, and two of them make a panel
_CHAINS = 8 if _HAS_AVX512 else 4  # panels that keep one row's multiply-adds busy
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


def _panels_at_once(num_rows: int) -> int:
    return max(1, _CHAINS // num_rows)


def _tile_operation(panels_of: Callable[[int], int]) -> Any:
    """An operation on 1 to `_MOST_ROWS` rows and `panels_of(rows)` neighbouring panels.

    tile(num_rows, x, x_stride, weight, bias, out, out_stride, depth): addresses and strides in bytes. There is one
    piece of straight code for each number of rows, and a jump to it.
    """

    def tile(
        typing: Any, num_rows: Any, x: Any, x_stride: Any, weight: Any, bias: Any, out: Any, out_stride: Any, depth: Any
    ) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            done = builder.append_basic_block("done")
            jump = builder.switch(values[0], done)
            for rows in range(1, _MOST_ROWS + 1):
                block = builder.append_basic_block(f"rows{rows}")
                jump.add_case(_LONG(rows), block)
                builder.position_at_end(block)
                _emit_tile(builder, rows, panels_of(rows), *values[1:])
                builder.branch(done)
            builder.position_at_end(done)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 8), generate

    return intrinsic(tile)


def _emit_tile(
    builder: Any, num_rows: int, num_panels: int, x: Any, x_stride: Any, weight: Any, bias: Any, out: Any,
    out_stride: Any, depth: Any,
) -> None:  # fmt: skip
    """The LLVM code of one tile. The sums are stack slots here; LLVM turns them into registers."""

    def address(base: Any, offset: Any, kind: Any = _VECTOR) -> Any:
        return builder.inttoptr(builder.add(base, offset), kind.as_pointer())

    places = [(row, panel) for row in range(num_rows) for panel in range(num_panels)]
    sums = {place: _slot(builder) for place in places}
    for row, panel in places:
        builder.store(builder.load(address(bias, _LONG(4 * PANEL * panel)), align=4), sums[row, panel])
    fma_type = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    fma = cgutils.get_or_insert_function(builder.module, fma_type, f"llvm.fma.v{PANEL}f32")  # type: ignore[no-untyped-call]  # numba's
    panel_bytes = builder.mul(depth, _LONG(4 * PANEL))
    with cgutils.for_range(builder, depth, intp=_LONG) as loop:
        step = builder.add(weight, builder.mul(loop.index, _LONG(4 * PANEL)))
        weights = [
            builder.load(address(step, builder.mul(panel_bytes, _LONG(panel))), align=4) for panel in range(num_panels)
        ]
        column = builder.add(x, builder.mul(loop.index, _LONG(4)))
        for row in range(num_rows):
            value = builder.load(address(column, builder.mul(x_stride, _LONG(row)), _FLOAT), align=4)
            one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, _INT(0))
            spread = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_INT, PANEL), [_INT(0)] * PANEL))
            for panel in range(num_panels):
                total = sums[row, panel]
                builder.store(builder.call(fma, [spread, weights[panel], builder.load(total)]), total)
    for row, panel in places:
        offset = builder.add(builder.mul(out_stride, _LONG(row)), _LONG(4 * PANEL * panel))
        builder.store(builder.load(sums[row, panel]), address(out, offset), align=4)


def _slot(builder: Any) -> Any:
    return cgutils.alloca_once(builder, _VECTOR)  # type: ignore[no-untyped-call]  # numba's


_one_panel = _tile_operation(lambda rows: 1)
_many_panels = _tile_operation(_panels_at_once)
_PANELS_AT_ONCE = tuple(_panels_at_once(max(1, rows)) for rows in range(_MOST_ROWS + 1))


@njit(cache=True, nogil=True)
def _panels(x, x_stride, weight, bias, out, out_stride, num_rows, depth, begin, end):  # type: ignore[no-untyped-def]  # numba infers
    """Panels begin … end - 1 of all rows, block of rows by block; a block's rows are dealt evenly to tiles."""
    panel_bytes = 4 * PANEL * depth
    block_rows = max(_MOST_ROWS, _INPUT_BYTES // (4 * depth) // _MOST_ROWS * _MOST_ROWS)
    for first in range(0, num_rows, block_rows):
        count = min(num_rows - first, block_rows)
        num_tiles = (count + _MOST_ROWS - 1) // _MOST_ROWS
        panel = begin
        if num_tiles == 1:
            at_once = _PANELS_AT_ONCE[count]
            inputs, outputs = x + first * x_stride, out + first * out_stride
            while panel + at_once <= end:
                w, b, o = weight + panel * panel_bytes, bias + 4 * PANEL * panel, outputs + 4 * PANEL * panel
                _many_panels(count, inputs, x_stride, w, b, o, out_stride, depth)
                panel += at_once
        while panel < end:
            w, b = weight + panel * panel_bytes, bias + 4 * PANEL * panel
            row = first
            for index in range(num_tiles):
                tile_rows = (count - (row - first)) // (num_tiles - index)
                inputs, outputs = x + row * x_stride, out + row * out_stride + 4 * PANEL * panel
                _one_panel(tile_rows, inputs, x_stride, w, b, outputs, out_stride, depth)
                row += tile_rows
            panel += 1


@njit(cache=True, nogil=True)
def _all_panels(x, x_stride, weight, bias, out, num_rows, depth, num_panels):  # type: ignore[no-untyped-def]
    _panels(x, x_stride, weight, bias, out, 4 * PANEL * num_panels, num_rows, depth, 0, num_panels)


@njit(cache=True, nogil=True, parallel=True)
def _all_panels_parallel(x, x_stride, weight, bias, out, num_rows, depth, num_panels, num_threads):  # type: ignore[no-untyped-def]
    """Panels are dealt out in runs of fours, a few per thread, so that a slow thread holds nobody up for long."""
    num_tasks = min(4 * num_threads, (num_panels + 3) // 4)
    for task in prange(num_tasks):
        begin = (num_panels + 3) // 4 * task // num_tasks * 4
        end = min(num_panels, (num_panels + 3) // 4 * (task + 1) // num_tasks * 4)
        _panels(x, x_stride, weight, bias, out, 4 * PANEL * num_panels, num_rows, depth, begin, end)
