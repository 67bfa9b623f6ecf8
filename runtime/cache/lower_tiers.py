"""The tiers below the pool, joined to it: host memory, a disk, or both.

::

    pool     blocks come into the tree ──► disk       write through: so a prefix outlives a process that is killed
             blocks are evicted        ──► host       write back: what the pool holds is not needed there
                                           and disk, if it had no time for them before
    host, disk ──► pool                               when somebody would have to compute them (`loads`)

This module knows which block of the pool has which key, and tells the writer what comes and goes. It belongs to the
step's thread. Memory: about 100 bytes per block of the tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..tiers import BlockKey, DiskTier, MemoryTier
from ..tiers.block_key import extend_keys, root_of
from .background import CLOSING_SECONDS, Failures
from .ferry import Ferry
from .kv_cache import KVCache
from .load_cost import LoadCost
from .loads import Loads
from .tier_writer import TierWriter


@dataclass(frozen=True, slots=True)
class TierStatistics:
    """Counts since start, in blocks, and what the tiers hold now.

    Attributes:
        num_stored: copied to a tier.
        num_loaded: read back into the pool.
        num_dropped: not copied, since the writer was busy.
        num_faults: files that could not be read or written, or were not what they should be, and other failures.
    """

    num_stored: int = 0
    num_loaded: int = 0
    num_dropped: int = 0
    num_faults: int = 0
    host_bytes: int = 0
    disk_bytes: int = 0


class LowerTiers:
    """What the tree's blocks are called below the pool, and what of them is there.

    Args:
        fingerprint: 32 bytes, of the model; keys begin with it.
        cost: what reading and computing take.

    Attributes:
        loads: the way back.
    """

    def __init__(
        self,
        kv_cache: KVCache,
        ferry: Ferry,
        fingerprint: bytes,
        cost: LoadCost,
        *,
        memory: MemoryTier | None,
        disk: DiskTier | None,
    ) -> None:
        self._fingerprint = fingerprint
        self._token_bytes = 4 * kv_cache.block_size
        self._memory = memory
        self._disk = disk
        self._keys: list[BlockKey | None] = [None] * kv_cache.num_blocks  # of the blocks that are in the tree
        self._failures = failures = Failures()
        self._writer = TierWriter(kv_cache, ferry, memory, disk, failures)
        self.loads = Loads(
            memory,
            disk,
            ferry,
            cost,
            failures,
            fingerprint=fingerprint,
            block_size=kv_cache.block_size,
            block_bytes=kv_cache.block_bytes,
        )

    def entered(self, blocks: Sequence[int], tokens: bytes, namespace: str, before: int | None) -> None:
        """Computed blocks have come into the tree: they hold packed `tokens`, behind block `before` of the tree (None:
        at its root). The last may be a tail; some may be duplicates of what the tree has."""
        keys = self._name(blocks, tokens, namespace, before)
        if self._disk is not None and self._disk.is_writable:
            disk = self._disk
            new = [(key, block) for key, block in zip(keys, blocks, strict=False) if not disk.knows(key)]
            self._writer.offer(new, to_memory=False)

    def adopted(self, blocks: Sequence[int], tokens: bytes, namespace: str, before: int | None) -> None:
        """Blocks that were read are in the tree now; arguments as for `entered`."""
        self._name(blocks, tokens, namespace, before)

    def forget(self, blocks: Sequence[int]) -> None:
        """These blocks will hold other tokens."""
        for block in blocks:
            self._keys[block] = None

    def leaving(self, blocks: Sequence[int]) -> None:
        """Blocks have just been evicted, and are about to be written over."""
        named = [(key, block) for block in blocks if (key := self._keys[block]) is not None]
        self._writer.offer([pair for pair in named if self._is_missing(pair[0])], to_memory=True)

    def _is_missing(self, key: BlockKey) -> bool:
        """Whether a tier that could take it does not have it, as far as this process knows."""
        memory, disk = self._memory, self._disk
        if memory is not None and key not in memory:
            return True
        return disk is not None and disk.is_writable and not disk.knows(key)

    def _name(self, blocks: Sequence[int], tokens: bytes, namespace: str, before: int | None) -> list[BlockKey]:
        """Puts down the keys of blocks; a tail has none."""
        if before is None:
            keys = extend_keys(root_of(self._fingerprint, namespace), True, tokens, self._token_bytes)
        else:
            parent = self._keys[before]
            keys = [] if parent is None else extend_keys(parent.digest, False, tokens, self._token_bytes)
        for index, block in enumerate(blocks):
            self._keys[block] = keys[index] if index < len(keys) else None
        return keys

    def clear_memory(self) -> None:
        """Empties host memory. Files stay."""
        self._writer.clear_memory()

    def settle(self, seconds: float = CLOSING_SECONDS) -> bool:
        """Waits until what was copied has been written; False if that takes longer."""
        return self._writer.settle(seconds)

    def close(self) -> None:
        """Writes what was copied, and ends the threads."""
        self._writer.close()
        self.loads.close()

    def statistics(self) -> TierStatistics:
        """Safe on any thread."""
        disk, memory = self._disk, self._memory
        return TierStatistics(
            num_stored=self._writer.num_written,
            num_loaded=self.loads.num_loaded,
            num_dropped=self._writer.num_dropped,
            num_faults=self._failures.number + (0 if disk is None else disk.num_faults),
            host_bytes=0 if memory is None else memory.num_bytes,
            disk_bytes=0 if disk is None else disk.num_bytes,
        )
