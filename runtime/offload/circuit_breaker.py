"""A circuit breaker: what has failed is left alone for a while, then tried again (Nygard, Release It!, 2007).

::

    closed ── a failure ──► open: nothing is tried, for 1 s, 2 s, 4 s … 30 s ──► half open: one try
       ▲                                 ▲                                          │ fails
       └────────── a success ────────────┴──────────────────────────────────────────┘

Thread-safe. Knows a clock, and not what is tried.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

SHORTEST, LONGEST = 1.0, 30.0


class Breaker:
    """Args: clock: seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._pause = 0.0
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        """Whether nothing is to be tried now."""
        return self._pause > 0 and self._clock() < self._until

    def succeed(self) -> None:
        """A try has succeeded."""
        with self._lock:
            self._pause = 0.0

    def fail(self) -> None:
        """A try has failed. Of several that fail at once, one counts."""
        with self._lock:
            if not self.is_open:
                self._pause = min(LONGEST, 2 * self._pause or SHORTEST)
                self._until = self._clock() + self._pause
