"""Why a request finds no more in the cache than it does: tokens by cause, for requests that ask (`explain_cache`).

Three records say what was there once: the tree's ghosts, that something was evicted after a match, and when; recent
traffic, how far that went; texts of requests that had dropped keys, what was computed and not kept. What is there
and of no use is found by asking as a lease does. Knows requests, the tree and what layers need besides keys; it leases
nothing. Cost: one walk, and a comparison with each request on record.
"""

from __future__ import annotations

from dataclasses import replace

from ...radix import Explanation, pack
from ..offload.loads import Loads
from ..request import Request
from .block_supply import BlockSupply
from .cache_explanation import FoundPrefix
from .dropped_texts import DroppedTexts
from .prefix_view import match_limit
from .slot import NO_SLOT
from .slot_books import SlotBooks
from .traffic_record import TrafficRecord


class Explainer:
    """Of one prefix cache.

    Args:
        supply: whose tree is asked.
        slots: what layers need besides the keys of all tokens.
        traffic: which prompts came before.
        dropped: texts whose keys a `kv_budget` dropped.
        loads: from tiers below the pool; None: there are none.
        looks_elsewhere: whether other namespaces are looked up too (`EngineConfig.explain_namespaces`).
    """

    def __init__(
        self,
        supply: BlockSupply,
        slots: SlotBooks,
        traffic: TrafficRecord,
        dropped: DroppedTexts,
        loads: Loads | None,
        *,
        looks_elsewhere: bool,
    ) -> None:
        self._supply = supply
        self._states = None if slots.states is None else slots.states.slots
        self._windows = slots.windows
        self._traffic = traffic
        self._dropped = dropped
        self._loads = loads
        self._looks_elsewhere = looks_elsewhere

    def explain(self, request: Request) -> FoundPrefix:
        """Where a lease of the request would end now, and why. With states or windows it counts as a use."""
        tokens, namespace = pack(request.token_ids[: match_limit(request)]), request.namespace
        found = self._supply.tree.explain(tokens, namespace, elsewhere_too=self._looks_elsewhere)
        unusable = 0 if self._loads is None else self._loads.num_unusable(request)
        found = replace(found, num_agreeing_tokens=max(found.num_agreeing_tokens, unusable))
        num_evicted = self._num_evicted(found, tokens, namespace)
        num_dropped = self._dropped.num_lost(tokens, namespace, found.num_agreeing_tokens)
        if self._states is not None:
            match = self._supply.tree.match(tokens, namespace)
            point = self._states.find(match.blocks, match.partial_block, match.num_partial_tokens)
            resumable, lost = 0 if point is None else point.num_tokens, self._states.lost.last_on(match)
            return FoundPrefix(found, resumable, "no_state", lost, num_evicted, num_dropped)
        if self._windows is not None:
            match = self._supply.tree.match(tokens, namespace)
            resumable = self._windows.find(match.blocks)
            if resumable == match.num_tokens and match.num_partial_tokens:
                has_slot = self._windows.slots.slot_of[match.partial_block] != NO_SLOT
                resumable += match.num_partial_tokens if has_slot else 0
            return FoundPrefix(found, resumable, "no_window", 0, num_evicted, num_dropped)
        return FoundPrefix(found, found.num_agreeing_tokens, None, 0, num_evicted, num_dropped)

    def _num_evicted(self, found: Explanation, tokens: bytes, namespace: str) -> int:
        """Tokens after those that agree that were in the tree once, if something was evicted there."""
        if found.evicted_at is None:
            return 0
        block = min(self._supply.tree.block_size, found.num_tokens - found.num_cached_tokens)
        end = max(found.num_cached_tokens + block, self._traffic.num_agreeing(tokens, namespace))
        return max(0, end - found.num_agreeing_tokens)
