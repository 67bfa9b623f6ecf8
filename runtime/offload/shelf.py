"""What is read from the tiers for a request, and how: the fastest tier that has a block gives it.

Blocks whose keys alone are missing are read from the first on, until one is in no tier. Where groups of layers need
parts too (`parts`), a request can go on only where these are, so blocks are read up to the last one after which it can,
with the parts that are needed there, and nothing is read if there is none.

For the reader's thread, but for `may_have`. Knows keys and tiers; it knows no tree and no requests.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from torch import Tensor

from . import BlockKey, Tier
from .block_key import part_keys
from .device_copy import DeviceCopy
from .load_cost import LoadCost
from .parts import PartRules, PoolPrefix


@dataclass(slots=True, eq=False)
class Load:
    """Blocks on their way into the pool, for the first request that asked.

    Attributes:
        in_pool: what of its prefix the pool has.
        prefix: keys from the root on, up to the end of what is read.
        first: index of the first block whose keys are read; start: of the first after which it cannot go on yet.
        rows: what was read, on the pool's device, a row per block; None: nothing.
        parts: by index of their blocks, the same of parts.
        num_unusable: tokens up to the end of keys that are of no use without a part; 0: there were none.
    """

    namespace: str
    in_pool: PoolPrefix
    prefix: list[BlockKey]
    first: int
    start: int
    begun_at: float
    rows: Tensor | None = None
    parts: dict[int, Tensor] = field(default_factory=dict)
    num_unusable: int = 0
    is_done: bool = False
    digests: frozenset[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.digests = frozenset(key.digest for key in self.prefix[self.start :])

    @property
    def keys(self) -> list[BlockKey]:
        """Of the blocks that are read."""
        return self.prefix[self.first :]

    @property
    def num_blocks(self) -> int:
        return 0 if self.rows is None else len(self.rows)

    def brings(self, key: BlockKey) -> bool:
        """Whether this block is among those that are read, or whose parts are."""
        return key.digest in self.digests


@dataclass(frozen=True, slots=True)
class Shelf:
    """The tiers as the reader sees them, fastest first; rules: of parts, None: no group of layers needs any."""

    tiers: Sequence[Tier]
    device_copy: DeviceCopy
    cost: LoadCost
    block_size: int
    block_bytes: int
    rules: PartRules | None

    def may_have(self, key: BlockKey) -> bool:
        """False: no tier has the block. For the step's thread."""
        return any(tier.may_have(key) for tier in self.tiers)

    def read(self, load: Load) -> None:
        """Brings what there is and is of use to the pool's device, unless computing it is faster."""
        runs = self._runs(load.keys, self.tiers)
        end, parts = load.first + _length(runs), dict[int, list[BlockKey]]()
        if self.rules is not None:
            there = end
            end, parts = self._resumable(load, end, self.rules)
            load.num_unusable = there * self.block_size if end < there else 0
        if end <= load.start:
            return
        runs = _shortened(runs, end - load.first)
        found: dict[str, int] = {}
        for tier, number in [*runs, *(run for keys in parts.values() for run in self._runs(keys, self.tiers))]:
            found[tier.name] = found.get(tier.name, 0) + number
        if not self.cost.pays(found, load.start * self.block_size, end * self.block_size):
            return
        host = self.device_copy.host_rows(sum(found.values()), self.block_bytes)
        num_found = num_read = _length(runs)
        if num_found:
            num_read = self._read(load.keys[:num_found], runs, host)
            load.rows = self.device_copy.bring_in(host[:num_read]) if num_read else None
        at = num_found
        for index, keys in parts.items() if num_read == num_found else ():
            rows = host[at : at + len(keys)]
            at += len(keys)
            if self._read(keys, self._runs(keys, self.tiers), rows) < len(keys):
                load.parts.clear()  # some alone are of no use
                break
            load.parts[index] = self.device_copy.bring_in(rows)

    def _resumable(self, load: Load, end: int, rules: PartRules) -> tuple[int, dict[int, list[BlockKey]]]:
        """The last block, before `end`, after which a request could go on, and the keys of the parts that it takes."""
        number = rules.num_rows(self.block_bytes)

        @cache
        def found(index: int) -> list[BlockKey]:
            if index < load.first and index not in load.in_pool.below:
                return []
            keys = part_keys(load.prefix[index], number)
            return keys if _length(self._runs(keys, self.tiers)) == number else []

        for last in range(end, load.start, -1):
            needed = [index for index in reversed(rules.needed(last)) if index not in load.in_pool.there]
            if all(found(index) for index in needed):
                return last, {index: found(index) for index in needed}
        return load.start, {}

    def _runs(self, keys: Sequence[BlockKey], tiers: Sequence[Tier]) -> list[tuple[Tier, int]]:
        """Runs of blocks by tier, until a block is in none of them: each comes from the fastest tier that has it."""
        runs: list[tuple[Tier, int]] = []
        start = 0
        while start < len(keys):
            counts = ((index, tier.count(keys[start:])) for index, tier in enumerate(tiers))
            index, number = next(((index, number) for index, number in counts if number), (0, 0))
            if not number:
                break
            ends = (end for end in range(start + 1, start + number) if self._is_in(keys[end], tiers[:index]))
            end = next(ends, start + number)  # where a faster one goes on
            runs.append((tiers[index], end - start))
            start = end
        return runs

    def _is_in(self, key: BlockKey, tiers: Sequence[Tier]) -> bool:
        return any(tier.may_have(key) for tier in tiers)

    def _read(self, keys: Sequence[BlockKey], runs: list[tuple[Tier, int]], host: Tensor) -> int:
        """Reads blocks until one is missing; how many that are. What a tier has lost another one may have."""
        rows, tiers, num_read = host.numpy(), list(self.tiers), 0
        while runs:
            tier, number = runs.pop(0)
            begin, end = time.perf_counter(), num_read + number
            got = tier.read_blocks(keys[num_read:end], rows[num_read:end])
            self.cost.observe_load(tier.name, got, time.perf_counter() - begin)
            num_read += got
            if got < number:
                tiers.remove(tier)
                runs = self._runs(keys[num_read:], tiers)
        for tier in self.tiers:
            tier.touch(keys[:num_read])
        return num_read


def _length(runs: Sequence[tuple[Tier, int]]) -> int:
    return sum(number for _, number in runs)


def _shortened(runs: Sequence[tuple[Tier, int]], most: int) -> list[tuple[Tier, int]]:
    """Their first `most` blocks."""
    kept = []
    for tier, number in runs:
        if most > 0:
            kept.append((tier, min(number, most)))
        most -= number
    return kept
