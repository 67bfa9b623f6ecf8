"""Pins: prefixes protected from eviction although no request uses them, for a time and within a budget of blocks.

A pin is a lease that the tree itself holds, until it is unpinned. After `expires_at` it ends when an eviction cannot
free enough blocks otherwise (until then the cache costs nothing), or when the owner of the tree ends it. Several pins
may share blocks; the budget counts each block once. Knows no requests. Cost: O(pins x depth) per change; pins are few.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .._core import radix as core
from ..errors import PhloemError
from .results import Node
from .tokens import unpack


class PinBudgetExceeded(PhloemError):
    """The pin would hold more blocks than the budget allows; nothing was pinned."""


@dataclass(frozen=True, slots=True, eq=False)
class Pin:
    """A protected prefix of `num_tokens` tokens: what was cached when it was pinned. With 0 tokens it protects nothing.

    expires_at: seconds of the tree's clock.
    """

    node: Node
    num_tokens: int
    expires_at: float


class PinBook:
    """The pins of a tree, and the number of distinct blocks that they protect: at most `max_blocks`."""

    __slots__ = ("_pins", "_tree", "max_blocks", "num_blocks")

    def __init__(self, tree: core.Tree, max_blocks: int) -> None:
        self.max_blocks = max_blocks
        self.num_blocks = 0
        self._tree = tree
        self._pins: dict[Pin, None] = {}

    def __len__(self) -> int:
        return len(self._pins)

    def __iter__(self) -> Iterator[Pin]:
        return iter(self._pins)

    def add(self, pin: Pin) -> Pin:
        """Lease the prefix of a pin and record the pin, or raise `PinBudgetExceeded` and change nothing."""
        if not pin.num_tokens:
            return pin
        num_blocks = self.count_blocks(pin.node)
        if num_blocks > self.max_blocks:
            raise PinBudgetExceeded(
                f"all pins together would hold {num_blocks} blocks, the budget is {self.max_blocks}:"
                " unpin something first, or raise the budget"
            )
        self._tree.lease(pin.node)
        self._pins[pin] = None
        self.num_blocks = num_blocks
        return pin

    def end(self, pin: Pin) -> bool:
        """Release the prefix of a pin; False if it protected nothing, or has ended."""
        if pin not in self._pins:
            return False
        self._tree.release(pin.node)  # first, since it raises while the tree is in use
        del self._pins[pin]
        self.num_blocks = self.count_blocks()
        return True

    def end_expired(self, now: float) -> bool:
        """End all expired pins; False if there were none."""
        return any([self.end(pin) for pin in list(self._pins) if pin.expires_at <= now])

    def first(self) -> Pin | None:
        """The pin that expires first."""
        return min(self._pins, key=lambda pin: pin.expires_at, default=None)

    def count_blocks(self, *others: Node) -> int:
        """Distinct blocks on the paths to the nodes of all pins and to `others`."""
        ends = [*(pin.node for pin in self._pins), *others]
        return len({block for node in ends for block in unpack(self._tree.packed_blocks(node))})
