"""Compiling with numba: how the loops of the tree are compiled, kept on disk, and called.

A call through numba's dispatcher costs half a microsecond before anything happens, as much as many operations of the
tree take. So what Python calls is compiled for one signature, and called by the function that numba generates for it:
arguments of other types are errors, not recompilations.

What was compiled is kept on disk (`code_cache`) until one of the kernels changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import types

from ..code_cache import CodeCache, hash_sources
from .packed import Packed

NUMBER, SECONDS, PACKED = types.int64, types.float64, Packed()
# Nothing is called by address, and no division is by zero.
OPTIONS: Any = {"no_cfunc_wrapper": True, "error_model": "numpy"}
INTEGERS = (types.Integer, types.IntegerLiteral)
INNER: Any = {"no_cpython_wrapper": True}
INT32S: Any = types.Array(types.int32, 1, "A")  # contiguous or not; who calls must see to it that it is one


def source_files() -> list[Path]:
    """The files with all that is compiled, constants included."""
    stems = ("kernels", "memory", "eviction", "packed")
    return [path for path in Path(__file__).parent.glob("*.py") if path.stem.endswith(stems)]


@functools.cache
def _hash_kernels() -> str:
    return hash_sources(source_files())


def kernel(function: Callable[..., Any]) -> Any:
    """A function for kernels to call: there is no way in from Python.

    Integers are taken as int64, whatever the caller has. Otherwise it would be compiled once for each mixture of
    constants, int32 and int64.
    """
    dispatcher: Any = njit(**OPTIONS, **INNER)(function)
    find_template = dispatcher.get_call_template

    def find_widened(arguments: tuple[types.Type, ...], named: dict[str, types.Type]) -> Any:
        widened = [NUMBER if isinstance(one, INTEGERS) else one for one in arguments]
        return find_template(tuple(widened), named)

    dispatcher.get_call_template = find_widened
    return dispatcher


@functools.cache
def entry(function: Callable[..., Any], *argument_types: Any) -> Callable[..., Any]:
    """Compiles a kernel for these types, or loads it from disk, and returns the way in from Python."""
    dispatcher: Any = njit(**OPTIONS)(function)
    dispatcher._cache = CodeCache(function, _hash_kernels())
    dispatcher.compile(argument_types)
    (compiled,) = dispatcher.overloads.values()
    way_in: Callable[..., Any] = compiled.entry_point
    return way_in
