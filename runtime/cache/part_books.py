"""The books of slots as tiers below the pool ask them (`lower_parts`): what is a block's part, and where it lies.

Knows slots and blocks; it knows no requests and no tensors.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np

from ...radix import Match
from .slot import NO_SLOT, PartNotes
from .state_slots import StateSlots
from .window_store import WindowStore


class PartBooks(Protocol):
    """Which slots parts have.

    Attributes:
        notes: of parts that are kept, and that leave.
    """

    notes: PartNotes

    def needed(self, num_blocks: int) -> range:
        """See `PartRules`."""

    def resumable(self, match: Match) -> int:
        """After how many tokens of a match a request can go on."""

    def there(self, blocks: Sequence[int]) -> Collection[int]:
        """Indices of those blocks whose parts are in the pool."""

    def part_of(self, block: int) -> int:
        """The slot of a part that is kept for others; -1: there is none."""

    def adopt_part(self, blocks: Sequence[int], index: int) -> int:
        """A slot for the part of a block on a path of the tree; -1: it has one, or there is no room."""


class StateParts:
    """The part of a block is the state of recurrent layers after it."""

    def __init__(self, slots: StateSlots) -> None:
        self._slots = slots
        self.notes = slots.notes

    def needed(self, num_blocks: int) -> range:
        return range(num_blocks - 1, num_blocks)

    def resumable(self, match: Match) -> int:
        point = self._slots.find(match.blocks, match.partial_block, match.num_partial_tokens)
        return 0 if point is None else point.num_tokens

    def there(self, blocks: Sequence[int]) -> list[int]:
        return [index for index, block in enumerate(blocks) if self.part_of(block) != NO_SLOT]

    def part_of(self, block: int) -> int:
        state = self._slots.kept.get(block, {}).get(self._slots.block_size)
        return NO_SLOT if state is None else state.slot

    def adopt_part(self, blocks: Sequence[int], index: int) -> int:
        if self.part_of(blocks[index]) != NO_SLOT or not self._slots.make_room(1):
            return NO_SLOT
        slot = self._slots.take()
        self._slots.keep(blocks, (index + 1) * self._slots.block_size, slot, 1)
        self._slots.drop(slot)  # only the kept state holds it
        return slot


class WindowParts:
    """The part of a block is its keys in layers with a window, if it is in the window of a resume point."""

    def __init__(self, windows: WindowStore) -> None:
        self._windows = windows
        self._slots = windows.slots
        self.notes = windows.slots.notes

    def needed(self, num_blocks: int) -> range:
        return range(self._windows.first_block(num_blocks * self._windows.block_size), num_blocks)

    def resumable(self, match: Match) -> int:
        return self._windows.find(match.blocks)

    def there(self, blocks: Sequence[int]) -> list[int]:
        found: list[int] = np.flatnonzero(self._slots.slot_of[np.asarray(blocks, np.int64)] != NO_SLOT).tolist()
        return found

    def part_of(self, block: int) -> int:
        return int(self._slots.slot_of[block]) if self._slots.is_kept(block) else NO_SLOT

    def adopt_part(self, blocks: Sequence[int], index: int) -> int:
        return self._slots.adopt(blocks[index])
