"""Parts of blocks on their way between the pool and the tiers below it (`offload.parts`).

What a group of layers needs besides the keys of all tokens lies in slots: states of recurrent layers, keys of layers
with a window. Their books say which slot a block's part has, and when it is to be written over. A part is offered to
tiers that are written through when it is kept, and to all when it has to go; what comes back is kept as if it had never
left. A part of a block that is not whole stays in the pool, as the block itself does.

Knows blocks and their keys, books and tensors; it knows no requests.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol

from torch import Tensor

from ...radix import Match
from ..offload.block_keys import BlockKeys
from ..offload.lower_tiers import LowerTiers
from ..offload.parts import Look

NONE = -1


class PartBooks(Protocol):
    """Which slots parts have."""

    def watch(self, on_leave: Callable[[int], None]) -> None:
        """From now on this is called with a block whose part is about to be written over."""

    def needed(self, num_blocks: int) -> range:
        """See `PartRules`."""

    def resumable(self, match: Match) -> int:
        """After how many tokens of a match a request can go on."""

    def there(self, blocks: Sequence[int]) -> Collection[int]:
        """Indices of those blocks whose parts are in the pool."""

    def part_of(self, block: int) -> int:
        """The slot of a part that is kept for others; -1: there is none."""

    def take_kept(self) -> list[int]:
        """Blocks of which parts have been kept since the last call."""

    def adopt_part(self, blocks: Sequence[int], index: int) -> int:
        """A slot for the part of a block on a path of the tree; -1: it has one, or there is no room."""


class PartTensors(Protocol):
    """What lies in slots, as `KVCache` has blocks."""

    @property
    def block_bytes(self) -> int: ...

    def read_blocks(self, blocks: Sequence[int]) -> Tensor: ...

    def write_blocks(self, blocks: Sequence[int], rows: Tensor) -> None: ...


class LowerParts:
    """Both ways, for one engine."""

    def __init__(self, books: PartBooks, tensors: PartTensors, keys: BlockKeys, tiers: LowerTiers) -> None:
        self._books = books
        self._tensors = tensors
        self._keys = keys
        self._tiers = tiers
        self._below: set[int] = set()  # blocks whose parts were offered and are not in the pool any more
        books.watch(self._leave)

    def entered(self) -> None:
        """What has been kept since the last call goes to tiers that are written through."""
        for block in self._books.take_kept():
            for key, _ in self._keys.of([block]):
                if self._books.part_of(block) != NONE:
                    self._tiers.part_entered(key, self._read(block))

    def evicted(self, blocks: Sequence[int]) -> None:
        """Blocks have just been evicted from the tree, and are about to be freed."""
        for block in blocks:
            if self._books.part_of(block) != NONE:
                self._leave(block)
        self._below.difference_update(blocks)

    def _leave(self, block: int) -> None:
        for key, _ in self._keys.of([block]):
            self._tiers.part_leaving(key, self._read(block))
            self._below.add(block)

    def _read(self, block: int) -> partial[Tensor]:
        return partial(self._read_slot, self._books.part_of(block))

    def _read_slot(self, slot: int) -> Tensor:
        return self._tensors.read_blocks([slot])[0]

    def forget(self, blocks: Sequence[int]) -> None:
        """These blocks are free."""
        self._below.difference_update(blocks)

    def look(self, tokens: bytes, match: Match) -> Look:
        """What of these tokens is in the pool, where they match the tree."""
        there = self._books.there(match.blocks)
        below = {index for index, block in enumerate(match.blocks) if block in self._below} if self._below else set()
        return Look(tokens, match.num_tokens, self._books.resumable(match), there, below - set(there))

    def adopt(self, blocks: Sequence[int], parts: Mapping[int, Tensor]) -> None:
        """Keeps what was read from a tier; blocks: a path of the tree; parts: rows, by index."""
        for index, rows in sorted(parts.items()):
            slot = self._books.adopt_part(blocks, index) if index < len(blocks) else NONE
            if slot != NONE:
                row = rows.flatten()[: self._tensors.block_bytes].clone()  # aligned, whatever was before it
                self._tensors.write_blocks([slot], row[None])
                self._below.discard(blocks[index])
