"""What requests will do to the pool, as far as it is known or forecast, and whether there is room for that.

Knows requests, the forecast and the prefix cache; it knows no lines.
"""

from __future__ import annotations

from dataclasses import replace

from ..cache.prefix_cache import PrefixCache
from ..kv_compress.budget import most_kept
from ..request import Request
from .admission import Outlook, OutputForecast, peak_demand
from .candidate import Candidate
from .detours import Detours
from .sharing import num_sole_blocks
from .waiting_line import Waiting


class Outlooks:
    """Those of the requests of one scheduler."""

    def __init__(self, prefix_cache: PrefixCache, forecast: OutputForecast, detours: Detours) -> None:
        self._prefix_cache = prefix_cache
        self._forecast = forecast
        self._detours = detours

    def has_room(self, outlooks: list[Outlook]) -> bool:
        """Whether all of them can grow to their expected ends, and what detours have left in the tree can stay."""
        room = self._prefix_cache.supply.num_available_blocks - peak_demand(outlooks, self._prefix_cache.block_size)
        fits_windows = self._prefix_cache.slots.fits_windows(one.own for one in outlooks)
        return room >= 0 and self._detours.fit(room) and fits_windows

    def of(self, request: Request) -> Outlook:
        remaining = request.remaining_tokens
        if not request.length_is_known:
            remaining = self._forecast.remaining(request.num_output_tokens, request.max_tokens)
        num_held = len(request.blocks) * self._prefix_cache.block_size
        missing = request.num_tokens - request.num_dropped_tokens - num_held
        sole = num_sole_blocks(self._prefix_cache, request)
        returned = 0 if request in self._detours else sole
        most = most_kept(request)
        if most is not None and missing + remaining > most - num_held:
            return Outlook(remaining, most - num_held, returned, grows=False)
        grown = -(-(missing + remaining) // self._prefix_cache.block_size)
        return Outlook(remaining, missing, returned, own=sole + grown)

    def of_candidate(self, candidate: Candidate) -> Outlook:
        """What a request on a detour computes is to stay until the walk comes by."""
        outlook = self.of(candidate.request)
        return replace(outlook, returned=0) if candidate.passed else outlook

    def place_for_one(self, passed: list[Waiting]) -> list[Outlook]:
        """The longest that one of those passed may grow: there is to be room for them, one after the other."""
        longest = max(passed, key=lambda entry: entry.request.num_tokens + entry.request.max_tokens, default=None)
        return [] if longest is None else [self.of(longest.request)]
