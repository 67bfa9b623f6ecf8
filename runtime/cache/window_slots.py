"""Slots for the keys of layers with a window: which block has which, and which block gives its slot up next.

A block that requests hold keeps its slot. Of the others those go first that lie in the window of no resume point, the
one first that was left behind first; then those that do, least recently used first. Since all blocks of a window are
let go together, that is as good as an order of resume points, and needs no list of them.

Slot 0 belongs to no block and is never written: kernels find it where a table names a block outside of the window.

Knows blocks and slots; it knows no requests, no tree and no tensors. Cost: O(1) per block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import numpy as np
import numpy.typing as npt

from ..execute.window_view import EMPTY
from .slot import NO_SLOT, PartNotes


class WindowSlots:
    """Which blocks have the slots 1 to `num_slots - 1`.

    Attributes:
        slot_of: int32 `[num_blocks]`; -1: the block has none.
        num_holders: int32 `[num_blocks]`, requests that hold a block.
        ends: last blocks of requests that ended there, to which none has returned.
        notes: of blocks in the window of a resume point.
    """

    def __init__(self, num_slots: int, num_blocks: int) -> None:
        self.num_slots = num_slots
        self.slot_of: npt.NDArray[np.int32] = np.full(num_blocks, NO_SLOT, np.int32)
        self.num_holders: npt.NDArray[np.int32] = np.zeros(num_blocks, np.int32)
        self.ends: set[int] = set()
        self.notes = PartNotes()
        self._free = list(range(num_slots - 1, EMPTY, -1))
        self._is_kept = bytearray(num_blocks)  # whether a block is in the window of a resume point
        self._passed: dict[int, None] = {}  # blocks that none holds, next to go first
        self._kept: dict[int, None] = {}  # the same, in the window of a resume point

    @property
    def num_used(self) -> int:
        """Slots that blocks have."""
        return self.num_slots - 1 - len(self._free)

    @property
    def num_held(self) -> int:
        """Slots that running requests hold."""
        return self.num_used - len(self._passed) - len(self._kept)

    @property
    def num_available(self) -> int:
        """Slots that no request holds."""
        return self.num_slots - 1 - self.num_held

    # -- holders and resume points -----------------------------------------------------------------------------

    def hold(self, block: int) -> None:
        """A request holds a block, which gets a slot if it has none."""
        if self.slot_of[block] == NO_SLOT:
            self.slot_of[block] = self._take()
        self.num_holders[block] += 1
        self._passed.pop(block, None)
        self._kept.pop(block, None)

    def let_go(self, block: int) -> None:
        """A request holds a block no more."""
        self.num_holders[block] -= 1
        if not self.num_holders[block]:
            (self._kept if self._is_kept[block] else self._passed)[block] = None

    def keep(self, block: int) -> None:
        """A block that is held is in the window of a resume point from now on."""
        if not self._is_kept[block]:
            self.notes.is_kept(block)
        self._is_kept[block] = True

    def keep_no_more(self, block: int) -> None:
        """A block that is held is of no resume point's window any more."""
        self._is_kept[block] = False

    def is_kept(self, block: int) -> bool:
        """Whether a block is in the window of a resume point."""
        return bool(self._is_kept[block])

    # -- blocks ------------------------------------------------------------------------------------------------

    def adopt(self, block: int) -> int:
        """A slot for a block that none holds, in the window of a resume point; -1: it has one, or all are held."""
        if self.slot_of[block] != NO_SLOT or not self.num_available:
            return NO_SLOT
        self.slot_of[block] = slot = self._take()
        self._is_kept[block] = True
        self._kept[block] = None
        return slot

    def forget(self, blocks: Iterable[int]) -> None:
        """These blocks are free."""
        for block in blocks:
            slot = int(self.slot_of[block])
            if slot != NO_SLOT:
                self._lose(block)
                self._free.append(slot)

    def merge(self, source: int, target: int) -> None:
        """Both are filled with the same tokens; `target` takes the place of `source`, and its slot if it has none."""
        slot = int(self.slot_of[source])
        if source == target or slot == NO_SLOT:
            return
        holders, is_kept, is_end = int(self.num_holders[source]), self._is_kept[source], source in self.ends
        self._lose(source)
        if self.slot_of[target] == NO_SLOT:
            self.slot_of[target] = slot
        else:
            self._free.append(slot)
        self._is_kept[target] |= is_kept
        if is_kept:
            self.notes.is_kept(target)
        if is_end:
            self.ends.add(target)
        self.num_holders[target] += holders + 1
        self._passed.pop(target, None)
        self._kept.pop(target, None)
        self.let_go(target)

    def reclaim(self, blocks: Collection[int]) -> None:
        """After a fault: no request holds anything, and slots stay with these blocks alone."""
        self.num_holders[:] = 0
        is_left = np.zeros(len(self.slot_of), bool)
        is_left[list(blocks)] = True
        self.slot_of[~is_left] = NO_SLOT
        left = np.flatnonzero(self.slot_of != NO_SLOT).tolist()
        for block in np.flatnonzero(self.slot_of == NO_SLOT).tolist():
            self._is_kept[block] = False
        self.ends &= set(left)
        self._free = sorted(set(range(1, self.num_slots)) - set(self.slot_of[left].tolist()), reverse=True)
        before = [*self._passed, *self._kept]
        order = [*dict.fromkeys(block for block in [*before, *left] if self.slot_of[block] != NO_SLOT)]
        self._passed = {block: None for block in order if not self._is_kept[block]}
        self._kept = {block: None for block in order if self._is_kept[block]}

    def audit(self, held: Counter[int], blocks: Collection[int]) -> None:
        """Raises AssertionError if a slot is lost.

        held: how often requests hold each block. blocks: those that are in the tree or of a request.
        """
        slotted = np.flatnonzero(self.slot_of != NO_SLOT).tolist()
        assert set(slotted) <= set(blocks), "a slot of a free block"
        slots = [*self.slot_of[slotted].tolist(), *self._free]
        assert sorted(slots) == list(range(1, self.num_slots)), "a slot is lost, or has two blocks"
        assert held == +Counter(dict(enumerate(self.num_holders.tolist()))), "a block's holders are miscounted"
        assert held.keys() <= set(slotted), "a block that is held has no slot"
        assert self._passed.keys() == {one for one in slotted if not held[one] and not self._is_kept[one]}
        assert self._kept.keys() == {one for one in slotted if not held[one] and self._is_kept[one]}
        assert self.ends <= set(slotted), "the end of a request has no slot"

    def _take(self) -> int:
        """A slot for another block."""
        if self._free:
            return self._free.pop()
        block = next(iter(self._passed or self._kept))
        if self._is_kept[block]:
            self.notes.leaves(block)
        slot = int(self.slot_of[block])
        self._lose(block)
        return slot

    def _lose(self, block: int) -> None:
        self.slot_of[block] = NO_SLOT
        self.num_holders[block] = 0
        self._is_kept[block] = False
        self._passed.pop(block, None)
        self._kept.pop(block, None)
        self.ends.discard(block)
