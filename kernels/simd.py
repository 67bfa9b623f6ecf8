"""Eight floats at a time for numba: a vector type, and loads, stores and arithmetic on raw addresses.

Why not let the compiler vectorise? It may then choose the order of every sum by the shape of the loop
around it, and the same row would get other bits in another batch. Here the order is written down: each
function below is one LLVM instruction (or a fixed handful) on `<8 x float>`, without fast-math, so a result
is the same in every loop and on every machine that rounds as IEEE 754 says; wider or narrower registers
only change the speed. It knows nothing of attention.

Addresses are integers in bytes (`tensor.data_ptr() + ...`); nothing is bounds-checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import njit, types
from numba.core.datamodel import models
from numba.extending import register_model

from .cpu_emit import operation_of

WIDTH = 8

_FLOAT = ir.FloatType()
_VECTOR = ir.VectorType(_FLOAT, WIDTH)
_INT = ir.IntType(32)
_INTS = ir.VectorType(_INT, WIDTH)


class Float32x8(types.Type):
    """The numba type of eight fp32 lanes; its values live in registers only."""

    def __init__(self) -> None:
        super().__init__(name="Float32x8")


class _Model(models.PrimitiveModel):
    def __init__(self, manager: Any, numba_type: Any) -> None:
        super().__init__(manager, numba_type, _VECTOR)  # type: ignore[no-untyped-call]  # numba's


register_model(Float32x8)(_Model)
float32x8: Any = Float32x8()

Emit = Callable[..., ir.Value]


def _operation(signature: Any, emit: Emit) -> tuple[Any, Callable[..., Any]]:
    """What an intrinsic answers: its signature, and code that runs `emit(builder, *values)`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = emit(builder, *values)
        return context.get_dummy_value() if signature.return_type == types.void else made

    return signature, generate


def _lanes(constant: float, kind: Any = _VECTOR) -> ir.Constant:
    return ir.Constant(kind, [kind.element(constant)] * WIDTH)


def _call(builder: Any, name: str, *values: ir.Value) -> ir.Value:
    """A vector intrinsic of LLVM, `llvm.<name>.v8f32`."""
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * len(values))
    function = builder.module.globals.get(f"llvm.{name}.v8f32")
    if function is None:
        function = ir.Function(builder.module, kind, f"llvm.{name}.v8f32")
    return builder.call(function, values)


def _pointer(builder: Any, address: ir.Value, kind: Any) -> ir.Value:
    return builder.inttoptr(address, kind.as_pointer())


def _splat(builder: Any, value: ir.Value) -> ir.Value:
    one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(one, one, ir.Constant(_INTS, [_INT(0)] * WIDTH))


def _pick(builder: Any, a: ir.Value, b: ir.Value, lanes: list[int]) -> ir.Value:
    """The lanes of a (0 to 7) and b (8 to 15) that `lanes` lists."""
    mask = ir.Constant(ir.VectorType(_INT, len(lanes)), [_INT(i) for i in lanes])
    return builder.shuffle_vector(a, b, mask)


def _fold(builder: Any, v: ir.Value, join: Emit) -> ir.Value:
    """One scalar from eight lanes: (i, i + 4), then (i, i + 2), then (0, 1)."""
    half = WIDTH // 2
    while half:
        low, high = (_pick(builder, v, v, list(range(i, i + half))) for i in (0, half))
        v, half = join(builder, low, high), half // 2
    return builder.extract_element(v, _INT(0))


