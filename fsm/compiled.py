"""Compiling with numba, and keeping the results on disk.

`kernel` is numba's njit with a cache that notices when any of the kernels has changed (`code_cache`).

`callback_address` and `call` are for a large kernel that several others need: it is compiled once, and called
through its address. Otherwise each caller would be compiled with a copy of it, which takes seconds for each.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]  # it has no stubs
from numba import njit
from numba.core import types
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from ..code_cache import CodeCache, hash_sources


def source_files() -> list[Path]:
    """The files with all that is compiled, constants included."""
    stems = ("memory", "expression", "compiled")
    return [p for p in Path(__file__).parent.rglob("*.py") if p.stem.endswith("kernels") or p.stem in stems]


KERNELS_HASH = hash_sources(source_files())


def kernel(function: Callable[..., Any]) -> Any:
    """Compiles on first call; later processes load the result from disk."""
    return _cached(njit(function), function)


def unlocked_kernel(function: Callable[..., Any]) -> Any:
    """A kernel that may take long, on arrays that no other thread writes to: it runs without the interpreter's lock.

    Whatever takes a long time while others wait for that lock makes the thread that steps an engine wait. To take the
    lock again may itself take some milliseconds, so it is not for what is called often.
    """
    return _cached(njit(nogil=True)(function), function)


def inner_kernel(function: Callable[..., Any]) -> Any:
    """A kernel that only kernels call: there is no way in from Python, which spares a fifth of the compilation."""
    options: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return _cached(njit(**options)(function), function)


def _cached(dispatcher: Any, function: Callable[..., Any]) -> Any:
    dispatcher._cache = CodeCache(function, KERNELS_HASH)
    return dispatcher


@functools.cache
def callback_address(function: Callable[[int, int, int, int], int]) -> int:
    """The address of f(int64, int64, int64, int64) -> int64, compiled now and kept for the life of the process."""
    compiled: Any = CFunc(function, ((types.int64,) * 4, types.int64), locals={}, options={})
    compiled._cache = CodeCache(function, KERNELS_HASH)
    compiled.compile()
    _KEPT.append(compiled)
    return int(compiled.address)


_KEPT: list[Any] = []  # an address lives as long as what it was taken from


def _call(typing_context: Any, address: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """In a kernel: what the function at `address` returns for (a, b, c, d)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(64)
        function = builder.inttoptr(arguments[0], ir.FunctionType(word, [word] * 4).as_pointer())
        return builder.call(function, arguments[1:])

    return types.int64(*[types.int64] * 5), generate


call: Any = intrinsic(_call)
