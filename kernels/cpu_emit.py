"""What the CPU's loops share where they spell out LLVM code: functions that are called, and a few lines of code."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from llvmlite import binding, ir  # type: ignore[import-untyped]  # ships no types
from numba.core import cgutils, config
from numba.extending import intrinsic

_INT = ir.IntType(32)
_FEATURES = binding.get_host_cpu_features()
_SETTINGS: Any = config  # its attributes are set as numba starts
# what is compiled is for this very machine, and not for one that the environment names
IS_HERE = _SETTINGS.CPU_NAME is None and _SETTINGS.CPU_FEATURES is None
HAS_AVX2, HAS_AVX512BW = bool(_FEATURES.get("avx2")), bool(_FEATURES.get("avx512bw")) and IS_HERE


def operation_of(function: Any) -> Any:
    """`numba.extending.intrinsic`, whose annotations describe the generator instead of the operation."""
    return intrinsic(function)


def emit_call(builder: Any, name: str, result: Any, *values: Any) -> Any:
    """A function of LLVM's, or of the C library, by its name."""
    kind = ir.FunctionType(result, [value.type for value in values])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), values)  # type: ignore[no-untyped-call]  # numba's


def fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a * b + c of vectors of fp32, rounded once."""
    return emit_call(builder, f"llvm.fma.v{c.type.count}f32", c.type, a, b, c)


def spread(builder: Any, value: Any, kind: Any) -> Any:
    """A vector whose numbers are all `value`."""
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _INT(0))
    return builder.shuffle_vector(one, one, _ints([0] * kind.count))


def sum_pairs(builder: Any, a: Any, b: Any) -> Any:
    """Lane i: a[2i] * b[2i] + a[2i+1] * b[2i+1], `<2n x i16>` -> `<n x i32>`, n being 8 or 16."""
    lanes = a.type.count // 2
    kind = ir.VectorType(_INT, lanes)
    if lanes == 16 and HAS_AVX512BW:
        return emit_call(builder, "llvm.x86.avx512.pmaddw.d.512", kind, a, b)
    if lanes == 8 and HAS_AVX2:
        return emit_call(builder, "llvm.x86.avx2.pmadd.wd", kind, a, b)
    if HAS_AVX2:
        halves = [_ints(range(start, start + lanes)) for start in (0, lanes)]
        parts = [
            sum_pairs(builder, builder.shuffle_vector(a, a, half), builder.shuffle_vector(b, b, half))
            for half in halves
        ]
        return builder.shuffle_vector(*parts, _ints(range(lanes)))
    wide = ir.VectorType(_INT, 2 * lanes)
    products = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
    even, odd = (builder.shuffle_vector(products, products, _ints(range(start, 2 * lanes, 2))) for start in (0, 1))
    return builder.add(even, odd)


def ask_for_line(builder: Any, address: Any) -> None:
    """Prefetch the line of an address."""
    at = builder.inttoptr(address, ir.IntType(8).as_pointer())
    emit_call(builder, "llvm.prefetch.p0", ir.VoidType(), at, _INT(0), _INT(3), _INT(1))


def _ints(indices: Iterable[int]) -> Any:
    numbers = [_INT(i) for i in indices]
    return ir.Constant(ir.VectorType(_INT, len(numbers)), numbers)
