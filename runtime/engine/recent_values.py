"""The latest values of something that is measured, for their percentiles.

Exact over what is kept: at most `most` values, the newest, of the last `seconds`. One thread adds, any reads: a value
that is added meanwhile may be missing from what is read. Cost: a look at the clock and two numbers per value; reading
sorts them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

SECONDS = 180.0
MOST = 8192


class RecentValues:
    """A ring of values and of when they came.

    Args:
        clock: seconds that do not go back.
    """

    def __init__(self, seconds: float = SECONDS, most: int = MOST, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._values = np.zeros(most)
        self._came_at = np.full(most, -np.inf)
        self._next = 0

    def add(self, value: float) -> None:
        """It came just now."""
        place = self._next
        self._values[place], self._came_at[place] = value, self._clock()
        self._next = (place + 1) % len(self._values)

    def kept(self) -> npt.NDArray[np.float64]:
        """The values that still count, in ascending order."""
        return np.sort(self._values[self._came_at > self._clock() - self._seconds])

    def percentiles(self, shares: Sequence[int]) -> tuple[int, list[float | None]]:
        """How many values count, and for each of `shares` (percent) the smallest of them that as many do not exceed
        (nearest rank); None if there are none."""
        kept = self.kept()
        num = len(kept)
        places = [max(0, -(-num * share // 100) - 1) for share in shares]
        return num, [float(kept[place]) if num else None for place in places]
