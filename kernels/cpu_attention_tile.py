"""The inner products of CPU attention, several query rows at a time, with their sums in registers.

::

    score_keys      a register holds four dims of two keys;  eight keys that were loaded meet up to three rows
    weigh_values    a register holds eight dims of a value;  a value that was loaded meets up to three rows

A register tile is one to three rows wide, because AVX2 has sixteen registers: three rows by four are twelve sums, which
also is what two multiply-add units need to stay busy. Two keys share a register because the sum along its lanes is what
takes the time when heads are small: over four lanes it is less than half the work of one over eight.

Invariant: a sum's terms and their order are those of the row alone, so how rows are put together changes no bit.
Scores: dims d, d + 4, … are four chains, joined as (0+1) + (2+3). Weighted values: keys in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import types
from numba.core import cgutils

from .cpu_emit import ask_for_line, fma, operation_of, spread
from .cpu_work import TILE

_FLOAT, _INT, _LONG = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, 8)
_FOUR = ir.VectorType(_FLOAT, 4)

MAX_ROWS = 3


def _address(builder: Any, base: Any, offset: Any, kind: Any = _VECTOR) -> Any:
    return builder.inttoptr(builder.add(base, offset), kind.as_pointer())


def _load(builder: Any, base: Any, offset: Any, kind: Any = _VECTOR) -> Any:
    return builder.load(_address(builder, base, offset, kind), align=4)


def _load_long(builder: Any, base: Any, offset: Any) -> Any:
    return builder.load(_address(builder, base, offset, _LONG), align=8)


def _lanes(indices: Sequence[int]) -> Any:
    return ir.Constant(ir.VectorType(_INT, len(indices)), [_INT(i) for i in indices])


def _is_given(builder: Any, address: Any) -> Any:
    return builder.icmp_signed("!=", address, _LONG(0))


def _slots(builder: Any, count: int) -> list[Any]:
    """Running sums: stack slots here, which LLVM turns into registers."""
    return [cgutils.alloca_once(builder, _VECTOR) for _ in range(count)]  # type: ignore[no-untyped-call]  # numba's


def _sum_pairs(builder: Any, v: Sequence[Any]) -> Any:
    """Lane i: the sum of key i's four lanes; v: four registers of keys 0 and 4, 1 and 5, 2 and 6, 3 and 7."""
    even, odd = _lanes([0, 2, 8, 10, 4, 6, 12, 14]), _lanes([1, 3, 9, 11, 5, 7, 13, 15])
    while len(v) > 1:
        v = [
            builder.fadd(builder.shuffle_vector(a, b, even), builder.shuffle_vector(a, b, odd))
            for a, b in zip(v[::2], v[1::2], strict=True)
        ]
    return v[0]


def _emit_scores(builder: Any, num_rows: int, q: Any, pairs: Callable[[Any], list[Any]], out: Any, depth: Any) -> None:
    """num_rows x 8 dot products; pairs(d): four dims from byte d on of keys 0 and 4, 1 and 5, 2 and 6, 3 and 7."""
    rows = [builder.add(q, builder.mul(depth, _LONG(4 * r))) for r in range(num_rows)]
    sums = _slots(builder, 4 * num_rows)
    for total in sums:
        builder.store(ir.Constant(_VECTOR, [0.0] * 8), total)
    with cgutils.for_range(builder, builder.lshr(depth, _LONG(2)), intp=_LONG) as loop:
        d = builder.shl(loop.index, _LONG(4))
        fours = [_load(builder, row, d, _FOUR) for row in rows]
        queries = [builder.shuffle_vector(four, four, _lanes([0, 1, 2, 3] * 2)) for four in fours]
        for n, keys in enumerate(pairs(d)):
            for r in range(num_rows):
                total = sums[4 * r + n]
                builder.store(fma(builder, queries[r], keys, builder.load(total)), total)
    for r in range(num_rows):
        scores = _sum_pairs(builder, [builder.load(total) for total in sums[4 * r : 4 * r + 4]])
        builder.store(scores, _address(builder, out, _LONG(4 * TILE * r)), align=4)


def _addresses(builder: Any, k: Any, offsets: Any, n: Any) -> list[Any]:
    """Of eight keys from n on."""
    places = builder.add(offsets, builder.shl(n, _LONG(3)))
    return [builder.add(k, _load_long(builder, places, _LONG(8 * i))) for i in range(8)]


