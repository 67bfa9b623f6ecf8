"""Parts of blocks on their way between the pool and the tiers below it (`offload.parts`).

What a group of layers needs besides the keys of all tokens lies in slots: states of recurrent layers, keys of layers
with a window. Their books say which slot a block's part has, and when it is to be written over. A part is offered to
tiers that are written through when it is kept, and to all when it has to go; what comes back is kept as if it had never
left. A part of a block that is not whole stays in the pool, as the block itself does.

Knows blocks and their keys, books and tensors; it knows no requests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor

from ...radix import Match
from ..execute.kv_cache import KVCache
from ..execute.recurrent_states import RecurrentStates
from ..offload.block_key import BlockKeys
from ..offload.lower_tiers import LowerTiers
from ..offload.parts import PoolPrefix
from .part_books import PartBooks
from .slot import NO_SLOT


class LowerParts:
    """Both ways, for one engine. tensors: what lies in the slots."""

    def __init__(
        self, books: PartBooks, tensors: KVCache | RecurrentStates, keys: BlockKeys, tiers: LowerTiers
    ) -> None:
        self._books = books
        self._tensors = tensors
        self._keys = keys
        self._tiers = tiers
        self._below: set[int] = set()  # blocks whose parts were offered and are not in the pool any more
        books.notes.watch(self._leave)

    def entered(self) -> None:
        """What has been kept since the last call goes to tiers that are written through."""
        for block in self._books.notes.take_kept():
            for key, _ in self._keys.of([block]):
                if self._books.part_of(block) != NO_SLOT:
                    self._tiers.part_entered(key, self._read(block))

    def evicted(self, blocks: Sequence[int]) -> None:
        """Blocks have just been evicted from the tree, and are about to be freed."""
        for block in blocks:
            if self._books.part_of(block) != NO_SLOT:
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

    def in_pool(self, tokens: bytes, match: Match) -> PoolPrefix:
        """What of these tokens is in the pool, where they match the tree."""
        there = self._books.there(match.blocks)
        below = {index for index, block in enumerate(match.blocks) if block in self._below} if self._below else set()
        return PoolPrefix(tokens, match.num_tokens, self._books.resumable(match), there, below - set(there))

    def adopt(self, blocks: Sequence[int], parts: Mapping[int, Tensor]) -> None:
        """Keeps what was read from a tier; blocks: a path of the tree; parts: rows, by index."""
        for index, rows in sorted(parts.items()):
            slot = self._books.adopt_part(blocks, index) if index < len(blocks) else NO_SLOT
            if slot != NO_SLOT:
                row = rows.flatten()[: self._tensors.block_bytes].clone()  # aligned, whatever was before it
                self._tensors.write_blocks([slot], row[None])
                self._below.discard(blocks[index])
