"""Copies of blocks on their way to the tiers below the pool.

A block is copied at once, on the step's thread or stream, which costs about a thousandth of computing it; so nothing
holds on to the pool's blocks, and they may be written over. The rest happens on a thread of its own. Copies that are
not written yet take `QUEUE_BYTES` at most: what comes beyond that is dropped. Only an engine whose work is to fill a
store (`waits`) waits for room, for `PATIENCE` seconds in a step at most.

Knows keys, blocks and tiers. `offer` belongs to the step's thread, everything else to any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from torch import Tensor

from ..execute.kv_cache import KVCache
from . import BlockKey, Tier
from .background import Background, Failures
from .device_copy import DeviceCopy

QUEUE_BYTES = 64 << 20
PATIENCE = 5.0  # seconds for room, where that is waited for


class _Queued:
    """How many bytes have been copied and not written, and how many blocks have been written."""

    def __init__(self) -> None:
        self.change = threading.Condition()
        self.num_bytes = 0
        self.num_written = 0

    def add(self, num_bytes: int) -> None:
        with self.change:
            self.num_bytes += num_bytes
            self.change.notify_all()


class TierWriter:
    """Writes in parallel with the step.

    Args:
        waits: whether `offer` waits for room.

    Attributes:
        num_dropped: blocks, and parts of blocks, that were not copied, since too many waited.
    """

    def __init__(
        self,
        kv_cache: KVCache,
        device_copy: DeviceCopy,
        tiers: Sequence[Tier],
        failures: Failures,
        *,
        waits: bool = False,
    ) -> None:
        self._patience = PATIENCE if waits else 0.0
        self._kv_cache = kv_cache
        self._block_bytes = kv_cache.block_bytes
        self._device_copy = device_copy
        self._tiers = tiers
        self._failures = failures
        self._queued = _Queued()
        self._thread = Background("phloem-tier-writer", failures)
        self.num_dropped = 0
        for tier in tiers:
            self._thread.do(tier.begin)

    @property
    def num_written(self) -> int:
        """Blocks that were copied, counted for each tier that has taken them."""
        return self._queued.num_written

    def offer(self, wanted: Sequence[tuple[BlockKey, int]], tiers: Sequence[Tier]) -> None:
        """Copies blocks of the pool to these tiers, as far as there is room."""
        end = time.monotonic() + self._patience
        while wanted:
            room = self._room(len(wanted), end)
            if not room:
                break
            blocks = [block for _, block in wanted[:room]]
            keys, read = [key for key, _ in wanted[:room]], partial(self._kv_cache.read_blocks, blocks)
            self._copy(keys, read, tiers, are_blocks=True)
            wanted = wanted[room:]
        self.num_dropped += len(wanted)

    def offer_part(self, keys: Sequence[BlockKey], read: Callable[[], Tensor], tiers: Sequence[Tier]) -> None:
        """Copies a part of a block to these tiers, all of it or nothing; read: its rows, on the pool's device."""
        num_bytes = len(keys) * self._block_bytes

        def has_room() -> bool:
            return not self._queued.num_bytes or self._queued.num_bytes + num_bytes <= QUEUE_BYTES

        with self._queued.change:
            found = self._queued.change.wait_for(has_room, self._patience)
        if found:
            self._copy(keys, read, tiers, are_blocks=False)
        else:
            self.num_dropped += 1

    def _room(self, num_wanted: int, end: float) -> int:
        """For how many blocks there is room now, or until `end`; for one where nothing waits, however large it is."""

        def room() -> int:
            left = max(0, QUEUE_BYTES - self._queued.num_bytes) // self._block_bytes
            return min(num_wanted, left if self._queued.num_bytes else max(left, 1))

        with self._queued.change:
            return self._queued.change.wait_for(room, max(0.0, end - time.monotonic()))

    def _copy(
        self, keys: Sequence[BlockKey], read: Callable[[], Tensor], tiers: Sequence[Tier], *, are_blocks: bool
    ) -> None:
        """are_blocks: the rows are blocks, and are counted; else those of one part."""
        try:
            rows = self._device_copy.send_out(read())
        except Exception:
            self._failures.note("KV could not be copied")
            return
        queued, num_bytes = self._queued, len(keys) * self._block_bytes
        queued.add(num_bytes)

        def write() -> None:
            try:
                copied = rows()
                num_taken = sum(tier.put_blocks(keys, copied) for tier in tiers)
                queued.num_written += num_taken if are_blocks else 0
            finally:
                queued.add(-num_bytes)

        self._thread.do(write)

    def clear(self) -> None:
        """Empties host memory, now and of what is on its way there."""
        for tier in self._tiers:
            tier.clear()
            self._thread.do(tier.clear)

    def written(self) -> Future[None]:
        """Done when what has been copied by now has been written, or has failed."""
        found: Future[None] = Future()
        self._thread.do(lambda: found.set_result(None) if found.set_running_or_notify_cancel() else None)
        return found

    def settle(self, seconds: float) -> bool:
        """Waits until what was copied has been written; False if that takes longer."""
        with self._queued.change:
            return self._queued.change.wait_for(lambda: not self._queued.num_bytes, seconds)

    def close(self) -> None:
        """Writes what was copied, and ends."""
        self._thread.close()