def _pairs(builder: Any, keys: Sequence[Any], d: Any) -> list[Any]:
    fours = [_load(builder, key, d, _FOUR) for key in keys]
    return [builder.shuffle_vector(fours[i], fours[i + 4], _lanes(range(8))) for i in range(4)]


def _pairs_asking(builder: Any, keys: Sequence[Any], ahead: Any, d: Any) -> list[Any]:
    """`_pairs`, and two lines of the eight keys whose addresses stand from `ahead` on.

    A few lines at a time: what is on its way has few places to wait in, and one too many holds up everything.
    """
    with builder.if_then(_is_given(builder, ahead)):
        for i in range(2):
            line = builder.add(builder.lshr(d, _LONG(3)), _LONG(i))
            place = builder.add(ahead, builder.shl(builder.and_(line, _LONG(7)), _LONG(3)))
            key = builder.load(builder.inttoptr(place, _LONG.as_pointer()), align=8)
            ask_for_line(builder, builder.add(key, builder.shl(builder.lshr(line, _LONG(3)), _LONG(6))))
    return _pairs(builder, keys, d)


def _for_each_row_count(builder: Any, num_rows: Any, emit: Callable[[int], None]) -> None:
    """Straight code for one, two and three rows, and a jump to it."""
    done = builder.append_basic_block("done")
    jump = builder.switch(num_rows, done)
    for rows in range(1, MAX_ROWS + 1):
        block = builder.append_basic_block(f"rows{rows}")
        jump.add_case(_LONG(rows), block)
        builder.position_at_end(block)
        emit(rows)
        builder.branch(done)
    builder.position_at_end(done)


@operation_of
def score_keys(
    typing: Any, num_rows: Any, q: Any, k: Any, offsets: Any, ahead: Any, out: Any, begin: Any, end: Any, depth: Any
) -> Any:
    """Dot products of one to three query rows with keys begin to end - 1, both multiples of 8.

    Rows are `depth` fp32 long, a multiple of 8, and lie densely in q, their scores TILE apart. offsets: the address of
    the keys' byte offsets from k; ahead: of one more address per key whose `depth` fp32 will be wanted next (0: none).
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        num_rows, q, k, offsets, ahead, out, begin, end, depth = values

        def emit(rows: int) -> None:
            with cgutils.for_range_slice(builder, begin, end, _LONG(8), intp=_LONG) as (n, _):
                keys = _addresses(builder, k, offsets, n)
                wanted = builder.select(
                    _is_given(builder, ahead), builder.add(ahead, builder.shl(n, _LONG(3))), _LONG(0)
                )
                target = builder.add(out, builder.shl(n, _LONG(2)))
                _emit_scores(builder, rows, q, lambda d: _pairs_asking(builder, keys, wanted, d), target, depth)

        _for_each_row_count(builder, num_rows, emit)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 9), generate


@operation_of
def pair_keys(typing: Any, k: Any, offsets: Any, ahead: Any, paired: Any, begin: Any, end: Any, depth: Any) -> Any:
    """Write keys begin to end - 1, multiples of 8, as `score_pairs` reads them; offsets, ahead: as for `score_keys`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        k, offsets, ahead, paired, begin, end, depth = values
        with cgutils.for_range_slice(builder, begin, end, _LONG(8), intp=_LONG) as (n, _):
            keys = _addresses(builder, k, offsets, n)
            wanted = builder.select(_is_given(builder, ahead), builder.add(ahead, builder.shl(n, _LONG(3))), _LONG(0))
            target = builder.add(paired, builder.mul(builder.mul(n, depth), _LONG(4)))
            with cgutils.for_range(builder, builder.lshr(depth, _LONG(2)), intp=_LONG) as loop:
                d = builder.shl(loop.index, _LONG(4))
                for i, pair in enumerate(_pairs_asking(builder, keys, wanted, d)):
                    place = builder.add(builder.shl(d, _LONG(3)), _LONG(32 * i))
                    builder.store(pair, _address(builder, target, place), align=4)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


