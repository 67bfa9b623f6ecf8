"""Keys of layers with a window, as tiers below the pool keep them with blocks (`lower_parts`).

Knows slots and blocks; it knows no requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...radix import Match
from .window_slots import NONE
from .window_store import WindowStore


class WindowParts:
    """The part of a block is its keys in these layers, if it is in the window of a resume point; see `PartBooks`."""

    def __init__(self, windows: WindowStore) -> None:
        self._windows = windows
        self._slots = windows.slots

    def watch(self, on_leave: Callable[[int], None]) -> None:
        self._slots.on_leave = on_leave

    def needed(self, num_blocks: int) -> range:
        return range(self._windows.first_block(num_blocks * self._windows.block_size), num_blocks)

    def resumable(self, match: Match) -> int:
        return self._windows.find(match.blocks)

    def there(self, blocks: Sequence[int]) -> list[int]:
        found: list[int] = np.flatnonzero(self._slots.slot_of[np.asarray(blocks, np.int64)] != NONE).tolist()
        return found

    def part_of(self, block: int) -> int:
        return int(self._slots.slot_of[block]) if self._slots.is_kept(block) else NONE

    def take_kept(self) -> list[int]:
        fresh, self._slots.fresh = self._slots.fresh, []
        return fresh

    def adopt_part(self, blocks: Sequence[int], index: int) -> int:
        return self._slots.adopt(blocks[index])
