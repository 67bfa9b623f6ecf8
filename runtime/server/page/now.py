"""What the server does at this moment: queue, rates, percentiles, pool, and what other pools would bring.

Percentiles are exact over the latest values (see `RecentValues`). What other pools would bring may cost a second of a
worker: it is found anew only for those who ask for it, at most every `WHAT_IF_SECONDS` and `SHARE` times as long as it
took, and is not waited for. So what is answered may be old; its age is said.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from ...cache.cache_report import OPTIMUM
from ...engine.recent_values import RecentValues
from ..metric_tables import Throughput
from ..service import Service

if TYPE_CHECKING:
    from .recent_requests import RecentRequests

WHAT_IF_SECONDS = 30.0
SHARE = 200
TTFT, GAPS = "time_to_first_token_seconds", "inter_token_latency_seconds"
MAX_MISSES = 20
GAP_SECONDS = 10.0  # after so long without a poll a rate would be the average of a time that no one looked at
logger = logging.getLogger("phloem.server")


class Now:
    """What `GET /page/now` answers. Each time it is asked for counts for the next (rates)."""

    def __init__(self, service: Service, requests: RecentRequests) -> None:
        self._service = service
        self._requests = requests
        service.metrics.recent |= {TTFT: RecentValues(), GAPS: RecentValues()}
        self._output, self._prompt = Throughput(), Throughput()
        self._rated_at = float("-inf")
        self._what_if: tuple[dict[str, Any], float] | None = None  # and when it was found
        self._asking: asyncio.Task[None] | None = None
        self._due_at = 0.0

    def as_data(self, *, asks_what_if: bool) -> dict[str, Any]:
        """For JSON. asks_what_if: what other pools would bring is found anew, if it is time."""
        if asks_what_if:
            self._ask_what_if()
        service = self._service
        found = service.async_engine.statistics()
        recent = service.metrics.recent
        num_computed = found.prompt_tokens - found.cached_tokens
        _, (median, slowest) = service.engine.step_thread.step_seconds.percentiles((50, 99))
        return {
            "time": time.monotonic(),
            "queue": found.num_waiting,
            "running": found.num_running,
            "seats": found.max_running_requests,
            "step_ms": {"p50": _ms(median), "p99": _ms(slowest)},
            "tokens_per_second": self._rates(found.completion_tokens, num_computed),
            "ttft_ms": _percentiles(recent[TTFT]),
            "inter_token_ms": _percentiles(recent[GAPS]),
            "pool": {
                "num_blocks": found.num_blocks,
                "free": found.num_free_blocks,
                "leased": found.num_cached_blocks - found.num_evictable_blocks,
                "cached": found.num_cached_blocks,
                "pinned": found.num_pinned_blocks,
            },
            "tiers": [{"name": name, "bytes": size} for name, size in found.tier_bytes.items()],
            "preemptions": found.num_preemptions,
            "hit_rate": round(found.hit_rate, 4),
            "evictions": found.num_evicted_blocks,
            "prompt_tokens": found.prompt_tokens,
            "cached_tokens": found.cached_tokens,
            "generated_tokens": found.completion_tokens,
            "jumped_tokens": found.jumped_tokens,
            "drafts": [
                {"by": source, "drafted": num_drafted, "right": found.jumped_by.get(source, 0)}
                for source, num_drafted in found.drafted_by.items()
                if num_drafted
            ],
            "draft_model_rests": found.draft_model_rests,
            "what_if": self._what_if_now(),
            "misses": self._requests.misses(MAX_MISSES),
        }

    def _rates(self, num_output: int, num_computed: int) -> dict[str, float | None]:
        """Tokens per second; unknown at the first poll, and at the first one after a gap."""
        now = time.monotonic()
        is_first = now - self._rated_at > GAP_SECONDS
        self._rated_at = now
        if is_first:
            self._output, self._prompt = Throughput(num_tokens=num_output), Throughput(num_tokens=num_computed)
            return {"output": None, "prompt": None}
        return {"output": round(self._output.at(num_output), 1), "prompt": round(self._prompt.at(num_computed), 1)}

    def _what_if_now(self) -> dict[str, Any] | None:
        if self._what_if is None:
            return None
        found, found_at = self._what_if
        return {"seconds_ago": round(time.monotonic() - found_at, 3), **found}

    def _ask_what_if(self) -> None:
        if time.monotonic() >= self._due_at and (self._asking is None or self._asking.done()):
            self._asking = asyncio.get_running_loop().create_task(self._find_what_if())

    async def _find_what_if(self) -> None:
        asked_at = time.monotonic()
        try:
            report = await self._service.cache_report(WHAT_IF_SECONDS)
        except Exception:  # the engine has stopped, or its workers are busy: the next one may be found
            logger.debug("there is no report of the cache for the page", exc_info=True)
            return
        finally:
            now = time.monotonic()
            self._due_at = now + max(WHAT_IF_SECONDS, SHARE * (now - asked_at))
        entries, policy = report["what_if"], report["eviction_policy"]
        found = {
            "sizes": [
                {"num_blocks": entry["num_blocks"], "hit_rate": round(entry["hit_rate"], 4)}
                for entry in entries
                if entry["policy"] == policy
            ],
            "policies": [
                {"name": entry["policy"], "hit_rate": round(entry["hit_rate"], 4)}
                for entry in sorted(entries, key=lambda entry: entry["policy"] == OPTIMUM)
                if entry["share"] == 1.0
            ],
        }
        self._what_if = found, self._service.reported_at


def _percentiles(values: RecentValues) -> dict[str, float | int | None]:
    num, (median, late, latest) = values.percentiles((50, 95, 99))
    return {"p50": _ms(median), "p95": _ms(late), "p99": _ms(latest), "n": num}


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
