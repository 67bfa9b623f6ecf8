"""Products on the CPU with grouped weights of four and eight bits whose inputs may be rounded: whole numbers inside.

::

    x [K] fp32 ──► of each group: largest |x| ─► q = round(x / step)  int16, and their sum ┐
    weight [N, K] ──► numbers n of four or eight bits, a zero z and a scale of each group ─┤
                                                                                           ▼
    out = bias + sum over groups in order of  (sum of q * n - z * sum of q)  * (step * scale)
                                               int32, exact                    one multiply-add for each group
                 and, in place of z,          (sum of q) * (step * offset)     one more

As in `cpu_linear_int8` two products of 16 bits and their sum are one instruction, so weights of four bits take the
arithmetic of eight and half the reading. Sums of a group are exact and groups come in order: an output is one chain of
multiply-adds, and a row's bits depend on the row and the weight alone. Inputs keep 15 bits and a sign of the largest of
their own group, so that one that sticks out costs no other group anything; weights lose nothing.

Layout is `cpu_grouped`'s. A word of 32 bits, shifted and masked, is the numbers of two inputs of an output, four inputs
apart (two, of eight bits): rounded inputs lie in that order. Tiles are those of `cpu_linear`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import njit, types
from numba.core import cgutils
from torch import Tensor

from . import simd
from .compiled import Task, compiled
from .cpu_emit import HAS_AVX512BW, ask_for_line, emit_call, fma, operation_of, spread, sum_pairs
from .cpu_grouped import FIRST_ROUNDING, HAS_OFFSETS, KIND_BITS, emit_flag
from .cpu_linear import multiply
from .cpu_mxfp4 import PANEL
from .cpu_team import argument, num_tasks_of, panels_of_task, share
from .linear_weight import LinearWeight

_SHORT, _INT, _LONG = ir.IntType(16), ir.IntType(32), ir.IntType(64)
_INTS, _SHORTS = ir.VectorType(_INT, PANEL), ir.VectorType(_SHORT, 2 * PANEL)
_FLOATS = ir.VectorType(ir.FloatType(), PANEL)
_BYTES, _EIGHT = ir.VectorType(ir.IntType(8), PANEL), ir.VectorType(_INT, 8)
_MOST_ROWS = 8 if HAS_AVX512BW else 3  # of a tile: two registers for each of its sums
_AT_ONCE = np.array([1, 8, 4, 2, 2, 1, 1, 1, 1] if HAS_AVX512BW else [1, 2, 1, 1])  # panels, by rows of a tile
RUN = 4  # panels that stay together in a task
_ASKING_ROWS = 3  # as in `cpu_linear`
_INPUT_BYTES = 1 << 18
_ORDERS = {4: [0, 4, 1, 5, 2, 6, 3, 7], 8: [0, 2, 1, 3, 4, 6, 5, 7]}  # of eight rounded inputs, by bits of a number


def cpu_linear_grouped(x: Tensor, weight: LinearWeight) -> Tensor:
    """`linear` for fp32 x `[T, K]` (dense rows, any stride between them) and an int4 or int8 weight in groups."""
    return multiply(_all_panels, PANELS, x, weight)


@operation_of
def _store_octet(typing: Any, address: Any, v: Any, is_int4: Any) -> Any:
    """Eight fp32, rounded to even, as int16 in the order of `_ORDERS`; returns their sum."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        place, numbers, is_four = values
        whole = builder.fptosi(emit_call(builder, "llvm.rint.v8f32", numbers.type, numbers), _EIGHT)
        short = builder.trunc(whole, ir.VectorType(_SHORT, 8))
        four, eight = (
            builder.shuffle_vector(short, short, ir.Constant(_EIGHT, [_INT(i) for i in order]))
            for order in _ORDERS.values()
        )
        ordered = builder.select(builder.trunc(is_four, ir.IntType(1)), four, eight)
        builder.store(ordered, builder.inttoptr(place, short.type.as_pointer()), align=2)
        return builder.sext(emit_call(builder, "llvm.vector.reduce.add.v8i32", _INT, whole), _LONG)

    return types.int64(types.int64, simd.float32x8, types.int64), generate


