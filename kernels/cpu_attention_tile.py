"""The two inner products of CPU attention, several query rows at a time, with their sums in registers.

::

    score_keys     rows x keys      lanes run along head_dim; a key that was loaded serves every row
    weigh_values   rows x strips    lanes are a strip of eight dims; a value that was loaded serves every row

A register tile is one to three rows wide, because AVX2 has sixteen registers: three rows by four keys (or strips) are
twelve sums, which also is what two multiply-add units need to stay busy.

Invariant: a sum's terms and their order are those of the row alone (`score_keys`: lanes d, d + 8, … apart, then joined
as a tree; `weigh_values`: keys in order), so how rows are put together changes no bit.

Like `simd` these are compiled into their callers: after a change here, delete `kernels/__pycache__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, 8)
_FOUR = ir.VectorType(_FLOAT, 4)

MAX_ROWS = 3


def _operation_of(function: Any) -> Any:
    """`numba.extending.intrinsic`, whose annotations describe the generator instead of the operation."""
    return intrinsic(function)


def _address(builder: Any, base: Any, offset: Any, kind: Any = _VECTOR) -> Any:
    return builder.inttoptr(builder.add(base, offset), kind.as_pointer())


def _load(builder: Any, base: Any, offset: Any, kind: Any = _VECTOR) -> Any:
    return builder.load(_address(builder, base, offset, kind), align=4)


def _load_long(builder: Any, base: Any, offset: Any) -> Any:
    return builder.load(_address(builder, base, offset, _LONG), align=8)


def _lanes(indices: Sequence[int]) -> Any:
    return ir.Constant(ir.VectorType(_INT, len(indices)), [_INT(i) for i in indices])


def _spread(builder: Any, value: Any) -> Any:
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(one, one, _lanes([0] * 8))


def _ask_for(builder: Any, address: Any, num_bytes: Any) -> None:
    """Prefetch the lines of some memory."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]  # numba's
    with cgutils.for_range(builder, builder.lshr(num_bytes, _LONG(6)), intp=_LONG) as loop:
        line = builder.add(address, builder.shl(loop.index, _LONG(6)))
        builder.call(function, [builder.inttoptr(line, byte), _INT(0), _INT(3), _INT(1)])


def _is_given(builder: Any, address: Any) -> Any:
    return builder.icmp_signed("!=", address, _LONG(0))


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.fma.v8f32")  # type: ignore[no-untyped-call]  # numba's
    return builder.call(function, [a, b, c])


def _slots(builder: Any, count: int) -> list[Any]:
    """Running sums: stack slots here, which LLVM turns into registers."""
    return [cgutils.alloca_once(builder, _VECTOR) for _ in range(count)]  # type: ignore[no-untyped-call]  # numba's


def _sum_each_of_four(builder: Any, v: Sequence[Any]) -> Any:
    """Lane i is the sum over the lanes of the i-th vector, neighbours first: ((0+1)+(2+3)) + ((4+5)+(6+7))."""
    even, odd = _lanes([0, 2, 8, 10, 4, 6, 12, 14]), _lanes([1, 3, 9, 11, 5, 7, 13, 15])
    while len(v) > 1:
        v = [
            builder.fadd(builder.shuffle_vector(a, b, even), builder.shuffle_vector(a, b, odd))
            for a, b in zip(v[::2], v[1::2], strict=True)
        ]
    low, high = (builder.shuffle_vector(v[0], v[0], _lanes(range(i, i + 4))) for i in (0, 4))
    return builder.fadd(low, high)


def _emit_scores(
    builder: Any, num_rows: int, num_keys: int, q: Any, k: Any, offsets: Any, ahead: Any, out: Any, first_key: Any,
    depth: Any,
) -> None:  # fmt: skip
    """num_rows x num_keys dot products from `first_key` on."""
    rows = [_load_long(builder, q, _LONG(8 * r)) for r in range(num_rows)]
    places = builder.add(offsets, builder.shl(first_key, _LONG(3)))
    keys = [builder.add(k, _load_long(builder, places, _LONG(8 * n))) for n in range(num_keys)]
    with builder.if_then(_is_given(builder, ahead)):
        theirs = builder.add(ahead, builder.shl(first_key, _LONG(3)))
        for n in range(num_keys):
            _ask_for(builder, _load_long(builder, theirs, _LONG(8 * n)), builder.shl(depth, _LONG(2)))
    sums = _slots(builder, num_rows * num_keys)
    for total in sums:
        builder.store(ir.Constant(_VECTOR, [0.0] * 8), total)
    with cgutils.for_range(builder, builder.lshr(depth, _LONG(3)), intp=_LONG) as loop:
        d = builder.shl(loop.index, _LONG(5))
        queries = [_load(builder, row, d) for row in rows]
        for n in range(num_keys):
            key = _load(builder, keys[n], d)
            for r in range(num_rows):
                total = sums[r * num_keys + n]
                builder.store(_fma(builder, queries[r], key, builder.load(total)), total)
    for r in range(num_rows):
        target = builder.add(_load_long(builder, out, _LONG(8 * r)), builder.shl(first_key, _LONG(2)))
        for n in range(0, num_keys, 4):
            four = [builder.load(total) for total in sums[r * num_keys + n : r * num_keys + n + 4]]
            place = _address(builder, target, _LONG(4 * n), _FOUR)
            builder.store(_sum_each_of_four(builder, four), place, align=4)


