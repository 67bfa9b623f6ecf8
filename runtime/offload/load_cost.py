"""Whether reading KV back pays: what it takes compared with computing it again, both as measured while the engine runs.

Computing is measured in seconds per floating-point operation (`prefill_cost`), reading in seconds per block, for each
tier: averages that forget. What was never measured is tried. A tier that does not pay is not tried, so nothing new is
heard of it; so with every refusal it is believed to be a little faster, until it is tried again: one slow moment of a
disk does not shut it off for ever.

Where an engine is there for what others have computed (`role="decode"`), nothing is weighed: it reads what there is.

Knows no keys and no requests. Read and written by several threads, a number at a time.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..execute.prefill_cost import PrefillCost
from ..moving_average import moved

FORGET = 0.2  # of an average, with each measurement
HOPE = 0.98  # of what a tier is believed to take, after each refusal


class LoadCost:
    """Running averages.

    Args:
        always: whether reading is taken to pay, whatever was measured.

    Attributes:
        prefill: what computing takes.
        seconds_per_block: of reading, by the name of the tier; none for what was not measured yet.
    """

    def __init__(self, prefill: PrefillCost, *, always: bool = False) -> None:
        self.prefill = prefill
        self._always = always
        self.seconds_per_block: dict[str, float] = {}

    def observe_load(self, tier: str, num_blocks: int, seconds: float) -> None:
        """Records that reading `num_blocks` from a tier took `seconds`."""
        if num_blocks:
            self.seconds_per_block[tier] = moved(self.seconds_per_block.get(tier), seconds / num_blocks, FORGET)

    def pays(self, num_blocks: Mapping[str, int], start: int, end: int) -> bool:
        """Whether it pays to read `num_blocks` from each tier, so that tokens [start, end) need not be computed."""
        if self._always or self.prefill.seconds_per_operation is None:
            return True
        loading = sum(number * self.seconds_per_block.get(tier, 0.0) for tier, number in num_blocks.items())
        if loading <= self.prefill.seconds(start, end):
            return True
        for tier, number in num_blocks.items():
            if number and tier in self.seconds_per_block:
                self.seconds_per_block[tier] *= HOPE
        return False
