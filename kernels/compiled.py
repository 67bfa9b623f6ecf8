"""Compiling the CPU's loops with numba, and keeping the results on disk until one of their sources changes.

Loops of one file are compiled into those of others (`simd` into all, the ops into `cpu_layers`), and numba itself looks
at the file of the outer one only; the key of this cache holds them all (`code_cache`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit

from ..code_cache import CodeCache, hash_sources

_SOURCES = hash_sources(
    path for path in Path(__file__).parent.glob("*.py") if path.stem.startswith(("cpu_", "simd", "reference_sample"))
)


def compiled(*, parallel: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: compiles on first call, without the interpreter's lock; later processes load the result."""

    def compile_later(function: Callable[..., Any]) -> Any:
        dispatcher: Any = njit(nogil=True, parallel=parallel)(function)
        dispatcher._cache = CodeCache(function, _SOURCES)
        return dispatcher

    return compile_later
