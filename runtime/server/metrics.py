"""`/metrics` in Prometheus' format, from a registry of its own for every application.

Counters and gauges of the engine are read when scraped; what is known of single requests is observed as answers go out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from starlette.types import Scope

from ..config import EngineConfig
from ..engine.recent_values import RecentValues
from ..engine.statistics import EngineStatistics
from ..request import Delta, FinishReason
from .metric_tables import HISTOGRAMS, KNOWN_HISTOGRAMS, EngineCollector, Throughput
from .settings import ServerSettings


class Metrics:
    """What one application counts.

    Attributes:
        throughput: of the engine; each time it is asked for counts for the next.
        recent: the latest values of some histograms, by name: of none, until it is put there.
    """

    def __init__(
        self, statistics: Callable[[], EngineStatistics], config: EngineConfig, settings: ServerSettings
    ) -> None:
        self.registry = CollectorRegistry()
        self.throughput = Throughput()
        self.recent: dict[str, RecentValues] = {}
        self.registry.register(EngineCollector(statistics, config, settings, self.throughput))
        self._http = Counter(
            "phloem_http_requests",
            "Answers by route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._finished = Counter(
            "phloem_finished_outputs", "Outputs by why they ended.", ["reason"], registry=self.registry
        )
        self._success: Counter | None = None
        if settings.metric_names == "vllm":
            names = ["model_name", "finished_reason"]
            self._success = Counter(
                "vllm:request_success", "See phloem_finished_outputs.", names, registry=self.registry
            )
            for reason in FinishReason:
                self._success.labels(settings.model_name, reason.value)  # so that panels show zeros before the first
        self._model = settings.model_name
        self._histograms = {
            name: self._make_histograms(name, text, buckets, settings) for name, text, buckets in HISTOGRAMS
        }

    def _make_histograms(
        self, name: str, text: str, buckets: Sequence[float], settings: ServerSettings
    ) -> list[Histogram]:
        """One under our name, and one under the name that another server has for it."""
        own = Histogram(f"phloem_{name}", text, buckets=buckets, registry=self.registry)
        if name not in KNOWN_HISTOGRAMS[settings.metric_names]:
            return [own]
        foreign = f"{settings.metric_names}:{name}"
        other = Histogram(foreign, text, ["model_name"], buckets=buckets, registry=self.registry)
        return [own, other.labels(settings.model_name)]

    def count_http(self, scope: Scope, status: int) -> None:
        """Labels are routes, not paths: their number is bounded."""
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in ("GET", "POST", "OPTIONS") else "other"
        self._http.labels(method, route, str(status)).inc()

    def observe(self, name: str, value: float) -> None:
        """Adds a value to a histogram, under each of its names."""
        for histogram in self._histograms[name]:
            histogram.observe(value)
        if name in self.recent:
            self.recent[name].add(value)

    def count_finished(self, reason: FinishReason) -> None:
        """An output has ended."""
        self._finished.labels(reason.value).inc()
        if self._success is not None:
            self._success.labels(self._model, reason.value).inc()

    def render(self) -> bytes:
        return generate_latest(self.registry)


class RequestClock:
    """The times and tokens of one HTTP request, from its making on."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._started_at = time.monotonic()
        self._first_at: dict[int, float] = {}
        self._last_at: dict[int, float] = {}
        self._longest = 0

    def tick(self, output: int, delta: Delta) -> None:
        """A delta of output `output` arrived."""
        now = time.monotonic()
        if output not in self._first_at:
            self._first_at[output] = now
            self._metrics.observe("time_to_first_token_seconds", now - self._started_at)
        else:
            self._metrics.observe("inter_token_latency_seconds", now - self._last_at[output])
        self._last_at[output] = now
        if delta.finish_reason is not None:
            self._end_output(delta, now, self._first_at[output])

    def _end_output(self, delta: Delta, now: float, first_at: float) -> None:
        assert delta.finish_reason is not None
        observe, usage = self._metrics.observe, delta.usage
        self._metrics.count_finished(delta.finish_reason)
        if usage.admitted_at is not None:
            observe("request_queue_time_seconds", usage.queue_seconds)
            observe("request_prefill_time_seconds", max(0.0, first_at - usage.admitted_at))
            observe("request_decode_time_seconds", now - first_at)
        observe("e2e_request_latency_seconds", now - self._started_at)
        observe("request_prompt_tokens", usage.prompt_tokens)
        observe("request_generation_tokens", usage.completion_tokens)
        self._longest = max(self._longest, usage.completion_tokens)

    def end(self) -> None:
        """Everything was answered."""
        self._metrics.observe("request_max_num_generation_tokens", self._longest)
