"""What the CPU's loops share where they spell out LLVM code: the decorator of an operation, and asking for memory."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba.core import cgutils
from numba.extending import intrinsic

_INT = ir.IntType(32)


def operation_of(function: Any) -> Any:
    """`numba.extending.intrinsic`, whose annotations describe the generator instead of the operation."""
    return intrinsic(function)


def ask_for_line(builder: Any, address: Any) -> None:
    """Prefetch the line of an address."""
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, _INT, _INT, _INT])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]  # numba's
    builder.call(function, [builder.inttoptr(address, byte), _INT(0), _INT(3), _INT(1)])
