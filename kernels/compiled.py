"""Compiling the CPU's loops with numba, and keeping the results on disk until one of their sources changes.

Loops of one file are compiled into those of others (`simd` into all, the ops into `cpu_layers`), and so are constants
of files without loops. Numba itself looks at the file of the outer one only; the key of this cache holds them all
(`code_cache`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from numba import njit, types
from numba.core.ccallback import CFunc

from ..code_cache import CodeCache, hash_sources

_LOOPS = ("cpu_", "simd", "reference_sample", "sharing", "cuda_work", "work_buffers")
_CONSTANTS = ("launch", "linear_weight", "logit_edits", "lora")


def source_files() -> list[Path]:
    """The files with all that is compiled."""
    return [path for path in Path(__file__).parent.glob("*.py") if path.stem.startswith((*_LOOPS, *_CONSTANTS))]


_SOURCES = hash_sources(source_files())


def compiled() -> Callable[[Callable[..., Any]], Any]:
    """A decorator: compiles on first call, without the interpreter's lock; later processes load the result."""

    def compile_later(function: Callable[..., Any]) -> Any:
        dispatcher: Any = njit(nogil=True)(function)
        dispatcher._cache = CodeCache(function, _SOURCES)
        return dispatcher

    return compile_later


class Task:
    """A decorator: a compiled function of (address of its arguments, index), for a team to call by its address."""

    def __init__(self, function: Callable[[int, int], None]) -> None:
        self._function = function

    @cached_property
    def address(self) -> int:
        """Of the code; compiles or loads it when it is first asked for."""
        kept: Any = CFunc(self._function, ((types.int64, types.int64), types.void), {}, {})
        kept._cache = CodeCache(self._function, _SOURCES)
        kept.compile()
        self._kept = kept  # the code lives as long as this does
        return int(kept.address)
