"""Pins: prefixes protected from eviction although no request uses them, for a time and within a budget of blocks.

A pin is a lease that the tree itself holds, until it is unpinned. After `expires_at` it ends when an eviction cannot
free enough blocks otherwise (until then the cache costs nothing), or when the owner of the tree ends it. Several pins
may share blocks; the budget counts each block once. Knows no requests. Cost: O(pins x depth) per change; pins are few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
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
    """The pins of a tree that have not ended, which hold at most `max_blocks` distinct blocks.

    Attributes:
        num_blocks: distinct blocks that pins protect (leases may protect them too).
    """

    __slots__ = ("_clock", "_pins", "_tree", "max_blocks", "num_blocks")

    def __init__(self, tree: core.Tree, max_blocks: int, clock: Callable[[], float]) -> None:
        self.max_blocks = max_blocks
        self.num_blocks = 0
        self._tree = tree
        self._clock = clock
        self._pins: dict[Pin, None] = {}

    def __len__(self) -> int:
        return len(self._pins)

    def __iter__(self) -> Iterator[Pin]:
        return iter(tuple(self._pins))

    def add(self, tokens: bytes, ttl: float, namespace: str) -> Pin:
        """Protect the cached prefix of packed tokens from eviction for at least `ttl` seconds.

        Counts as a match. If nothing is cached, the pin has 0 tokens and protects nothing. After `ttl` it ends when
        an eviction cannot free enough blocks otherwise.

        Raises:
            PinBudgetExceeded: the pinned blocks would exceed `max_blocks`; nothing was pinned.
        """
        now = self._clock()
        num_tokens, node, *_ = self._tree._match(tokens, namespace, now)
        pin = Pin(node, num_tokens, now + ttl)
        if not num_tokens:
            return pin
        num_blocks = self.count_blocks(node)
        if num_blocks > self.max_blocks:
            raise PinBudgetExceeded(
                f"all pins together would hold {num_blocks} blocks, the budget is {self.max_blocks}:"
                " unpin something first, or raise max_pinned_blocks"
            )
        self._tree.lease(node)
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

    def end_expired(self) -> bool:
        """End all expired pins; False if there were none."""
        if not self._pins:
            return False
        now = self._clock()
        return any([self.end(pin) for pin in self if pin.expires_at <= now])

    def end_first(self) -> bool:
        """End the pin that expires first, even before its time; False if there is none."""
        first = min(self._pins, key=lambda pin: pin.expires_at, default=None)
        return first is not None and self.end(first)

    @property
    def next_expiry(self) -> float:
        """When the first pin expires, in seconds of the clock; inf: there is none."""
        return min((pin.expires_at for pin in self._pins), default=math.inf)

    def count_blocks(self, *others: Node) -> int:
        """Distinct blocks on the paths to the nodes of all pins and to `others`."""
        ends = [*(pin.node for pin in self._pins), *others]
        return len({block for node in ends for block in unpack(self._tree.packed_blocks(node))})
