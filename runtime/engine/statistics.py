"""What an engine has done and how full it is: plain numbers, and the sums from which they are made.

Knows finished requests; it knows no tensors. Cost: a few additions per finished request.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..request import Phase, Request


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """State of queue and pool now, and counters since start or since they were set to zero. Tokens count as they come:
    those of prompts when a request is admitted, those of outputs with every step.

    `num_ahead` of the `num_steps` had their forward queued before the step before was read. After an exception in the
    engine the requests that it does not concern go on: `num_recoveries` times; `num_failed` requests were ended by one.
    `loaded_tokens` of the `cached_tokens` were read from a tier below the pool. What became of blocks there: copied
    to it, read back, not copied since too many waited; failures; `tier_bytes`, what each of them holds, by its name, as
    far as this process knows (`TierStatistics`). Batches of KV events that were published, and that were dropped since
    too many waited.

    `num_waiting_tokens`: tokens of the requests in the queue, cached or not. `running_adapters`, `waiting_adapters`:
    names of the adapters of requests in the batch and in the queue, sorted. All three, like the counters of tokens,
    leave out probes (`RequestOptions.is_probe`).

    `max_running_requests`: how many may run at a time, which may be less than the setting of that name: a step of few
    tokens, or a memory of few states of recurrent layers, has room for fewer.

    `drafted_by`, `jumped_by`: `drafted_tokens` and `jumped_tokens` by what drafted them (`speculate.draft_counts`).
    `draft_model_rests`: there is a draft model, and of late its drafts would have cost more than they save.
    """

    num_running: int
    num_waiting: int
    num_blocks: int
    block_size: int
    num_free_blocks: int
    num_cached_blocks: int
    num_evictable_blocks: int
    num_pinned_blocks: int
    num_steps: int
    num_ahead: int
    num_forwards: int
    num_computed_tokens: int
    num_preemptions: int
    num_pins_given_up: int
    num_finished: int
    num_recoveries: int
    num_failed: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    drafted_tokens: int
    jumped_tokens: int
    loaded_tokens: int = 0
    num_stored_blocks: int = 0
    num_loaded_blocks: int = 0
    num_unstored_blocks: int = 0
    num_tier_faults: int = 0
    num_evicted_blocks: int = 0
    num_event_batches: int = 0
    num_dropped_event_batches: int = 0
    tier_bytes: Mapping[str, int] = field(default_factory=dict)
    num_waiting_tokens: int = 0
    running_adapters: tuple[str, ...] = ()
    waiting_adapters: tuple[str, ...] = ()
    drafted_by: Mapping[str, int] = field(default_factory=dict)
    jumped_by: Mapping[str, int] = field(default_factory=dict)
    max_running_requests: int = 0
    draft_model_rests: bool = False

    def since(self, begin: EngineStatistics) -> EngineStatistics:
        """The same state, with what has been counted since `begin`."""
        counted: dict[str, Any] = {name: getattr(self, name) - getattr(begin, name) for name in COUNTED}
        for name in COUNTED_BY:
            before = getattr(begin, name)
            counted[name] = {key: number - before.get(key, 0) for key, number in getattr(self, name).items()}
        return replace(self, **counted)

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that came from the cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def num_held_blocks(self) -> int:
        """Blocks that running requests own, outside the tree."""
        return self.num_blocks - self.num_free_blocks - self.num_cached_blocks

    @property
    def num_used_tokens(self) -> int:
        """Size in tokens of the blocks that running requests and pins hold. The rest of the pool is free, or is evicted
        as soon as a request needs it."""
        num_used = self.num_blocks - self.num_free_blocks - self.num_evictable_blocks
        return max(0, num_used) * self.block_size  # the two may have been read while a step moved blocks

    @property
    def num_pool_tokens(self) -> int:
        """Size of the pool in tokens."""
        return self.num_blocks * self.block_size

    @property
    def usage(self) -> float:
        """Share of the pool that running requests and pins hold."""
        return self.num_used_tokens / max(1, self.num_pool_tokens)


@dataclass(frozen=True, slots=True)
class KeptBytes:
    """What an engine remembers between requests besides KV, in bytes. Each has a bound at which the oldest goes.

    Attributes:
        replies: token ids of replies, for chats (`EngineConfig.reply_memory_bytes`).
        traffic: token ids of recent requests, for the what-if of `cache_report` (8 MiB, 2,000 requests).
        constraints: compiled constraints and their mask rows (the compiler's bounds).
        sampling_tables: mask rows on the device (64 MiB), and a row for each running request that edits its logits.
        prompt_scores: log-probabilities of cached prompts (4 bytes per token of the pool), alternatives (16 MiB).
    """

    replies: int
    traffic: int
    constraints: int
    sampling_tables: int
    prompt_scores: int

    @property
    def total(self) -> int:
        return self.replies + self.traffic + self.constraints + self.sampling_tables + self.prompt_scores


class Totals:
    """Usage summed over requests: those that have ended, and those under way as far as they have come. Thread-safe.

    The sums never fall, however a request ends; a request counts from its admission on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._under_way: set[Request] = set()
        self._ended = dict.fromkeys(SUMMED, 0)
        self._num_ended = 0

    def begin(self, request: Request) -> None:
        """A request has come into the queue. A probe is not counted."""
        if request.is_probe:
            return
        with self._lock:
            self._under_way.add(request)

    def end(self, request: Request) -> None:
        """It has ended; counts nothing if it has not begun, or was ended before."""
        with self._lock:
            if request not in self._under_way:
                return
            self._under_way.remove(request)
            self._num_ended += 1
            _add(self._ended, request)

    def read(self) -> tuple[int, dict[str, int]]:
        """How many have ended, and the sums of all, by the names in `SUMMED`. O(requests under way)."""
        with self._lock:
            sums = dict(self._ended)
            for request in self._under_way:
                _add(sums, request)
            return self._num_ended, sums

    def waiting(self) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
        """Tokens of requests in the queue; names of the adapters of running and of waiting requests, sorted.
        O(requests under way)."""
        num_tokens, adapters = 0, {Phase.RUNNING: set[str](), Phase.WAITING: set[str]()}
        with self._lock:
            for request in self._under_way:
                phase = request.phase
                if phase is Phase.WAITING:
                    num_tokens += request.num_tokens
                if request.adapter is not None and phase is not Phase.FINISHED:
                    adapters[phase].add(request.adapter.name)
        return num_tokens, tuple(sorted(adapters[Phase.RUNNING])), tuple(sorted(adapters[Phase.WAITING]))


SUMMED = ("prompt_tokens", "cached_tokens", "loaded_tokens", "completion_tokens", "drafted_tokens", "jumped_tokens")
COUNTED = (  # fields that only grow: `since` subtracts them
    *SUMMED,
    "num_steps",
    "num_ahead",
    "num_forwards",
    "num_computed_tokens",
    "num_preemptions",
    "num_pins_given_up",
    "num_finished",
    "num_recoveries",
    "num_failed",
    "num_stored_blocks",
    "num_loaded_blocks",
    "num_unstored_blocks",
    "num_tier_faults",
    "num_evicted_blocks",
    "num_event_batches",
    "num_dropped_event_batches",
)
COUNTED_BY = ("drafted_by", "jumped_by")  # the same, by name


def _add(sums: dict[str, int], request: Request) -> None:
    """Adds what a request has used, if it was admitted."""
    if request.admitted_before:
        for name in SUMMED:
            sums[name] += getattr(request.usage, name)
