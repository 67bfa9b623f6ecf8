"""Blocks in host memory: one slab of rows, the least recently used row is written over.

::

    slab    [ row 0 | row 1 | … ]      table   key → row, used longest ago first

Plain memory, taken as it fills: what goes to a GPU goes through a pinned buffer of the reader's. Thread-safe; a row is
copied in or out under the lock, which is some tenth of a millisecond for a block of a large model.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .block_key import BlockKey

Row = npt.NDArray[np.uint8]


class MemoryTier:
    """As many blocks as the slab has rows, one or more.

    Args:
        slab: uint8 `[rows, block_bytes]`, on the host, for this tier alone.

    Attributes:
        max_blocks: how many it holds.
    """

    def __init__(self, slab: Row) -> None:
        self.max_blocks = len(slab)
        self._slab = slab
        self._table: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()

    def __contains__(self, key: BlockKey) -> bool:
        return key.digest in self._table

    @property
    def num_blocks(self) -> int:
        return len(self._table)

    @property
    def num_bytes(self) -> int:
        return len(self._table) * int(self._slab.shape[1])

    def put(self, key: BlockKey, block: Row) -> bool:
        """Keeps a copy of a block, in place of the one used longest ago if there is no room; False if it is here."""
        with self._lock:
            if key.digest in self._table:
                self._table.move_to_end(key.digest)
                return False
            is_full = len(self._table) == self.max_blocks
            row = self._table.popitem(last=False)[1] if is_full else len(self._table)
            self._slab[row] = block
            self._table[key.digest] = row
            return True

    def read(self, key: BlockKey, out: Row) -> bool:
        """Copies a block to `out`; False if it is not here."""
        with self._lock:
            row = self._table.get(key.digest)
            if row is None:
                return False
            out[:] = self._slab[row]
            return True

    def touch(self, keys: Sequence[BlockKey]) -> None:
        """These blocks, in the order of their prefix, have been used: its beginning is to be the last to go."""
        with self._lock:
            for key in reversed(keys):
                if key.digest in self._table:
                    self._table.move_to_end(key.digest)

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._table.clear()
