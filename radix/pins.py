"""Pins: prefixes that stay although nobody runs on them, within a budget and for a time.

A pin is a lease that the tree holds itself. It protects its path until it is unpinned. Past its `expires_at` it is
given up when an eviction finds no other room, since keeping an unneeded cache costs nothing, or when the owner of the
tree has it ended (`RadixTree.end_expired_pins`); before that only for whoever would otherwise stand still
(`RadixTree.give_up_pin`). Several pins may share blocks; the budget counts each block once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .._core import radix as core
from ..errors import PhloemError
from .results import Node
from .tokens import unpack_blocks


class PinBudgetExceeded(PhloemError):
    """The pin would hold more blocks than the budget allows; nothing was pinned."""


@dataclass(frozen=True, slots=True, eq=False)
class Pin:
    """A held prefix of `num_tokens` tokens: what was cached when it was pinned. With 0 it holds nothing."""

    node: Node
    num_tokens: int
    expires_at: float


class PinBook:
    """Who is pinned until when, and how many distinct blocks that is.

    O(pins x depth) per change: pins are few.

    Args:
        max_blocks: budget.
        clock: seconds, what `Pin.expires_at` is about.
        tree: in which the prefixes are.
    """

    __slots__ = ("_clock", "_pins", "_tree", "max_blocks", "num_blocks")

    def __init__(self, max_blocks: int, *, clock: Callable[[], float], tree: core.Tree) -> None:
        self.max_blocks = max_blocks
        self.num_blocks = 0
        self._clock = clock
        self._tree = tree
        self._pins: dict[Pin, None] = {}

    def __len__(self) -> int:
        return len(self._pins)

    def __iter__(self) -> Iterator[Pin]:
        return iter(self._pins)

    def add(self, node: Node, num_tokens: int, ttl: float) -> Pin:
        """Lease and enter the prefix that ends at `node`, or raise `PinBudgetExceeded` and change nothing."""
        pin = Pin(node, num_tokens, self._clock() + ttl)
        if not num_tokens:
            return pin
        num_blocks = self.count_blocks(node)
        if num_blocks > self.max_blocks:
            raise PinBudgetExceeded(
                f"all pins together would hold {num_blocks} blocks, the budget is {self.max_blocks}:"
                " unpin something first, or raise the budget"
            )
        self._tree.lease(node)
        self._pins[pin] = None
        self.num_blocks = num_blocks
        return pin

    def give_up(self, pin: Pin) -> bool:
        """Strike a pin out and release it; False if it was not there any more."""
        if pin not in self._pins:
            return False
        self._tree.release(pin.node)  # first: it is refused while the tree is in use
        del self._pins[pin]
        self.num_blocks = self.count_blocks()
        return True

    def give_up_first(self) -> bool:
        """Give up the pin that would expire first, whether its time is over or not; False if there is none."""
        first = min(self._pins, key=lambda pin: pin.expires_at, default=None)
        return first is not None and self.give_up(first)

    def give_up_expired(self) -> bool:
        """Give up the pins whose time is over; False if there were none."""
        now = self._clock() if self._pins else 0.0
        expired = [pin for pin in self._pins if pin.expires_at <= now]
        for pin in expired:
            self.give_up(pin)
        return bool(expired)

    def end_expired(self) -> float:
        """`give_up_expired`; returns the time at which the next pin expires, inf if there is none."""
        if self._pins:
            self.give_up_expired()
        return min((pin.expires_at for pin in self._pins), default=math.inf)

    def recount(self) -> None:
        """Counts all blocks anew."""
        self.num_blocks = self.count_blocks()

    def count_blocks(self, *others: Node) -> int:
        """Distinct blocks on the paths of all pins, and on those that end at other nodes."""
        ends = [*(pin.node for pin in self._pins), *others]
        return len({block for node in ends for block in unpack_blocks(self._tree.packed_blocks(node))})
