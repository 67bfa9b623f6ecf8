"""Compiled functions on disk: numba's cache, with a key that holds the sources of all that a function may call.

Numba itself keeps a function by the time stamp of its own file, so one that calls functions of other files would go on
running their old code.

A loop is loaded, or compiled, in the middle of the work that first needs it. `seconds_on_loops` says how long a thread
was busy with that, so that nobody takes it for the work itself.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from numba.core.caching import FunctionCache


class _LoopTime(threading.local):
    """How many loops this thread is loading or compiling, within each other; since when; and the seconds it took."""

    depth = 0
    begin = 0.0
    seconds = 0.0


_LOOP_TIME = _LoopTime()


def seconds_on_loops() -> float:
    """CPU time that the calling thread has spent on loading and compiling loops."""
    return _LOOP_TIME.seconds


class CodeCache(FunctionCache):
    """The cache of one function, by signature, target, byte code, and `sources`: a hash of the files that matter."""

    def __init__(self, function: Callable[..., Any], sources: str) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]  # numba's
        self._sources = sources

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function; None if it has to be compiled, which ends in `save_overload`."""
        if not _LOOP_TIME.depth:
            _LOOP_TIME.begin = time.thread_time()
        _LOOP_TIME.depth += 1
        found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]  # numba's
        if found is not None:
            self._end()
        else:
            tell_of_compiling()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps what has been compiled."""
        super().save_overload(sig, data)  # type: ignore[no-untyped-call]  # numba's
        self._end()

    def _end(self) -> None:
        _LOOP_TIME.depth -= 1
        if not _LOOP_TIME.depth:
            _LOOP_TIME.seconds += time.thread_time() - _LOOP_TIME.begin

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), self._sources)  # type: ignore[no-untyped-call]  # numba's


@functools.cache
def tell_of_compiling() -> None:
    """Says on the terminal, once, what somebody who starts phloem for the first time is waiting for."""
    if sys.stderr is not None and sys.stderr.isatty():
        print("phloem: compiling loops for this processor (once; a first start takes a minute or two)", file=sys.stderr)


def hash_sources(paths: Iterable[Path]) -> str:
    """One hash of the contents of several files, in the order of their names."""
    found = hashlib.sha256()
    for path in sorted(paths):
        found.update(path.read_bytes())
    return found.hexdigest()
