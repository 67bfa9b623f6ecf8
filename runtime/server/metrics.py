"""`/metrics` in Prometheus' format, from a registry of its own for every application.

Counters and gauges of the engine are read when scraped; latencies are observed as answers go out. With
`metric_names="vllm"` or `"sglang"` the same values also appear under these servers' names, for existing dashboards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import Scope

from ..request import FinishReason
from ..statistics import EngineStatistics
from .settings import MetricNames, ServerSettings

TTFT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ITL_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
E2E_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

Reading = Callable[[EngineStatistics], float]

GAUGES: Sequence[tuple[str, str, Reading]] = (
    ("running_requests", "Requests in the current batch.", lambda s: s.num_running),
    ("waiting_requests", "Requests in the queue.", lambda s: s.num_waiting),
    ("kv_blocks", "Size of the KV pool in blocks.", lambda s: s.num_blocks),
    ("kv_blocks_free", "Blocks that nothing uses.", lambda s: s.num_free_blocks),
    ("kv_blocks_cached", "Blocks of the prefix tree.", lambda s: s.num_cached_blocks),
    ("kv_blocks_evictable", "Blocks of the prefix tree that no request holds.", lambda s: s.num_evictable_blocks),
    ("kv_blocks_held", "Blocks that running requests own.", lambda s: s.num_held_blocks),
    ("kv_host_bytes", "KV in host memory below the pool.", lambda s: s.host_bytes),
    ("kv_disk_bytes", "The folder of KV on disk.", lambda s: s.disk_bytes),
)
COUNTERS: Sequence[tuple[str, str, Reading]] = (
    ("prompt_tokens", "Tokens of the prompts of admitted requests.", lambda s: s.prompt_tokens),
    ("cached_tokens", "Prompt tokens that came from the prefix cache.", lambda s: s.cached_tokens),
    ("loaded_tokens", "Cached tokens that were read from a tier below the pool.", lambda s: s.loaded_tokens),
    ("completion_tokens", "Generated tokens.", lambda s: s.completion_tokens),
    ("drafted_tokens", "Tokens proposed by drafts.", lambda s: s.drafted_tokens),
    ("jumped_tokens", "Drafted tokens that were accepted.", lambda s: s.jumped_tokens),
    ("computed_tokens", "Tokens whose KV was computed.", lambda s: s.num_computed_tokens),
    ("steps", "Steps of the engine.", lambda s: s.num_steps),
    ("steps_ahead", "Steps whose forward was queued before the step before was read.", lambda s: s.num_ahead),
    ("preemptions", "How often a running request gave its blocks back.", lambda s: s.num_preemptions),
    ("kv_blocks_stored", "Blocks that were copied to a tier below the pool.", lambda s: s.num_stored_blocks),
    ("kv_blocks_loaded", "Blocks that were read back.", lambda s: s.num_loaded_blocks),
    ("kv_blocks_unstored", "Blocks that were not copied, since too many waited.", lambda s: s.num_unstored_blocks),
    ("kv_tier_faults", "Failures below the pool; each was a miss.", lambda s: s.num_tier_faults),
    ("pins_given_up", "Pins that ended early to make room for a request.", lambda s: s.num_pins_given_up),
)


def _usage(s: EngineStatistics) -> float:
    return (s.num_blocks - s.num_free_blocks - s.num_evictable_blocks) / max(1, s.num_blocks)


# other servers' names → ours: (gauges, counters)
ALIASES: dict[MetricNames, tuple[Sequence[tuple[str, Reading]], Sequence[tuple[str, Reading]]]] = {
    "phloem": ((), ()),
    "vllm": (
        (
            ("vllm:num_requests_running", lambda s: s.num_running),
            ("vllm:num_requests_waiting", lambda s: s.num_waiting),
            ("vllm:kv_cache_usage_perc", _usage),
        ),
        (
            ("vllm:prompt_tokens", lambda s: s.prompt_tokens),
            ("vllm:generation_tokens", lambda s: s.completion_tokens),
            ("vllm:prefix_cache_queries", lambda s: s.prompt_tokens),
            ("vllm:prefix_cache_hits", lambda s: s.cached_tokens),
            ("vllm:num_preemptions", lambda s: s.num_preemptions),
        ),
    ),
    "sglang": (
        (
            ("sglang:num_running_reqs", lambda s: s.num_running),
            ("sglang:num_queue_reqs", lambda s: s.num_waiting),
            ("sglang:token_usage", _usage),
            ("sglang:cache_hit_rate", lambda s: s.hit_rate),
        ),
        (
            ("sglang:prompt_tokens", lambda s: s.prompt_tokens),
            ("sglang:generation_tokens", lambda s: s.completion_tokens),
            ("sglang:cached_tokens", lambda s: s.cached_tokens),
            ("sglang:num_retracted_requests", lambda s: s.num_preemptions),
        ),
    ),
}
LATENCIES = (
    ("time_to_first_token_seconds", "From a request's arrival to its first token.", TTFT_BUCKETS),
    ("inter_token_latency_seconds", "Between two deltas of one output.", ITL_BUCKETS),
    ("e2e_request_latency_seconds", "From a request's arrival to its end.", E2E_BUCKETS),
)


class EngineCollector(Collector):
    """Reads the engine's statistics whenever it is scraped."""

    def __init__(self, statistics: Callable[[], EngineStatistics], settings: ServerSettings) -> None:
        self._statistics = statistics
        self._model = settings.model_name
        self._gauges, self._counters = ALIASES[settings.metric_names]

    def collect(self) -> Iterable[Metric]:
        statistics = self._statistics()
        for name, text, read in GAUGES:
            yield GaugeMetricFamily(f"phloem_{name}", text, value=read(statistics))
        for name, text, read in COUNTERS:
            yield CounterMetricFamily(f"phloem_{name}", text, value=read(statistics))
        for name, read in self._gauges:
            gauge = GaugeMetricFamily(name, "See the metric of phloem's own name.", labels=["model_name"])
            gauge.add_metric([self._model], read(statistics))
            yield gauge
        for name, read in self._counters:
            counter = CounterMetricFamily(name, "See the metric of phloem's own name.", labels=["model_name"])
            counter.add_metric([self._model], read(statistics))
            yield counter