@operation_of
def _tile(
    typing: Any, kind: Any, num_rows: Any, num_panels: Any, x: Any, weight: Any, bias: Any, factors: Any, out: Any,
    out_stride: Any, depth: Any, ahead: Any, share: Any,
) -> Any:  # fmt: skip
    """One to `_MOST_ROWS` rows and `_AT_ONCE[num_rows]` or one neighbouring panels; addresses, strides in bytes.

    kind: as `LinearWeight.packing`. factors: of each row and group its step, fp32, and its sum, int32. ahead, share:
    as in `cpu_linear`.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        done = builder.append_basic_block("done")
        size = builder.lshr(values[0], _LONG(KIND_BITS))
        key = builder.add(builder.mul(builder.and_(values[0], _LONG(7)), _LONG(256)), builder.mul(values[1], _LONG(16)))
        has_offsets = emit_flag(builder, values[0])
        jump = builder.switch(builder.add(key, values[2]), done)
        for bits, packing in ((4, FIRST_ROUNDING), (8, FIRST_ROUNDING + 1)):
            for rows in range(1, _MOST_ROWS + 1):
                for panels in {1, int(_AT_ONCE[rows]), *([RUN] if rows == 1 and HAS_AVX512BW else [])}:
                    block = builder.append_basic_block(f"rows{rows}x{panels}")
                    jump.add_case(_LONG(256 * packing + 16 * rows + panels), block)
                    builder.position_at_end(block)
                    _emit_tile(builder, bits, has_offsets, size, rows, panels, *values[3:])
                    builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 12), generate


def _emit_tile(
    builder: Any, bits: int, has_offsets: Any, size: Any, num_rows: int, num_panels: int, x: Any, weight: Any,
    bias: Any, factors: Any, out: Any, out_stride: Any, depth: Any, ahead: Any, share: Any,
) -> None:  # fmt: skip
    """The LLVM code of one tile. The sums are stack slots here; LLVM turns them into registers."""

    def load(address: Any, kind: Any, align: int = 4) -> Any:
        return builder.load(builder.inttoptr(address, kind.as_pointer()), align=align)

    def plus(*terms: Any) -> Any:
        total = terms[0]
        for term in terms[1:]:
            total = builder.add(total, term)
        return total

    places = [(row, panel) for row in range(num_rows) for panel in range(num_panels)]
    sums, totals = ({p: cgutils.alloca_once(builder, kind) for p in places} for kind in (_INTS, _FLOATS))  # type: ignore[no-untyped-call]  # numba's
    for row, panel in places:
        builder.store(load(plus(bias, _LONG(4 * PANEL * panel)), _FLOATS), totals[row, panel])
    num_groups, lines = builder.udiv(depth, size), builder.lshr(size, _LONG(3 if bits == 4 else 2))
    group_bytes = builder.shl(builder.add(lines, _LONG(1)), _LONG(6))
    zeros_begin = builder.mul(num_groups, group_bytes)
    behind = builder.select(has_offsets, _LONG(6), _LONG(4))  # offsets are four bytes, and zeros one
    zeros_end = builder.and_(plus(builder.shl(num_groups, behind), _LONG(63)), _LONG(-64))
    panels = [plus(weight, builder.mul(plus(zeros_begin, zeros_end), _LONG(p))) for p in range(num_panels)]
    row_bytes, factor_bytes = builder.shl(depth, _LONG(1)), builder.shl(num_groups, _LONG(3))
    with cgutils.for_range(builder, num_groups, intp=_LONG) as groups:
        begins = [plus(panel, builder.mul(groups.index, group_bytes)) for panel in panels]
        for place in places:
            builder.store(ir.Constant(_INTS, [_INT(0)] * PANEL), sums[place])
        first = builder.mul(groups.index, size)
        with cgutils.for_range(builder, lines, intp=_LONG) as loop:
            at = builder.shl(builder.add(loop.index, _LONG(1)), _LONG(6))
            words = [load(plus(begin, at), _INTS) for begin in begins]
            index = plus(first, builder.shl(loop.index, _LONG(3 if bits == 4 else 2)))
            with builder.if_then(builder.icmp_signed("!=", ahead, _LONG(0))):
                line = builder.shl(builder.lshr(builder.mul(index, share), _LONG(16)), _LONG(6))
                ask_for_line(builder, plus(ahead, line))
            column = plus(x, builder.shl(index, _LONG(1)))
            for pair in range(4 if bits == 4 else 2):
                numbers = [_emit_pair(builder, bits, word, pair) for word in words]
                for row in range(num_rows):
                    both = load(plus(column, builder.mul(row_bytes, _LONG(row)), _LONG(4 * pair)), _INT)
                    inputs = builder.bitcast(spread(builder, both, _INTS), _SHORTS)
                    for panel in range(num_panels):
                        slot = sums[row, panel]
                        product = sum_pairs(builder, inputs, numbers[panel])
                        builder.store(builder.add(builder.load(slot), product), slot)
        behind_at = plus(zeros_begin, builder.shl(groups.index, behind))
        own = [
            plus(factors, builder.mul(factor_bytes, _LONG(row)), builder.shl(groups.index, _LONG(3)))
            for row in range(num_rows)
        ]
        steps = [spread(builder, load(at, ir.FloatType()), _FLOATS) for at in own]
        inputs = [spread(builder, load(plus(at, _LONG(4)), _INT), _INTS) for at in own]
        middle = ir.Constant(_INTS, [_INT(8 if bits == 4 else 0)] * PANEL)  # numbers of four bits count from 0 here
        with builder.if_else(has_offsets) as (then, otherwise):
            with then:
                offsets = [load(plus(panel, behind_at), _FLOATS) for panel in panels]
                for row, panel in places:
                    slot, factor = totals[row, panel], builder.fmul(steps[row], builder.sitofp(inputs[row], _FLOATS))
                    builder.store(fma(builder, factor, offsets[panel], builder.load(slot)), slot)
            with otherwise:
                stored = [builder.sext(load(plus(panel, behind_at), _BYTES, 1), _INTS) for panel in panels]
                zeros = [builder.add(zero, middle) for zero in stored]
                for row, panel in places:
                    slot = sums[row, panel]
                    builder.store(builder.sub(builder.load(slot), builder.mul(zeros[panel], inputs[row])), slot)
        scales = [load(begin, _FLOATS) for begin in begins]
        for row, panel in places:
            value, slot = builder.sitofp(builder.load(sums[row, panel]), _FLOATS), totals[row, panel]
            scale = builder.fmul(steps[row], scales[panel])
            builder.store(fma(builder, value, scale, builder.load(slot)), slot)
    for row, panel in places:
        to = plus(out, builder.mul(out_stride, _LONG(row)), _LONG(4 * PANEL * panel))
        builder.store(builder.load(totals[row, panel]), builder.inttoptr(to, _FLOATS.as_pointer()), align=4)


def _emit_pair(builder: Any, bits: int, words: Any, pair: int) -> Any:
    """The numbers of two inputs of each output, `<32 x i16>`: from 0 on of four bits, signed of eight."""
    if bits == 4:
        shifted = builder.lshr(words, ir.Constant(_INTS, [_INT(4 * pair)] * PANEL)) if pair else words
        return builder.bitcast(builder.and_(shifted, ir.Constant(_INTS, [_INT(0x000F000F)] * PANEL)), _SHORTS)
    eight, shorts = ir.Constant(_SHORTS, [_SHORT(8)] * 2 * PANEL), builder.bitcast(words, _SHORTS)
    return builder.ashr(builder.shl(shorts, eight) if pair == 0 else shorts, eight)


@njit
def _round_rows(x, x_stride, num_rows, depth, size, bits):  # type: ignore[no-untyped-def]  # numba infers
    """int16 `[num_rows, K]`, and of each row and group its step, fp32, and its sum, int32, as bits."""
    num_groups = depth // size
    limit = np.float32(min(32767, (2**31 - 1) // ((2 << bits) * size)))  # sums, zeros subtracted, fit int32
    whole, factors = np.empty((num_rows, depth), np.int16), np.empty((num_rows, num_groups, 2), np.int32)
    steps = factors.view(np.float32)
    for row in range(num_rows):
        for group in range(num_groups):
            source = x + row * x_stride + 4 * group * size
            target = whole.ctypes.data + 2 * (row * depth + group * size)
            top, zero = simd.splat(np.float32(0.0)), simd.splat(np.float32(0.0))
            spoilt = zero
            for i in range(0, 4 * size, 32):
                value = simd.load(source + i)
                top = simd.larger(simd.larger(value, simd.sub(zero, value)), top)
                spoilt = simd.fma(value, zero, spoilt)  # NaN if there is one: it has no whole number
            most = simd.largest(top)
            factor = limit / most if most > 0 else np.float32(0.0)
            total = 0
            for i in range(0, size, 8):
                scaled = simd.mul(simd.load(source + 4 * i), simd.splat(factor))
                total += _store_octet(target + 2 * i, scaled, 1 if bits == 4 else 0)
            steps[row, group, 0] = most / limit + simd.total(spoilt)
            factors[row, group, 1] = total
    return whole, factors


@njit
def _panels(whole, factors, weight, packing, num_bytes, bias, out, num_rows, depth, num_panels, begin, end):  # type: ignore[no-untyped-def]
    """Panels begin … end - 1 of all rows, block of rows by block; a block's rows are dealt evenly to tiles."""
    out_stride, factor_bytes = 4 * PANEL * num_panels, 8 * (depth // (packing >> KIND_BITS))
    block_rows = max(_MOST_ROWS, _INPUT_BYTES // (2 * depth) // _MOST_ROWS * _MOST_ROWS)
    for first in range(0, num_rows, block_rows):
        count = min(num_rows - first, block_rows)
        num_tiles = (count + _MOST_ROWS - 1) // _MOST_ROWS
        panel = begin
        while panel < end:
            at_once = _AT_ONCE[count] if num_tiles == 1 else 1
            if panel + at_once > end:
                at_once = RUN if count == 1 and panel + RUN <= end else 1
            w, b = weight + panel * num_bytes, bias + 4 * PANEL * panel
            row = first
            for index in range(num_tiles):
                rows = (count - (row - first)) // (num_tiles - index)
                inputs, outputs = whole + 2 * depth * row, out + row * out_stride + 4 * PANEL * panel
                num_lines = at_once * num_bytes // 64
                ahead = w + 64 * (num_lines + num_lines * index // num_tiles) if num_rows >= _ASKING_ROWS else 0
                share = (num_lines << 16) // (num_tiles * depth)
                own = factors + factor_bytes * row
                _tile(packing, rows, at_once, inputs, w, b, own, outputs, out_stride, depth, ahead, share)
                row += rows
            panel += at_once


@njit
def _bytes_of(packing, depth):  # type: ignore[no-untyped-def]
    """Bytes of a panel, and bits of a number."""
    size, bits = packing >> KIND_BITS, 4 if packing & 7 == FIRST_ROUNDING else 8
    num_groups = depth // size
    behind = num_groups * 64 if packing & HAS_OFFSETS else (num_groups * 16 + 63) // 64 * 64
    return num_groups * (64 + size * 2 * bits) + behind, bits


@njit
def all_panels(team, function, x, x_stride, weight, packing, bias, out, num_rows, depth, num_panels):  # type: ignore[no-untyped-def]
    """The product, by the team's threads (0: by the caller alone), behind the caller's rounding of the rows.

    function: the address of `PANELS`.
    """
    num_bytes, bits = _bytes_of(packing, depth)
    whole, factors = _round_rows(x, x_stride, num_rows, depth, packing >> KIND_BITS, bits)
    num_tasks = num_tasks_of(team, num_panels, RUN)
    rows, steps = np.int64(whole.ctypes.data), np.int64(factors.ctypes.data)
    shape = (num_rows, depth, num_panels, num_tasks)
    words = np.array((rows, steps, weight, packing, num_bytes, bias, out, *shape), np.int64)
    share(team, function, words, num_tasks)
    whole[0, 0], factors[0, 0, 0] = 0, 0  # so that they are still there


@compiled()
def _all_panels(team, function, x, x_stride, weight, packing, bias, out, num_rows, depth, num_panels):  # type: ignore[no-untyped-def]
    all_panels(team, function, x, x_stride, weight, packing, bias, out, num_rows, depth, num_panels)


@Task
def PANELS(at, index):  # type: ignore[no-untyped-def]
    """A task of `all_panels`: whole runs of panels."""
    rows, steps, weight, packing = argument(at, 0), argument(at, 1), argument(at, 2), argument(at, 3)
    num_bytes, bias, out = argument(at, 4), argument(at, 5), argument(at, 6)
    num_rows, depth, num_panels, num_tasks = argument(at, 7), argument(at, 8), argument(at, 9), argument(at, 10)
    begin, end = panels_of_task(index, num_tasks, num_panels, RUN)
    _panels(rows, steps, weight, packing, num_bytes, bias, out, num_rows, depth, num_panels, begin, end)
