"""Whether the server takes requests, and how many it is working on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

Phase = Literal["starting", "ready", "draining"]


class Lifecycle:
    """starting → ready → draining. Belongs to the event loop's thread (`drain` may be called from a signal handler)."""

    def __init__(self) -> None:
        self.phase: Phase = "starting"
        self.num_active = 0

    @property
    def is_ready(self) -> bool:
        return self.phase == "ready"

    def open(self) -> None:
        self.phase = "ready"

    def drain(self) -> None:
        """No new requests from now on; running ones go on."""
        self.phase = "draining"

    @contextmanager
    def track(self) -> Iterator[None]:
        """Counts a request as active for the length of the block."""
        self.num_active += 1
        try:
            yield
        finally:
            self.num_active -= 1
