"""A state of recurrent layers as the books have it: in which slot, after which token, and what it is worth.

Knows slots, ids of blocks and numbers of tokens; it knows no requests.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...radix import Match


@dataclass(slots=True, eq=False)
class KeptState:
    """A state that belongs to a block.

    Attributes:
        num_tokens: from the root on.
        before: the last one on its path when it was kept.
        num_uses: requests that have resumed there, or are known to want to; 0: only kept because there is room.
        floor: the highest rank that had been evicted when it was last used.
        is_end: a request ended here, and none has resumed here yet.
        is_kept: it was not given up.
    """

    slot: int
    num_tokens: int
    before: KeptState | None
    num_uses: int
    floor: float
    is_end: bool
    is_kept: bool = True

    def rank(self) -> float:
        """What would have to be computed without it, in tokens, times its uses, plus the floor when last used.

        `before` is moved on to the last state that was not given up.
        """
        before = self.before
        while before is not None and not before.is_kept:
            before = before.before
        self.before = before
        return self.floor + self.num_uses * (self.num_tokens - (0 if before is None else before.num_tokens))


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A state: after `num_tokens` tokens, of which the last is in `block`."""

    num_tokens: int
    block: int
    slot: int


@dataclass(frozen=True, slots=True)
class StatePoint:
    """Where a step writes the state after `num_tokens` tokens of a request."""

    num_tokens: int
    slot: int


class LostStates:
    """Where states were that have made room for others, as long as the blocks are there to which they belonged."""

    def __init__(self, block_size: int) -> None:
        self._by_block: dict[int, set[int]] = {}  # after how many tokens
        self._block_size = block_size

    def add(self, block: int, num_tokens: int) -> None:
        """A state after n tokens, of which the last is in this block, has made room."""
        self._by_block.setdefault(block, set()).add(num_tokens)

    def forget(self, block: int) -> None:
        """This block is free."""
        self._by_block.pop(block, None)

    def clear(self) -> None:
        """Nothing has been lost."""
        self._by_block.clear()

    def last_on(self, match: Match) -> int:
        """After how many tokens of a match the last one was; 0: there was none."""
        length = len(match.blocks) * self._block_size + match.num_partial_tokens
        for block in (match.partial_block, *reversed(match.blocks)):
            numbers = [number for number in self._by_block.get(block, ()) if number <= length]
            if numbers:
                return max(numbers)
        return 0