def _emit_values(
    builder: Any, num_rows: int, num_strips: int, out: Any, v: Any, offsets: Any, ahead: Any, weights: Any, decays: Any,
    begin: Any, end: Any, d: Any,
) -> None:  # fmt: skip
    """num_rows x (8 num_strips) dims from byte d on: out = out * decay + sum over keys of weight * value."""
    rows = [builder.add(_load_long(builder, out, _LONG(8 * r)), d) for r in range(num_rows)]
    scores = [_load_long(builder, weights, _LONG(8 * r)) for r in range(num_rows)]
    sums = _slots(builder, num_rows * num_strips)
    for r in range(num_rows):
        decay = _spread(builder, _load(builder, decays, _LONG(4 * r), _FLOAT))
        for s in range(num_strips):
            before = _load(builder, rows[r], _LONG(32 * s))
            builder.store(builder.fmul(before, decay), sums[r * num_strips + s])
    base = builder.add(v, d)
    with cgutils.for_range_slice(builder, begin, end, _LONG(1), intp=_LONG) as (n, _):
        place = builder.add(base, _load_long(builder, offsets, builder.shl(n, _LONG(3))))
        with builder.if_then(_is_given(builder, ahead)):
            there = _load_long(builder, ahead, builder.shl(n, _LONG(3)))
            _ask_for(builder, builder.add(there, d), _LONG(32 * num_strips))
        at = builder.shl(n, _LONG(2))
        given = [_spread(builder, _load(builder, row, at, _FLOAT)) for row in scores]
        for s in range(num_strips):
            value = _load(builder, place, _LONG(32 * s))
            for r in range(num_rows):
                total = sums[r * num_strips + s]
                builder.store(_fma(builder, given[r], value, builder.load(total)), total)
    for r in range(num_rows):
        for s in range(num_strips):
            builder.store(builder.load(sums[r * num_strips + s]), _address(builder, rows[r], _LONG(32 * s)), align=4)


@_operation_of
def score_keys(
    typing: Any, num_rows: Any, q: Any, k: Any, offsets: Any, ahead: Any, out: Any, begin: Any, end: Any, depth: Any
) -> Any:
    """Dot products of one to three query rows with keys begin to end - 1, both multiples of 8.

    q, out: the address of a list of the rows' addresses; offsets: of the keys' byte offsets from k; ahead: of one more
    address per key whose `depth` fp32 will be wanted next (0: nothing). Keys are `depth` fp32 long, a multiple of 8.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _, q, k, offsets, ahead, out, begin, end, depth = values
        done = builder.append_basic_block("scored")
        jump = builder.switch(values[0], done)
        for rows in range(1, MAX_ROWS + 1):
            block = builder.append_basic_block(f"score{rows}")
            jump.add_case(_LONG(rows), block)
            builder.position_at_end(block)
            keys = 8 if rows == 1 else 4
            with cgutils.for_range_slice(builder, begin, end, _LONG(keys), intp=_LONG) as (n, _):
                _emit_scores(builder, rows, keys, q, k, offsets, ahead, out, n, depth)
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 9), generate


@_operation_of
def weigh_values(
    typing: Any, num_rows: Any, out: Any, v: Any, offsets: Any, ahead: Any, weights: Any, decays: Any, begin: Any,
    end: Any, depth: Any,
) -> Any:  # fmt: skip
    """out = out * decay + sum over keys begin to end - 1 of weights[n] * value[n], for one to three rows.

    out, weights: the address of a list of the rows' addresses; decays: of one fp32 per row; offsets: of the keys' byte
    offsets from v; ahead: as for `score_keys`. Values are `depth` fp32 long, a multiple of 8.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _, out, v, offsets, ahead, weights, decays, begin, end, depth = values
        done = builder.append_basic_block("weighed")
        jump = builder.switch(values[0], done)
        for rows in range(1, MAX_ROWS + 1):
            block = builder.append_basic_block(f"weigh{rows}")
            jump.add_case(_LONG(rows), block)
            builder.position_at_end(block)
            num_bytes = builder.shl(depth, _LONG(2))
            d = _LONG(0)
            for strips in (8, 4, 1) if rows == 1 else (4, 1):
                count = builder.udiv(builder.sub(num_bytes, d), _LONG(32 * strips))
                with cgutils.for_range(builder, count, intp=_LONG) as loop:
                    here = builder.add(d, builder.mul(loop.index, _LONG(32 * strips)))
                    _emit_values(builder, rows, strips, out, v, offsets, ahead, weights, decays, begin, end, here)
                d = builder.add(d, builder.mul(count, _LONG(32 * strips)))
            builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 10), generate
