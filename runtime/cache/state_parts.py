"""States at ends of blocks, as tiers below the pool keep them with blocks (`lower_parts`).

Knows slots and blocks; it knows no requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...radix import Match
from .kept_state import NONE
from .state_slots import StateSlots


class StateParts:
    """The part of a block is the state after it; see `PartBooks`."""

    def __init__(self, slots: StateSlots) -> None:
        self._slots = slots

    def watch(self, on_leave: Callable[[int], None]) -> None:
        self._slots.on_leave = on_leave

    def needed(self, num_blocks: int) -> range:
        return range(num_blocks - 1, num_blocks)

    def resumable(self, match: Match) -> int:
        point = self._slots.find(match.blocks, match.partial_block, match.num_partial_tokens)
        return 0 if point is None else point.num_tokens

    def there(self, blocks: Sequence[int]) -> list[int]:
        return [index for index, block in enumerate(blocks) if self.part_of(block) != NONE]

    def part_of(self, block: int) -> int:
        state = self._slots.kept.get(block, {}).get(self._slots.block_size)
        return NONE if state is None else state.slot

    def take_kept(self) -> list[int]:
        fresh, self._slots.fresh = self._slots.fresh, []
        return fresh

    def adopt_part(self, blocks: Sequence[int], index: int) -> int:
        if self.part_of(blocks[index]) != NONE or not self._slots.make_room(1):
            return NONE
        slot = self._slots.take()
        self._slots.keep(blocks, (index + 1) * self._slots.block_size, slot, 1)
        self._slots.drop(slot)  # only the kept state holds it
        return slot
