"""`kernel`: numba's njit with an on-disk cache that notices when any of the kernels has changed.

Numba keeps compiled functions by the time stamp of their own file. A kernel that calls kernels of other files would
then go on running their old code. Here the key also holds a hash of the sources of all kernels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache


def _source_hash() -> str:
    found = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem.endswith("kernels") or path.stem in ("memory", "trie"):
            found.update(path.read_bytes())
    return found.hexdigest()


SOURCE_HASH = _source_hash()


class _Cache(FunctionCache):
    """Numba's cache of one function, by signature, target, byte code and the sources of all kernels."""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), SOURCE_HASH)  # type: ignore[no-untyped-call]  # numba's


def kernel(function: Callable[..., Any]) -> Any:
    """Compiles on first call; later processes load the result from disk."""
    dispatcher = njit(function)
    dispatcher._cache = _Cache(function)  # type: ignore[no-untyped-call]  # numba's
    return dispatcher