def _add(builder: Any, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.fadd(a, b)


def _larger(builder: Any, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.select(builder.fcmp_ordered(">", a, b), a, b)


# 2^f on [-1/2, 1/2]: minimax coefficients of degree 6, relative error of `exp2` 1.0e-7 (measured)
_EXP2 = (1.0, 0.693147182464, 0.240226462484, 0.0555032879114, 0.00961847137660, 0.00133952707052, 0.000154003404)


# adding it leaves the nearest whole number in the low bits, plus the bias of an exponent
_ROUND = 1.5 * 2**23 + 127


def _exp2(builder: Any, x: ir.Value) -> ir.Value:
    x = _larger(builder, x, _lanes(-127.0))  # whose exponent field is that of zero
    shifted = builder.fadd(x, _lanes(_ROUND))
    rest = builder.fsub(x, builder.fsub(shifted, _lanes(_ROUND)))
    y = _lanes(_EXP2[-1])
    for coefficient in _EXP2[-2::-1]:
        y = _call(builder, "fma", y, rest, _lanes(coefficient))
    scale = builder.bitcast(builder.shl(builder.bitcast(shifted, _INTS), _lanes(23, _INTS)), _VECTOR)
    return builder.fmul(y, scale)


def _splat_int(builder: Any, value: ir.Value) -> ir.Value:
    one = builder.insert_element(ir.Constant(_INTS, ir.Undefined), builder.trunc(value, _INT), _INT(0))
    return builder.shuffle_vector(one, one, ir.Constant(_INTS, [_INT(0)] * WIDTH))


def _keep(builder: Any, v: ir.Value, begin: ir.Value, end: ir.Value) -> ir.Value:
    index = ir.Constant(_INTS, [_INT(i) for i in range(WIDTH)])
    above = builder.icmp_signed(">=", index, _splat_int(builder, begin))
    below = builder.icmp_signed("<", index, _splat_int(builder, end))
    return builder.select(builder.and_(above, below), v, _lanes(-math.inf))


def _keep_bits(builder: Any, v: ir.Value, bits: ir.Value) -> ir.Value:
    lane = ir.Constant(_INTS, [_INT(1 << i) for i in range(WIDTH)])
    is_set = builder.icmp_unsigned("!=", builder.and_(_splat_int(builder, bits), lane), _lanes(0, _INTS))
    return builder.select(is_set, v, _lanes(-math.inf))


_BYTES = ir.VectorType(ir.IntType(8), WIDTH)


def _load_int8(builder: Any, address: ir.Value) -> ir.Value:
    stored = builder.load(_pointer(builder, address, _BYTES), align=1)
    return builder.sitofp(builder.sext(stored, _INTS), _VECTOR)


def _load_fp8(builder: Any, address: ir.Value) -> ir.Value:
    stored = builder.zext(builder.load(_pointer(builder, address, _BYTES), align=1), _INTS)
    sign = builder.shl(builder.and_(stored, _lanes(0x80, _INTS)), _lanes(24, _INTS))
    rest = builder.shl(builder.and_(stored, _lanes(0x7F, _INTS)), _lanes(20, _INTS))
    # the fields of e4m3 in those of fp32, whose exponents count from 120 further down; subnormals come out as well
    return builder.fmul(builder.bitcast(builder.or_(sign, rest), _VECTOR), _lanes(2.0**120))


def _store_bytes(builder: Any, address: ir.Value, numbers: ir.Value) -> ir.Value:
    return builder.store(builder.trunc(numbers, _BYTES), _pointer(builder, address, _BYTES), align=1)


def _store_int8(builder: Any, address: ir.Value, v: ir.Value) -> ir.Value:
    return _store_bytes(builder, address, builder.fptosi(_call(builder, "rint", v), _INTS))


def _store_fp8(builder: Any, address: ir.Value, v: ir.Value) -> ir.Value:
    bits = builder.bitcast(v, _INTS)
    size = builder.and_(bits, _lanes(0x7FFFFFFF, _INTS))
    sign = builder.lshr(builder.and_(bits, _lanes(0x80000000, _INTS)), _lanes(24, _INTS))
    odd = builder.and_(builder.lshr(size, _lanes(20, _INTS)), _lanes(1, _INTS))
    rounded = builder.lshr(builder.add(builder.add(size, odd), _lanes(0x7FFFF, _INTS)), _lanes(20, _INTS))
    normal = builder.sub(rounded, _lanes(120 << 3, _INTS))
    steps = builder.fmul(builder.bitcast(size, _VECTOR), _lanes(512.0))  # subnormals are multiples of 2^-9
    small = builder.fptosi(_call(builder, "rint", steps), _INTS)
    is_small = builder.icmp_signed("<", size, _lanes(0x3C800000, _INTS))  # below 2^-6
    return _store_bytes(builder, address, builder.or_(sign, builder.select(is_small, small, normal)))


@operation_of
def load_int8(typing: Any, address: Any) -> Any:
    """Eight int8 from an address as fp32."""
    return _operation(float32x8(types.int64), _load_int8)


@operation_of
def load_fp8(typing: Any, address: Any) -> Any:
    """Eight e4m3 from an address as fp32; NaN is not known and comes out as 480."""
    return _operation(float32x8(types.int64), _load_fp8)


@operation_of
def store_int8(typing: Any, address: Any, v: Any) -> Any:
    """Write eight fp32 of at most 127 as int8, rounded to nearest, ties to even."""
    return _operation(types.void(types.int64, float32x8), _store_int8)


@operation_of
def store_fp8(typing: Any, address: Any, v: Any) -> Any:
    """Write eight fp32 of at most 448 as e4m3, rounded to nearest, ties to even."""
    return _operation(types.void(types.int64, float32x8), _store_fp8)


@operation_of
def load(typing: Any, address: Any) -> Any:
    """Eight fp32 from an address (in bytes, aligned to 4)."""
    return _operation(float32x8(types.int64), lambda b, p: b.load(_pointer(b, p, _VECTOR), align=4))


@operation_of
def store(typing: Any, address: Any, v: Any) -> Any:
    """Write eight fp32 to an address (in bytes, aligned to 4)."""
    return _operation(types.void(types.int64, float32x8), lambda b, p, v: b.store(v, _pointer(b, p, _VECTOR), align=4))


@operation_of
def load_scalar(typing: Any, address: Any) -> Any:
    """One fp32 from an address."""
    return _operation(types.float32(types.int64), lambda b, p: b.load(_pointer(b, p, _FLOAT), align=4))


@operation_of
def store_scalar(typing: Any, address: Any, x: Any) -> Any:
    """Write one fp32 to an address."""
    return _operation(
        types.void(types.int64, types.float32), lambda b, p, x: b.store(x, _pointer(b, p, _FLOAT), align=4)
    )


@operation_of
def load_int64(typing: Any, address: Any) -> Any:
    """One int64 from an address."""
    return _operation(types.int64(types.int64), lambda b, p: b.load(_pointer(b, p, ir.IntType(64)), align=8))


@operation_of
def splat(typing: Any, x: Any) -> Any:
    """One fp32 in all lanes."""
    return _operation(float32x8(types.float32), _splat)


@operation_of
def add(typing: Any, a: Any, b: Any) -> Any:
    return _operation(float32x8(float32x8, float32x8), _add)


@operation_of
def sub(typing: Any, a: Any, b: Any) -> Any:
    return _operation(float32x8(float32x8, float32x8), lambda c, a, b: c.fsub(a, b))


@operation_of
def mul(typing: Any, a: Any, b: Any) -> Any:
    return _operation(float32x8(float32x8, float32x8), lambda c, a, b: c.fmul(a, b))


@operation_of
def div(typing: Any, a: Any, b: Any) -> Any:
    return _operation(float32x8(float32x8, float32x8), lambda c, a, b: c.fdiv(a, b))


@operation_of
def larger(typing: Any, a: Any, b: Any) -> Any:
    """Lane by lane the larger one; b where either is NaN."""
    return _operation(float32x8(float32x8, float32x8), _larger)


@operation_of
def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once."""
    return _operation(float32x8(float32x8, float32x8, float32x8), lambda d, *v: _call(d, "fma", *v))


@operation_of
def exp2(typing: Any, x: Any) -> Any:
    """2 ** x to about 1 ulp; results below 2 ** -126 are 0, x must stay below 128."""
    return _operation(float32x8(float32x8), _exp2)


@operation_of
def keep(typing: Any, v: Any, begin: Any, end: Any) -> Any:
    """Lanes begin to end - 1 of v, -inf in the rest (begin, end: int64)."""
    return _operation(float32x8(float32x8, types.int64, types.int64), _keep)


@operation_of
def keep_bits(typing: Any, v: Any, bits: Any) -> Any:
    """Lane i of v where bit i of bits (int64) is set, -inf in the rest."""
    return _operation(float32x8(float32x8, types.int64), _keep_bits)


@operation_of
def first(typing: Any, v: Any) -> Any:
    """Lane 0 as fp32."""
    return _operation(types.float32(float32x8), lambda b, v: b.extract_element(v, _INT(0)))


@operation_of
def total(typing: Any, v: Any) -> Any:
    """The sum of the eight lanes as fp32, halves added first."""
    return _operation(types.float32(float32x8), lambda b, v: _fold(b, v, _add))


@operation_of
def largest(typing: Any, v: Any) -> Any:
    """The largest of the eight lanes as fp32."""
    return _operation(types.float32(float32x8), lambda b, v: _fold(b, v, _larger))


LOG2_E = np.float32(1.4426950408889634)


@njit(inline="always")
def tanh(x):  # type: ignore[no-untyped-def]  # numba infers
    """1 - 2 / (exp(2 x) + 1), with |x| cut at 20, where tanh is 1; absolute error about 2e-7."""
    one, two, low = splat(np.float32(1.0)), splat(np.float32(2.0)), splat(np.float32(-20.0))
    x = larger(x, low)
    x = larger(sub(splat(np.float32(0.0)), x), low)  # -x, now cut from both sides
    return sub(one, div(two, add(exp2(mul(x, splat(np.float32(-2.0) * LOG2_E))), one)))


@njit(inline="always")
def sigmoid(x):  # type: ignore[no-untyped-def]
    """1 / (1 + exp(-x)); x below -87 gives what -87 gives, 1.6e-38."""
    one = splat(np.float32(1.0))
    return div(one, add(one, exp2(mul(larger(x, splat(np.float32(-87.0))), splat(-LOG2_E)))))