@operation_of
def score_pairs(typing: Any, num_rows: Any, q: Any, paired: Any, out: Any, begin: Any, end: Any, depth: Any) -> Any:
    """What `score_keys` does, from keys that `pair_keys` laid out: worth it for more than a dozen rows."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        num_rows, q, paired, out, begin, end, depth = values

        def emit(rows: int) -> None:
            with cgutils.for_range_slice(builder, begin, end, _LONG(8), intp=_LONG) as (n, _):
                eight = builder.add(paired, builder.mul(builder.mul(n, depth), _LONG(4)))
                target = builder.add(out, builder.shl(n, _LONG(2)))

                def pairs(d: Any) -> list[Any]:
                    place = builder.shl(d, _LONG(3))
                    return [_load(builder, eight, builder.add(place, _LONG(32 * i))) for i in range(4)]

                _emit_scores(builder, rows, q, pairs, target, depth)

        _for_each_row_count(builder, num_rows, emit)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7), generate


def _emit_values(
    builder: Any, num_rows: int, num_strips: int, out: Any, v: Any, offsets: Any, ahead: Any, weights: Any, decays: Any,
    begin: Any, end: Any, d: Any,
) -> None:  # fmt: skip
    """num_rows x (8 num_strips) dims from byte d on: out = out * decay + sum over keys of weight * value."""
    rows = [builder.add(_load_long(builder, out, _LONG(8 * r)), d) for r in range(num_rows)]
    scores = [builder.add(weights, _LONG(4 * TILE * r)) for r in range(num_rows)]
    sums = _slots(builder, num_rows * num_strips)
    for r in range(num_rows):
        decay = spread(builder, _load(builder, decays, _LONG(4 * r), _FLOAT), _VECTOR)
        for s in range(num_strips):
            before = _load(builder, rows[r], _LONG(32 * s))
            builder.store(builder.fmul(before, decay), sums[r * num_strips + s])
    base = builder.add(v, d)
    with cgutils.for_range_slice(builder, begin, end, _LONG(1), intp=_LONG) as (n, _):
        place = builder.add(base, _load_long(builder, offsets, builder.shl(n, _LONG(3))))
        with builder.if_then(_is_given(builder, ahead)):
            there = _load_long(builder, ahead, builder.shl(n, _LONG(3)))
            for line in range(0, 32 * num_strips, 64):
                ask_for_line(builder, builder.add(builder.add(there, d), _LONG(line)))
        at = builder.shl(n, _LONG(2))
        given = [spread(builder, _load(builder, row, at, _FLOAT), _VECTOR) for row in scores]
        for s in range(num_strips):
            value = _load(builder, place, _LONG(32 * s))
            for r in range(num_rows):
                total = sums[r * num_strips + s]
                builder.store(fma(builder, given[r], value, builder.load(total)), total)
    for r in range(num_rows):
        for s in range(num_strips):
            builder.store(builder.load(sums[r * num_strips + s]), _address(builder, rows[r], _LONG(32 * s)), align=4)


@operation_of
def weigh_values(
    typing: Any, num_rows: Any, out: Any, v: Any, offsets: Any, ahead: Any, weights: Any, decays: Any, begin: Any,
    end: Any, depth: Any,
) -> Any:  # fmt: skip
    """out = out * decay + sum over keys begin to end - 1 of weights[n] * value[n], for one to three rows.

    out: the address of a list of the rows' addresses; weights: of TILE fp32 per row; decays: of one; offsets: of the
    keys' byte offsets from v; ahead: as for `score_keys`. Values are `depth` fp32 long, a multiple of 8.
    """

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        num_rows, out, v, offsets, ahead, weights, decays, begin, end, depth = values

        def emit(rows: int) -> None:
            num_bytes = builder.shl(depth, _LONG(2))
            d = _LONG(0)
            for strips in (8, 4, 1) if rows == 1 else (4, 1):
                count = builder.udiv(builder.sub(num_bytes, d), _LONG(32 * strips))
                with cgutils.for_range(builder, count, intp=_LONG) as loop:
                    here = builder.add(d, builder.mul(loop.index, _LONG(32 * strips)))
                    _emit_values(builder, rows, strips, out, v, offsets, ahead, weights, decays, begin, end, here)
                d = builder.add(d, builder.mul(count, _LONG(32 * strips)))

        _for_each_row_count(builder, num_rows, emit)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 10), generate
