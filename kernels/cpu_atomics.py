"""Words that several threads read and write, for numba: atomic access, waiting, and calls of functions by address.

Each function below is one LLVM instruction or one call of the C library, as in `simd`. Addresses are integers in bytes,
words are int64 and lie at multiples of 8. Loads and stores are sequentially consistent: every thread sees all of them
in one order, so what was written before a word was stored is seen by whoever has loaded that word. Needs POSIX threads;
`HAS_THREADS` says whether they are there.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]  # ships no types
from numba import types
from numba.core import cgutils

from .cpu_emit import emit_call, operation_of

HAS_THREADS = os.name == "posix"
WORD = 8  # bytes

_INT, _LONG = ir.IntType(32), ir.IntType(64)
_POINTER = ir.IntType(8).as_pointer()
_CLOCK, _OWN_CLOCK = getattr(time, "CLOCK_MONOTONIC", 0), getattr(time, "CLOCK_THREAD_CPUTIME_ID", 0)
_PAUSE = "llvm.x86.sse2.pause" if platform.machine().lower() in ("x86_64", "amd64") else None
_ORDER = "seq_cst"

Emit = Callable[..., Any]


def _operation(num_values: int, result: Any, emit: Emit) -> Any:
    """An intrinsic of so many int64 that runs `emit(builder, *values)`."""
    signature = result(*[types.int64] * num_values)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        made = emit(builder, *values)
        return context.get_dummy_value() if result == types.void else made

    return signature, generate


def _word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _LONG.as_pointer())


@operation_of
def load(typing: Any, address: Any) -> Any:
    """The word at an address."""
    return _operation(1, types.int64, lambda builder, at: builder.load_atomic(_word(builder, at), _ORDER, WORD))


@operation_of
def store(typing: Any, address: Any, value: Any) -> Any:
    """Writes a word."""
    return _operation(
        2, types.void, lambda builder, at, value: builder.store_atomic(value, _word(builder, at), _ORDER, WORD)
    )


@operation_of
def add(typing: Any, address: Any, value: Any) -> Any:
    """Adds to a word; what it was before."""
    return _operation(
        2, types.int64, lambda builder, at, value: builder.atomic_rmw("add", _word(builder, at), value, _ORDER)
    )


@operation_of
def replace(typing: Any, address: Any, expected: Any, value: Any) -> Any:
    """Writes a word if it is still what was expected; whether it was."""

    def emit(builder: Any, at: Any, expected: Any, value: Any) -> Any:
        return builder.extract_value(builder.cmpxchg(_word(builder, at), expected, value, _ORDER, _ORDER), 1)

    return _operation(3, types.boolean, emit)


@operation_of
def call(typing: Any, function: Any, arguments: Any, index: Any) -> Any:
    """Calls the function of two int64 at an address."""

    def emit(builder: Any, function: Any, arguments: Any, index: Any) -> None:
        kind = ir.FunctionType(ir.VoidType(), [_LONG, _LONG])
        builder.call(builder.inttoptr(function, kind.as_pointer()), [arguments, index])

    return _operation(3, types.void, emit)


@operation_of
def pointer(typing: Any, address: Any) -> Any:
    """An address as `numba.carray` takes it."""
    return _operation(1, types.voidptr, lambda builder, at: builder.inttoptr(at, _POINTER))


@operation_of
def pause(typing: Any) -> Any:
    """A moment in a loop that waits for another thread: some ten nanoseconds."""

    def emit(builder: Any) -> None:
        if _PAUSE is not None:
            emit_call(builder, _PAUSE, ir.VoidType())

    return _operation(0, types.void, emit)


@operation_of
def give_way(typing: Any) -> Any:
    """Lets another thread have this processor, if one waits for it."""
    return _operation(0, types.void, lambda builder: emit_call(builder, "sched_yield", _INT))


@operation_of
def nanoseconds(typing: Any) -> Any:
    """A clock that never goes back."""
    return _operation(0, types.int64, lambda builder: _read_clock(builder, _CLOCK))


@operation_of
def own_nanoseconds(typing: Any) -> Any:
    """What this thread has had of a processor. Some hundred nanoseconds to ask."""
    return _operation(0, types.int64, lambda builder: _read_clock(builder, _OWN_CLOCK))


def _read_clock(builder: Any, clock: int) -> Any:
    moment = cgutils.alloca_once(builder, ir.ArrayType(_LONG, 2))  # type: ignore[no-untyped-call]  # numba's
    emit_call(builder, "clock_gettime", _INT, _INT(clock), builder.bitcast(moment, _POINTER))
    both = builder.load(moment)
    seconds, rest = builder.extract_value(both, 0), builder.extract_value(both, 1)
    return builder.add(builder.mul(seconds, _LONG(1_000_000_000)), rest)


@operation_of
def init(typing: Any, mutex: Any, condition: Any) -> Any:
    """Makes a mutex and a condition of the zeros at two addresses."""

    def emit(builder: Any, mutex: Any, condition: Any) -> None:
        nothing = ir.Constant(_POINTER, None)
        emit_call(builder, "pthread_mutex_init", _INT, builder.inttoptr(mutex, _POINTER), nothing)
        emit_call(builder, "pthread_cond_init", _INT, builder.inttoptr(condition, _POINTER), nothing)

    return _operation(2, types.void, emit)


@operation_of
def lock(typing: Any, mutex: Any) -> Any:
    """Waits for a mutex and takes it."""
    return _operation(1, types.void, lambda builder, at: _of_mutex(builder, "pthread_mutex_lock", at))


@operation_of
def unlock(typing: Any, mutex: Any) -> Any:
    """Gives a mutex back."""
    return _operation(1, types.void, lambda builder, at: _of_mutex(builder, "pthread_mutex_unlock", at))


@operation_of
def wait(typing: Any, condition: Any, mutex: Any) -> Any:
    """Gives the mutex back and sleeps until woken, or for no reason; then takes it again."""
    return _operation(2, types.void, lambda builder, *at: _of_mutex(builder, "pthread_cond_wait", *at))


@operation_of
def wake_all(typing: Any, condition: Any) -> Any:
    """Wakes whoever sleeps."""
    return _operation(1, types.void, lambda builder, at: _of_mutex(builder, "pthread_cond_broadcast", at))


def _of_mutex(builder: Any, name: str, *addresses: Any) -> None:
    emit_call(builder, name, _INT, *(builder.inttoptr(address, _POINTER) for address in addresses))
