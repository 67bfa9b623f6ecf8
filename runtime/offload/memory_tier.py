"""Blocks in host memory: one slab of rows, of which the least recently used is overwritten (LRU).

::

    slab    [ row 0 | row 1 | … ]      table   key → row, used longest ago first

Plain memory, taken as it fills: what goes to a GPU goes through a pinned buffer of the reader's. Thread-safe; a row is
copied in or out under the lock, which is some tenth of a millisecond for a block of a large model. Knows keys and
bytes; it knows no tokens and no pool.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence

from .block_key import BlockKey
from .tier import Changed, Row, Tier, ignore_changes


class MemoryTier(Tier):
    """As many blocks as the slab has rows, one or more.

    Args:
        slab: uint8 `[rows, block_bytes]`, on the host, for this tier alone.
        changed: called with what is kept, and what is written over.

    Attributes:
        max_blocks: how many it holds.
    """

    name = "host"
    writes_through = False

    def __init__(self, slab: Row, changed: Changed = ignore_changes) -> None:
        self.max_blocks = len(slab)
        self._slab = slab
        self._changed = changed
        self._table: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_blocks(self) -> int:
        return len(self._table)

    @property
    def num_bytes(self) -> int:
        return len(self._table) * int(self._slab.shape[1])

    def may_have(self, key: BlockKey) -> bool:
        return key.digest in self._table

    def read_blocks(self, keys: Sequence[BlockKey], rows: Row) -> int:
        return next((number for number, key in enumerate(keys) if not self.read(key, rows[number])), len(keys))

    def put_blocks(self, keys: Sequence[BlockKey], rows: Row) -> int:
        return sum(self.put(key, row) for key, row in zip(keys, rows, strict=True))

    def put(self, key: BlockKey, block: Row) -> bool:
        """Keeps a copy of a block, in place of the one used longest ago if there is no room; False if it is here."""
        with self._lock:
            if key.digest in self._table:
                self._table.move_to_end(key.digest)
                return False
            changes = [(key.digest, True)]
            row = len(self._table)
            if row == self.max_blocks:
                oldest, row = self._table.popitem(last=False)
                changes.insert(0, (oldest, False))
            self._slab[row] = block
            self._table[key.digest] = row
            self._changed(changes)
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
        with self._lock:
            for key in reversed(keys):
                if key.digest in self._table:
                    self._table.move_to_end(key.digest)

    def clear(self) -> None:
        with self._lock:
            if self._table:
                self._changed([(digest, False) for digest in self._table])
            self._table.clear()
