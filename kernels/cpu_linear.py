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

Weights come from memory, once; with up to a dozen rows that takes as long as the arithmetic, so the two must overlap.
A tile that multiplies asks for its part of the panels to come (a line every few steps), and the tiles of a panel share
that out, since only the first of them waits for memory. Weights that bf16 holds exactly are stored so and widened in
registers, which halves the reading and changes no bit; those in MXFP4 are a quarter of that (`cpu_mxfp4`).

Cost, measured on an AMD Zen 3 core that reads 20 GB/s and multiplies 100 GFLOP/s: the products of SmolLM-135M's shape
(135 million weights) take 24, 35 and 200 ms for 1, 8 and 64 rows, and 13, 29 and 200 ms if bf16 holds the weights.
Weights are packed once (`linear_weight`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import torch
from llvmlite import binding, ir  # type: ignore[import-untyped]  # ships no types
from numba import njit, types
from numba.core import cgutils
from torch import Tensor

from . import cpu_grouped
from .compiled import Task, compiled
from .cpu_emit import IS_HERE, ask_for_line, fma, operation_of, spread
from .cpu_mxfp4 import GROUP_BYTES, emit_numbers, emit_scales
from .cpu_team import argument, num_tasks_of, panels_of_task, share
from .cpu_threads import thread_team
from .linear_weight import PANEL, LinearWeight
from .mxfp4 import BLOCK

_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, PANEL)
_PAIRS = ir.VectorType(_INT, PANEL // 2)
_HAS_AVX512 = bool(binding.get_host_cpu_features().get("avx512f"))
_MAY_LOOK_UP = _HAS_AVX512 and IS_HERE
_MOST_ROWS = 12 if _HAS_AVX512 else 6  # of a tile: 12 registers of sums; AVX2 has 16, and two of them make a panel
_AT_ONCE = np.array([1, 8, 4, 2, 2, *[1] * 8] if _HAS_AVX512 else [1, 4, 2, *[1] * 4])  # panels, by rows of a tile
RUN = 4  # panels that stay together in a task
# with a scale and an offset to each panel
_AT_ONCE_GROUPED = np.array([1, 4, 4, 2, 2, *[1] * 8] if _HAS_AVX512 else [1, 2, *[1] * 5])
_ASKING_ROWS = 3  # from so many on the weights to come are asked for: fewer rows are no work to do it beside
_INPUT_BYTES = 1 << 18  # inputs of a block of rows, which stay in the second-level cache while the weights pass


def cpu_linear(x: Tensor, weight: LinearWeight) -> Tensor:
    """`linear` for fp32 x `[T, K]` (dense rows, any stride between them) and a packed weight."""
    return multiply(_all_panels, PANELS, x, weight)


def multiply(all_panels: Callable[..., None], panels: Task, x: Tensor, weight: LinearWeight) -> Tensor:
    """The product by compiled loops that take a weight with a packing: `all_panels`, and `panels` for a team."""
    num_rows, depth = x.shape
    stored, bias = weight.stored, weight.bias
    assert bias is not None
    num_panels = stored.shape[0]
    out = torch.empty((num_rows, num_panels * PANEL))
    pointers = (x.data_ptr(), 4 * x.stride(0), stored.data_ptr(), weight.packing, bias.data_ptr(), out.data_ptr())
    with thread_team(num_rows * depth * num_panels * PANEL) as team:
        all_panels(team, panels.address, *pointers, num_rows, depth, num_panels)
    return out if num_panels * PANEL == weight.num_outputs else out[:, : weight.num_outputs]


@operation_of
def _tile(
    typing: Any, packing: Any, num_rows: Any, num_panels: Any, x: Any, x_stride: Any, weight: Any, bias: Any, out: Any,
    out_stride: Any, depth: Any, ahead: Any, share: Any,
) -> Any:  # fmt: skip
    """One to `_MOST_ROWS` rows and `_AT_ONCE[num_rows]` or one neighbouring panels; addresses, strides in bytes.

    ahead: what will be wanted next, a line of it asked for every 65536 / share steps; 0: nothing. There is one piece of
    straight code for each kind of tile, and a jump to it.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        done = builder.append_basic_block("done")
        kind, group = builder.and_(values[0], _LONG(7)), builder.lshr(values[0], _LONG(3))
        key = builder.add(builder.add(builder.mul(kind, _LONG(256)), builder.mul(values[1], _LONG(16))), values[2])
        jump = builder.switch(key, done)
        for packing, rows in product(range(6), range(1, _MOST_ROWS + 1)):
            at_once = _AT_ONCE if packing < cpu_grouped.FIRST_KIND else _AT_ONCE_GROUPED
            for panels in {1, int(at_once[rows]), *([RUN] if rows == 1 and at_once[1] > RUN else [])}:
                block = builder.append_basic_block(f"rows{rows}x{panels}")
                jump.add_case(_LONG(256 * packing + 16 * rows + panels), block)
                builder.position_at_end(block)
                _emit_tile(builder, packing, group, rows, panels, *values[3:])
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 12), generate


def _emit_tile(
    builder: Any, packing: int, group: Any, num_rows: int, num_panels: int, x: Any, x_stride: Any, weight: Any,
    bias: Any, out: Any, out_stride: Any, depth: Any, ahead: Any, share: Any,
) -> None:  # fmt: skip
    """The LLVM code of one tile. The sums are stack slots here; LLVM turns them into registers."""

    def address(base: Any, offset: Any, kind: Any = _VECTOR) -> Any:
        return builder.inttoptr(builder.add(base, offset), kind.as_pointer())

    def weights_at(base: Any, offset: Any) -> Any:
        if packing == 0:
            return builder.load(address(base, offset), align=4)
        pairs = builder.load(address(base, offset, _PAIRS), align=4)
        low = builder.shl(pairs, ir.Constant(_PAIRS, [_INT(16)] * _PAIRS.count))
        high = builder.and_(pairs, ir.Constant(_PAIRS, [_INT(0xFFFF0000)] * _PAIRS.count))
        return builder.bitcast(
            builder.shuffle_vector(low, high, ir.Constant(ir.VectorType(_INT, PANEL), [_INT(i) for i in range(PANEL)])),
            _VECTOR,
        )

    places = [(row, panel) for row in range(num_rows) for panel in range(num_panels)]
    sums = {place: _slot(builder) for place in places}
    for row, panel in places:
        builder.store(builder.load(address(bias, _LONG(4 * PANEL * panel)), align=4), sums[row, panel])
    step_bytes = _LONG(2 * PANEL if packing == 1 else 4 * PANEL)
    panel_bytes = builder.mul(depth, step_bytes)
    if packing == 2:
        panel_bytes = builder.mul(builder.lshr(depth, _LONG(5)), _LONG(GROUP_BYTES))

    def ask(index: Any) -> None:
        """A line of what will be wanted next."""
        with builder.if_then(builder.icmp_signed("!=", ahead, _LONG(0))):
            line = builder.shl(builder.lshr(builder.mul(index, share), _LONG(16)), _LONG(6))
            ask_for_line(builder, builder.add(ahead, line))

    def multiply(index: Any, weights: list[Any], *, asks: bool = True) -> None:
        """One input of each row with its weights."""
        if asks:
            ask(index)
        column = builder.add(x, builder.mul(index, _LONG(4)))
        for row in range(num_rows):
            given = builder.load(address(column, builder.mul(x_stride, _LONG(row)), _FLOAT), align=4)
            one = spread(builder, given, _VECTOR)
            for panel in range(num_panels):
                total = sums[row, panel]
                builder.store(fma(builder, one, weights[panel], builder.load(total)), total)

    if packing >= cpu_grouped.FIRST_KIND:
        element = cpu_grouped.ELEMENTS[packing - cpu_grouped.FIRST_KIND]
        per_word, num_groups = cpu_grouped.words_of(element), builder.udiv(depth, group)
        words = builder.udiv(group, _LONG(per_word))
        group_bytes = builder.shl(builder.add(words, _LONG(1)), _LONG(6))
        zeros_begin = builder.mul(num_groups, group_bytes)
        zeros_end = builder.and_(builder.add(builder.shl(num_groups, _LONG(4)), _LONG(63)), _LONG(-64))
        panel_bytes = builder.add(zeros_begin, zeros_end)
    panels = [builder.add(weight, builder.mul(panel_bytes, _LONG(panel))) for panel in range(num_panels)]
    if packing >= cpu_grouped.FIRST_KIND:
        with cgutils.for_range(builder, num_groups, intp=_LONG) as groups:
            begins = [builder.add(panel, builder.mul(groups.index, group_bytes)) for panel in panels]
            zero = builder.add(zeros_begin, builder.shl(groups.index, _LONG(4)))
            factors = [
                cpu_grouped.emit_factors(builder, begin, builder.add(panel, zero))
                for begin, panel in zip(begins, panels, strict=True)
            ]
            first = builder.mul(groups.index, group)
            with cgutils.for_range(builder, words, intp=_LONG) as loop:
                at = builder.shl(builder.add(loop.index, _LONG(1)), _LONG(6))
                lines = [cpu_grouped.emit_line(builder, builder.add(begin, at)) for begin in begins]
                index = builder.add(first, builder.mul(loop.index, _LONG(per_word)))
                ask(index)
                for which in range(per_word):
                    weights = []
                    for line, (scale, offset) in zip(lines, factors, strict=True):
                        number = cpu_grouped.emit_numbers(builder, element, line, which, has_avx512=_MAY_LOOK_UP)
                        weights.append(fma(builder, number, scale, offset))
                    multiply(builder.add(index, _LONG(which)), weights, asks=False)
    elif packing == 2:
        with cgutils.for_range(builder, builder.lshr(depth, _LONG(5)), intp=_LONG) as groups:
            begins = [builder.add(panel, builder.mul(groups.index, _LONG(GROUP_BYTES))) for panel in panels]
            scales = [emit_scales(builder, begin) for begin in begins]
            with cgutils.for_range(builder, _LONG(BLOCK // 2), intp=_LONG) as loop:
                at = builder.add(builder.mul(loop.index, _LONG(PANEL)), _LONG(PANEL))
                pairs = [emit_numbers(builder, builder.add(begin, at), has_avx512=_MAY_LOOK_UP) for begin in begins]
                index = builder.add(builder.mul(groups.index, _LONG(BLOCK)), builder.mul(loop.index, _LONG(2)))
                for which, numbers in enumerate(zip(*pairs, strict=True)):
                    weights = [builder.fmul(each, scale) for each, scale in zip(numbers, scales, strict=True)]
                    multiply(builder.add(index, _LONG(which)), weights)
    else:
        with cgutils.for_range(builder, depth, intp=_LONG) as loop:
            step = builder.mul(loop.index, step_bytes)
            multiply(loop.index, [weights_at(panel, step) for panel in panels])
    for row, panel in places:
        offset = builder.add(builder.mul(out_stride, _LONG(row)), _LONG(4 * PANEL * panel))
        builder.store(builder.load(sums[row, panel]), address(out, offset), align=4)


def _slot(builder: Any) -> Any:
    return cgutils.alloca_once(builder, _VECTOR)  # type: ignore[no-untyped-call]  # numba's


@njit
def _panel_bytes(packing, depth):  # type: ignore[no-untyped-def]  # numba infers
    """packing: as in `LinearWeight`, with the size of a group above the lowest three bits."""
    kind, group = packing & 7, packing >> 3
    if kind >= 3:
        num_groups = depth // group
        return num_groups * (64 + group * (8 if kind == 3 else 16)) + (num_groups * 16 + 63) // 64 * 64
    return depth // 32 * GROUP_BYTES if kind == 2 else (2 if kind == 1 else 4) * PANEL * depth


@compiled()
def _panels(x, x_stride, weight, packing, bias, out, out_stride, num_rows, depth, begin, end):  # type: ignore[no-untyped-def]  # numba infers
    """Panels begin … end - 1 of all rows, block of rows by block; a block's rows are dealt evenly to tiles."""
    panel_bytes, most = _panel_bytes(packing, depth), _AT_ONCE if packing < 8 else _AT_ONCE_GROUPED
    block_rows = max(_MOST_ROWS, _INPUT_BYTES // (4 * depth) // _MOST_ROWS * _MOST_ROWS)
    for first in range(0, num_rows, block_rows):
        count = min(num_rows - first, block_rows)
        num_tiles = (count + _MOST_ROWS - 1) // _MOST_ROWS
        panel = begin
        while panel < end:
            at_once = most[count] if num_tiles == 1 else 1
            if panel + at_once > end:
                at_once = RUN if count == 1 and panel + RUN <= end else 1
            w, b = weight + panel * panel_bytes, bias + 4 * PANEL * panel
            row = first
            for index in range(num_tiles):
                rows = (count - (row - first)) // (num_tiles - index)
                inputs, outputs = x + row * x_stride, out + row * out_stride + 4 * PANEL * panel
                num_lines = at_once * panel_bytes // 64
                ahead = w + 64 * (num_lines + num_lines * index // num_tiles) if num_rows >= _ASKING_ROWS else 0
                share = (num_lines << 16) // (num_tiles * depth)
                _tile(packing, rows, at_once, inputs, x_stride, w, b, outputs, out_stride, depth, ahead, share)
                row += rows
            panel += at_once


@njit
def all_panels(team, function, x, x_stride, weight, packing, bias, out, num_rows, depth, num_panels):  # type: ignore[no-untyped-def]
    """The product, by the team's threads (0: by the caller alone); function: the address of `PANELS`."""
    num_tasks = num_tasks_of(team, num_panels, RUN)
    words = np.array((x, x_stride, weight, packing, bias, out, num_rows, depth, num_panels, num_tasks), np.int64)
    share(team, function, words, num_tasks)


@compiled()
def _all_panels(team, function, x, x_stride, weight, packing, bias, out, num_rows, depth, num_panels):  # type: ignore[no-untyped-def]
    all_panels(team, function, x, x_stride, weight, packing, bias, out, num_rows, depth, num_panels)


@Task
def PANELS(at, index):  # type: ignore[no-untyped-def]
    """A task of `all_panels`: whole runs of panels."""
    x, x_stride, weight, packing = argument(at, 0), argument(at, 1), argument(at, 2), argument(at, 3)
    bias, out, num_rows, depth = argument(at, 4), argument(at, 5), argument(at, 6), argument(at, 7)
    num_panels, num_tasks = argument(at, 8), argument(at, 9)
    begin, end = panels_of_task(index, num_tasks, num_panels, RUN)
    _panels(x, x_stride, weight, packing, bias, out, 4 * PANEL * num_panels, num_rows, depth, begin, end)
