"""What stands on `/metrics` under which name: the engine's gauges and counters, and the histograms of requests.

With `metric_names="vllm"` or `"sglang"` the same values also appear under these servers' names, with the label
`model_name`, so that the dashboards that they publish show them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

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
    ("recoveries", "How often the engine went on after an exception in it.", lambda s: s.num_recoveries),
    ("failed_outputs", "Outputs that an exception in the engine has ended.", lambda s: s.num_failed),
    ("kv_blocks_stored", "Blocks that were copied to a tier below the pool.", lambda s: s.num_stored_blocks),
    ("kv_blocks_loaded", "Blocks that were read back.", lambda s: s.num_loaded_blocks),
    ("kv_blocks_unstored", "Blocks that were not copied, since too many waited.", lambda s: s.num_unstored_blocks),
    ("kv_tier_faults", "Failures below the pool; each was a miss.", lambda s: s.num_tier_faults),
    ("kv_blocks_evicted", "Cached blocks that made room for others.", lambda s: s.num_evicted_blocks),
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
SECONDS_BUCKETS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
)
TOKENS_BUCKETS = tuple(digit * 10.0**power for power in range(6) for digit in (1, 2, 5))
HISTOGRAMS = (
    ("time_to_first_token_seconds", "From a request's arrival to its first token.", TTFT_BUCKETS),
    ("inter_token_latency_seconds", "Between two deltas of one output.", ITL_BUCKETS),
    ("e2e_request_latency_seconds", "From a request's arrival to the end of an output.", E2E_BUCKETS),
    ("request_queue_time_seconds", "Time an output's request waited before it was first scheduled.", SECONDS_BUCKETS),
    ("request_prefill_time_seconds", "Of an output, from its admission to its first token.", SECONDS_BUCKETS),
    ("request_decode_time_seconds", "Of an output, from its first token to its last.", SECONDS_BUCKETS),
    ("request_prompt_tokens", "Tokens of the prompt of an output.", TOKENS_BUCKETS),
    ("request_generation_tokens", "Tokens of an output.", TOKENS_BUCKETS),
    ("request_max_num_generation_tokens", "Tokens of the longest output of a request.", TOKENS_BUCKETS),
)
# which of them these servers have, under the same names
KNOWN_HISTOGRAMS: Mapping[MetricNames, frozenset[str]] = {
    "phloem": frozenset(),
    "vllm": frozenset(name for name, _, _ in HISTOGRAMS),
    "sglang": frozenset(("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds")),
}
THROUGHPUT_SECONDS = 10.0  # over at least so long it is averaged, if there was somebody to ask


class Throughput:
    """Tokens generated per second, between now and an earlier time that somebody asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: deque[tuple[float, int]] = deque([(clock(), 0)], maxlen=1024)  # when, and the tokens so far

    def at(self, num_tokens: int) -> float:
        """The rate up to now, when `num_tokens` have been generated."""
        now = self._clock()
        while len(self._asked) > 1 and self._asked[1][0] <= now - THROUGHPUT_SECONDS:
            self._asked.popleft()
        then, before = self._asked[0]
        self._asked.append((now, num_tokens))
        return max(0, num_tokens - before) / (now - then) if now > then else 0.0


class EngineCollector(Collector):
    """Reads the engine's statistics whenever it is scraped."""

    def __init__(self, statistics: Callable[[], EngineStatistics], settings: ServerSettings) -> None:
        self._statistics = statistics
        self._names = settings.metric_names
        self._throughput = Throughput()
        self._model = settings.model_name
        self._gauges, self._counters = ALIASES[settings.metric_names]

    def collect(self) -> Iterable[Metric]:
        statistics = self._statistics()
        for name, text, read in GAUGES:
            yield GaugeMetricFamily(f"phloem_{name}", text, value=read(statistics))
        for name, text, read in COUNTERS:
            yield CounterMetricFamily(f"phloem_{name}", text, value=read(statistics))
        for name, read in self._gauges:
            gauge = GaugeMetricFamily(
                name, f"The value that {self._names} reports under this name.", labels=["model_name"]
            )
            gauge.add_metric([self._model], read(statistics))
            yield gauge
        for name, read in self._counters:
            counter = CounterMetricFamily(
                name, f"The value that {self._names} reports under this name.", labels=["model_name"]
            )
            counter.add_metric([self._model], read(statistics))
            yield counter
        if self._names == "sglang":
            gauge = GaugeMetricFamily("sglang:gen_throughput", "Generated tokens per second.", labels=["model_name"])
            gauge.add_metric([self._model], self._throughput.at(statistics.completion_tokens))
            yield gauge
        if self._names == "vllm":
            tokens = HistogramMetricFamily(
                "vllm:iteration_tokens_total", "Tokens computed per engine step.", labels=["model_name"]
            )
            steps = [("+Inf", float(statistics.num_steps))]  # only their number and sum are known
            tokens.add_metric([self._model], steps, statistics.num_computed_tokens)
            yield tokens
