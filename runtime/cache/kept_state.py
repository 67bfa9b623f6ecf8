"""A state of recurrent layers as the books have it: in which slot, after which token, and what it is worth.

Knows slots and numbers of tokens; it knows no blocks and no requests.
"""

from __future__ import annotations

from dataclasses import dataclass

NONE = -1  # the slot of a request before its first token: all zeros


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
