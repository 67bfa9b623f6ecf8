"""Pins of an engine: prefixes that it keeps for a time, whether a request uses them or not; between two steps.

Knows the stepper, which puts everything in order after a fault, and the tree's own pins (`radix/pins.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...radix import Pin, pack
from ..cache.prefix_cache import PrefixCache
from ..schedule.rope_switch import RopeSwitch
from .stepper import Stepper

RETRY_SECONDS = 1.0


class Pins:
    """Those of one core. For the thread that steps it."""

    def __init__(
        self, stepper: Stepper, prefix_cache: PrefixCache, rope_switch: RopeSwitch, clock: Callable[[], float]
    ) -> None:
        self._stepper = stepper
        self._prefix_cache = prefix_cache
        self._rope_switch = rope_switch
        self._clock = clock

    def add(self, token_ids: Sequence[int], ttl: float, namespace: str) -> Pin:
        """Keeps what is cached of a prefix for `ttl` seconds; see `Engine.pin`. namespace: as the factory writes it."""
        tokens, kept = pack(token_ids), self._rope_switch.namespace(token_ids, namespace)
        return self._stepper.guard(lambda: self._prefix_cache.tree.pins.add(tokens, ttl, kept))

    def end(self, pin: Pin) -> bool:
        """Ends a pin; False if it held nothing or was given up already."""
        return self._stepper.guard(lambda: self._prefix_cache.tree.pins.end(pin))

    def end_expired(self) -> float:
        """Ends the pins whose time is over; returns the seconds until the next one's will be (or inf)."""
        try:
            self._stepper.guard(lambda: self._prefix_cache.tree.pins.end_expired())
            return self._prefix_cache.tree.pins.next_expiry - self._clock()
        except Exception:  # a pin that lasts a little longer costs no request its answer
            return RETRY_SECONDS
