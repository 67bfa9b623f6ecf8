"""What books of slots have in common: no slot, and notes of parts for the tiers below the pool (`offload.parts`)."""

from __future__ import annotations

from collections.abc import Callable

NO_SLOT = -1  # of a block that has none, and of a request before its first token, whose state is all zeros


class PartNotes:
    """Which blocks' parts have come to be kept, and which are about to be written over; nothing until it is watched."""

    def __init__(self) -> None:
        self._on_leave: Callable[[int], None] | None = None
        self._kept: list[int] = []

    def watch(self, on_leave: Callable[[int], None]) -> None:
        """From now on this is called with a block whose part is about to be written over."""
        self._on_leave = on_leave

    def is_kept(self, block: int) -> None:
        """The block's part is kept for others from now on."""
        if self._on_leave is not None:
            self._kept.append(block)

    def leaves(self, block: int) -> None:
        """The block's part is about to be written over."""
        if self._on_leave is not None:
            self._on_leave(block)

    def take_kept(self) -> list[int]:
        """Blocks whose parts have come to be kept since the last call."""
        kept, self._kept = self._kept, []
        return kept
