"""The tiers below the pool, joined to it: host memory, a disk, a store that machines share.

::

    pool     blocks come into the tree ──► disk, shared    write through: a prefix outlives a process that is killed
             blocks are evicted        ──► host            write back: what the pool holds is not needed there
                                           and the others, if they had no time for them before
    host, disk, shared ──► pool                            when a request would have to compute them (`loads`)

Tiers that are written through get blocks when they are computed, the others when the pool has no more room for them.
Belongs to the step's thread. Knows tiers by their one face (`tier`), fastest first, and blocks by their keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import torch.nn.functional as F
from torch import Tensor

from ..execute.kv_cache import KVCache
from . import BlockKey, Tier
from .background import CLOSING_SECONDS, Failures
from .block_key import BlockKeys, part_keys
from .device_copy import DeviceCopy
from .load_cost import LoadCost
from .loads import Loads
from .parts import PartRules
from .tier_writer import TierWriter


@dataclass(frozen=True, slots=True)
class TierStatistics:
    """Counts since start, in blocks, and what the tiers hold now.

    Attributes:
        num_stored: copied to a tier, once for each tier that has taken one; parts (`parts.py`) are not counted.
        num_loaded: read back into the pool.
        num_dropped: not copied, since the writer was busy; a part that was not counts as one more.
        num_faults: files that could not be read or written, or were not what they should be, and other failures.
        num_bytes: what each tier holds, as far as this process knows, by its name, fastest first.
    """

    num_stored: int = 0
    num_loaded: int = 0
    num_dropped: int = 0
    num_faults: int = 0
    num_bytes: Mapping[str, int] = field(default_factory=dict)


class LowerTiers:
    """What of the tree's blocks is in the tiers below the pool, and the ways there and back.

    Args:
        keys: of the pool's blocks.
        cost: what reading and computing take.
        tiers: fastest first, one or more.
        rules: of parts; None: there are none.
        waits: see `TierWriter`.

    Attributes:
        loads: the way back.
    """

    def __init__(
        self,
        kv_cache: KVCache,
        device_copy: DeviceCopy,
        keys: BlockKeys,
        cost: LoadCost,
        tiers: Sequence[Tier],
        rules: PartRules | None = None,
        *,
        waits: bool = False,
    ) -> None:
        self._keys = keys
        self._block_bytes = kv_cache.block_bytes
        self._num_part_rows = 0 if rules is None else rules.num_rows(self._block_bytes)
        self._tiers = tuple(tiers)
        self._through = tuple(tier for tier in tiers if tier.writes_through)
        self._failures = failures = Failures()
        self._writer = TierWriter(kv_cache, device_copy, self._tiers, failures, waits=waits)
        sizes = kv_cache.block_size, kv_cache.block_bytes
        self.loads = Loads(self._tiers, device_copy, cost, failures, keys, *sizes, rules)

    def entered(self, keys: Sequence[BlockKey], blocks: Sequence[int]) -> None:
        """Computed blocks have come into the tree; some may be duplicates of what the tree has.

        keys: of the whole ones among `blocks`, which come first.
        """
        self._offer(zip(keys, blocks, strict=False), self._through)

    def leaving(self, blocks: Sequence[int]) -> None:
        """Blocks have just been evicted, and are about to be written over."""
        self._offer(self._keys.of(blocks), self._tiers)

    def part_entered(self, key: BlockKey, read: Callable[[], Tensor]) -> None:
        """A part of a block of the tree is kept in the pool; read: a copy of it, `[num_bytes]` on the device."""
        self._offer_part(key, read, self._through)

    def part_leaving(self, key: BlockKey, read: Callable[[], Tensor]) -> None:
        """A part is about to be written over."""
        self._offer_part(key, read, self._tiers)

    def _offer_part(self, key: BlockKey, read: Callable[[], Tensor], tiers: Sequence[Tier]) -> None:
        assert self._num_part_rows
        keys, size = part_keys(key, self._num_part_rows), self._num_part_rows * self._block_bytes
        if any(tier.wants(keys[0]) for tier in tiers):

            def rows() -> Tensor:
                part = read()
                return F.pad(part, (0, size - len(part))).view(len(keys), -1)

            self._writer.offer_part(keys, rows, tiers)

    def _offer(self, named: Iterable[tuple[BlockKey, int]], tiers: Sequence[Tier]) -> None:
        wanted = [pair for pair in named if any(tier.wants(pair[0]) for tier in tiers)]
        if wanted:
            self._writer.offer(wanted, tiers)

    def clear(self) -> None:
        """Empties host memory. What others can read stays."""
        self._writer.clear()

    def written(self) -> Future[None]:
        """Done when what has been copied by now has been written, or has failed; any thread may ask."""
        return self._writer.written()

    def settle(self, seconds: float = CLOSING_SECONDS) -> bool:
        """Waits until what was copied has been written; False if that takes longer."""
        return self._writer.settle(seconds)

    def close(self) -> None:
        """Writes what was copied, and ends the threads."""
        self._writer.close()
        self.loads.close()
        for tier in self._tiers:
            tier.close()

    def statistics(self) -> TierStatistics:
        """Safe on any thread."""
        return TierStatistics(
            num_stored=self._writer.num_written,
            num_loaded=self.loads.num_loaded,
            num_dropped=self._writer.num_dropped,
            num_faults=self._failures.number + sum(tier.num_faults for tier in self._tiers),
            num_bytes={tier.name: tier.num_bytes for tier in self._tiers},
        )