class Metrics:
    """What one application counts."""

    def __init__(self, statistics: Callable[[], EngineStatistics], settings: ServerSettings) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(EngineCollector(statistics, settings))
        self._http = Counter(
            "phloem_http_requests",
            "Answers by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._finished = Counter(
            "phloem_finished_outputs", "Outputs by why they ended.", ["reason"], registry=self.registry
        )
        prefixes = ["phloem_"] if settings.metric_names == "phloem" else ["phloem_", f"{settings.metric_names}:"]
        self._ttft, self._itl, self._e2e = (
            [Histogram(prefix + name, text, buckets=buckets, registry=self.registry) for prefix in prefixes]
            for name, text, buckets in LATENCIES
        )

    def count_http(self, scope: Scope, status: int) -> None:
        """Labels are routes, not paths: their number is bounded."""
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in ("GET", "POST", "OPTIONS") else "other"
        self._http.labels(method, route, str(status)).inc()

    def clock(self) -> RequestClock:
        return RequestClock(self._ttft, self._itl, self._e2e, self._finished)

    def render(self) -> bytes:
        return generate_latest(self.registry)


class RequestClock:
    """The latencies of one HTTP request, from its making on."""

    def __init__(self, ttft: list[Histogram], itl: list[Histogram], e2e: list[Histogram], finished: Counter) -> None:
        self._ttft, self._itl, self._e2e, self._finished = ttft, itl, e2e, finished
        self._started_at = time.perf_counter()
        self._last_at: dict[int, float] = {}

    def tick(self, output: int, reason: FinishReason | None) -> None:
        """A delta of output `output` arrived."""
        now = time.perf_counter()
        last_at = self._last_at.get(output)
        histograms, since = (self._ttft, self._started_at) if last_at is None else (self._itl, last_at)
        for histogram in histograms:
            histogram.observe(now - since)
        self._last_at[output] = now
        if reason is not None:
            self._finished.labels(reason.value).inc()

    def end(self) -> None:
        """Everything was answered."""
        for histogram in self._e2e:
            histogram.observe(time.perf_counter() - self._started_at)
