"""remembered: a function that caches its results (memoisation), bounded in number and in bytes.

Descriptions ask for the same parts many times: parts are cached by the functions that make them, for the whole process.
`functools.lru_cache` bounds their number alone, and one automaton may take megabytes. Here a function also drops its
whole cache as soon as the results since the last drop take more than `max_bytes`; they are then made again when they
are needed. What a constraint itself holds stays with it (see `KeptConstraints`).

Safe to call from any thread: two that ask for the same at once may both make it. A hit costs what one of `lru_cache`
costs; a miss walks once through its result to measure it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from .._core import fsm as core

Result = TypeVar("Result")
MAX_BYTES = 8 << 20  # of one function: tens of ordinary constraints, and two dozen functions keep 200 MB at the most
OBJECT_BYTES = 64  # of any object, roughly; as in `core/weigh.cpp`


def remembered(
    max_results: int, max_bytes: int = MAX_BYTES
) -> Callable[[Callable[..., Result]], functools._lru_cache_wrapper[Result]]:
    """Decorates a function of hashable arguments whose results are never changed, as `functools.lru_cache` does.

    Args:
        max_results: the number kept at most; the least recently used is dropped first.
        max_bytes: of all results kept, arguments included (`weight_of`), except the newest one.
    """

    def decorate(function: Callable[..., Result]) -> functools._lru_cache_wrapper[Result]:
        held = 0

        @functools.lru_cache(max_results)
        @functools.wraps(function)
        def found(*args: Any, **kwargs: Any) -> Result:
            nonlocal held
            result = function(*args, **kwargs)
            weight = weight_of((args, kwargs, result))
            if held + weight > max_bytes:
                found.cache_clear()
                held = 0
            held += weight
            return result

        return found

    return decorate


def weight_of(value: object) -> int:
    """Bytes of an object and of all that it leads to: arrays and texts in full, any other object as `OBJECT_BYTES`.

    What others hold as well is counted, too; classes, functions and modules are not.
    """
    return core.weigh(value, np.ndarray)
