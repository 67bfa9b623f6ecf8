"""Compiling with numba: how the loops of the tree are compiled, kept on disk, and called.

A call through numba's dispatcher costs half a microsecond before anything happens, as much as many operations of the
tree take. So what Python calls is compiled for one signature, and called by the function that numba generates for it:
arguments of other types are errors, not recompilations.

Numba keeps compiled functions by the time stamp of their own file, so a kernel that calls kernels of other files
would go on running their old code; here the key also holds a hash of the sources of all kernels.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import types
from numba.core.caching import FunctionCache

from .packed import Packed

NUMBER, SECONDS, PACKED = types.int64, types.float64, Packed()
# Nothing is called by address, and no division is by zero.
OPTIONS: Any = {"no_cfunc_wrapper": True, "error_model": "numpy"}
INTEGERS = (types.Integer, types.IntegerLiteral)
INNER: Any = {"no_cpython_wrapper": True}
INT32S: Any = types.Array(types.int32, 1, "A")  # contiguous or not; who calls must see to it that it is one


@functools.cache
def _source_hash() -> str:
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem.endswith("kernels") or path.stem in ("memory", "eviction", "packed"):
            found.update(path.read_bytes())
    return found.hexdigest()


class _Cache(FunctionCache):
    """Numba's cache of one function, by signature, target, byte code and the sources of all kernels."""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), _source_hash())  # type: ignore[no-untyped-call]  # numba's


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
    dispatcher._cache = _Cache(function)  # type: ignore[no-untyped-call]  # numba's
    dispatcher.compile(argument_types)
    (compiled,) = dispatcher.overloads.values()
    way_in: Callable[..., Any] = compiled.entry_point
    return way_in
