"""Whether reading KV back pays: what it takes beside computing it again, both as measured while the engine runs.

Computing is measured in seconds per floating-point operation, on steps that compute prompts (`recompute_cost` counts
the operations of a block: they grow with what is before it); reading in seconds per block, for each tier. Both are
averages that forget. What was never measured is tried. A tier that does not pay is not tried, so nothing new is heard
of it; so with every refusal it is believed to be a little faster, until it is tried again: one slow moment of a disk
does not shut it off for ever.

Knows no keys and no requests. Read and written by several threads, a number at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

FORGET = 0.2  # of an average, with each measurement
HOPE = 0.98  # of what a tier is believed to take, after each refusal
FEWEST_TOKENS = 32  # in a step that tells what computing a prompt takes


class LoadCost:
    """Running averages.

    Args:
        block_cost: floating-point operations of the block that ends at a token; see `recompute_cost`.

    Attributes:
        seconds_per_operation: of computing prompts; None: not measured yet.
        seconds_per_block: of reading, by the name of the tier; none for what was not measured yet.
    """

    def __init__(self, block_cost: Callable[[int], float], block_size: int) -> None:
        self._block_cost = block_cost
        self._block_size = block_size
        self.seconds_per_operation: float | None = None
        self.seconds_per_block: dict[str, float] = {}

    def observe_step(self, extents: list[tuple[int, int]], seconds: float) -> None:
        """A step that has computed these tokens `[start, end)` of its requests took so long."""
        num_tokens = sum(end - start for start, end in extents)
        if num_tokens < max(FEWEST_TOKENS, 4 * len(extents)) or seconds <= 0.0:
            return  # it did little but decode: what it took says nothing of prompts
        operations = sum(
            (end - start) / self._block_size * self._block_cost(max(1, (start + end) // 2)) for start, end in extents
        )
        self.seconds_per_operation = _average(self.seconds_per_operation, seconds / max(operations, 1.0))

    def observe_load(self, tier: str, num_blocks: int, seconds: float) -> None:
        """Reading so many blocks from a tier took so long."""
        if num_blocks:
            self.seconds_per_block[tier] = _average(self.seconds_per_block.get(tier), seconds / num_blocks)

    def pays(self, num_blocks: Mapping[str, int], start: int) -> bool:
        """Whether it pays to read blocks, so many from each tier, that begin at token `start` of their prefix."""
        if self.seconds_per_operation is None:
            return True
        end = start + sum(num_blocks.values()) * self._block_size
        operations = sum(self._block_cost(at) for at in range(start + self._block_size, end + 1, self._block_size))
        loading = sum(number * self.seconds_per_block.get(tier, 0.0) for tier, number in num_blocks.items())
        if loading <= operations * self.seconds_per_operation:
            return True
        for tier, number in num_blocks.items():
            if number and tier in self.seconds_per_block:
                self.seconds_per_block[tier] *= HOPE
        return False


def _average(old: float | None, new: float) -> float:
    return new if old is None else old + FORGET * (new - old)
