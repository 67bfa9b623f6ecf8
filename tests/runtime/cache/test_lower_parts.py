"""Which blocks' parts are asked for below the pool: those that have left it, until they or their blocks are gone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import cast

import torch
from torch import Tensor

from phloem.radix import Match
from phloem.runtime.cache.lower_parts import LowerParts
from phloem.runtime.cache.slot import NO_SLOT, PartNotes
from phloem.runtime.execute.kv_cache import KVCache
from phloem.runtime.offload.block_key import BlockKeys
from phloem.runtime.offload.lower_tiers import LowerTiers


class Books:
    """Slots by block; a part comes back if there is a slot."""

    def __init__(self) -> None:
        self.slots: dict[int, int] = {}
        self.notes = PartNotes()
        self.num_free = 9

    def needed(self, num_blocks: int) -> range:
        return range(num_blocks - 1, num_blocks)

    def resumable(self, match: Match) -> int:
        return 0

    def there(self, blocks: Sequence[int]) -> Collection[int]:
        return [index for index, block in enumerate(blocks) if block in self.slots]

    def part_of(self, block: int) -> int:
        return self.slots.get(block, NO_SLOT)

    def adopt_part(self, blocks: Sequence[int], index: int) -> int:
        if self.num_free:
            self.slots[blocks[index]] = self.num_free
        return self.part_of(blocks[index])


class Tensors:
    block_bytes = 4

    def __init__(self) -> None:
        self.written: dict[int, list[int]] = {}

    def read_blocks(self, blocks: Sequence[int]) -> Tensor:
        return torch.zeros(len(blocks), 4, dtype=torch.uint8)

    def write_blocks(self, blocks: Sequence[int], rows: Tensor) -> None:
        self.written |= dict(zip(blocks, rows.tolist(), strict=True))


def test_parts_that_left_are_below_until_they_come_back_or_their_blocks_are_freed() -> None:
    books, tensors, left = Books(), Tensors(), list[str]()
    keys = SimpleNamespace(of=lambda blocks: [(f"key {block}", block) for block in blocks])
    tiers = SimpleNamespace(part_leaving=lambda key, read: left.append(key))
    parts = LowerParts(books, cast("KVCache", tensors), cast("BlockKeys", keys), cast("LowerTiers", tiers))
    path = [4, 7, 2, 5]

    def below() -> Collection[int]:
        return parts.in_pool(b"", cast("Match", SimpleNamespace(blocks=path, num_tokens=16))).below

    for block in (4, 7, 2):
        books.notes.leaves(block)
    assert left == ["key 4", "key 7", "key 2"] and below() == {0, 1, 2}
    parts.forget([7])
    assert below() == {0, 2}
    parts.adopt(path, {2: torch.tensor([[1, 2], [3, 4], [5, 6]], dtype=torch.uint8), len(path): torch.zeros(1)})
    assert tensors.written == {9: [1, 2, 3, 4]}, "of rows the part alone; of a block that the path has not, nothing"
    del books.slots[2]  # it is given up without leaving, as after a fault
    assert below() == {0}
    parts.evicted([4])
    assert below() == set()
