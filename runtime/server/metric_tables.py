"""What stands on `/metrics` under which name: the engine's gauges and counters, and the histograms of requests.

With `metric_names="vllm"` or `"sglang"` the same values also appear under these servers' names, with the label
`model_name`, so that the dashboards that they publish show them, and the routers that score workers by them (SMG,
llm-d's endpoint picker, vLLM's production stack) find them, under names of older releases too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..config import EngineConfig
from ..engine.statistics import EngineStatistics
from .settings import MetricNames, ServerSettings

ITL_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
TTFT_BUCKETS = (*ITL_BUCKETS[1:], 10.0, 30.0, 60.0)
SECONDS_BUCKETS = (*TTFT_BUCKETS, 120.0, 300.0)
E2E_BUCKETS = SECONDS_BUCKETS[3:]  # from 0.01 on

Figure = Callable[[EngineStatistics], float]

GAUGES: Sequence[tuple[str, str, Figure]] = (
    ("running_requests", "Requests in the current batch.", lambda s: s.num_running),
    ("max_running_requests", "How many requests may run at a time.", lambda s: s.max_running_requests),
    ("waiting_requests", "Requests in the queue.", lambda s: s.num_waiting),
    ("waiting_tokens", "Tokens of the requests in the queue, cached or not.", lambda s: s.num_waiting_tokens),
    ("kv_blocks", "Size of the KV pool in blocks.", lambda s: s.num_blocks),
    ("kv_blocks_free", "Blocks that nothing uses.", lambda s: s.num_free_blocks),
    ("kv_blocks_cached", "Blocks of the prefix tree.", lambda s: s.num_cached_blocks),
    ("kv_blocks_evictable", "Blocks of the tree that no request and no pin holds.", lambda s: s.num_evictable_blocks),
    ("kv_blocks_pinned", "Blocks of the prefix tree that pins hold.", lambda s: s.num_pinned_blocks),
    ("kv_blocks_held", "Blocks that running requests own.", lambda s: s.num_held_blocks),
)
COUNTERS: Sequence[tuple[str, str, Figure]] = (
    ("prompt_tokens", "Tokens of the prompts of admitted requests.", lambda s: s.prompt_tokens),
    ("cached_tokens", "Prompt tokens that came from the prefix cache.", lambda s: s.cached_tokens),
    ("loaded_tokens", "Cached tokens that were read from a tier below the pool.", lambda s: s.loaded_tokens),
    ("completion_tokens", "Generated tokens.", lambda s: s.completion_tokens),
    ("computed_tokens", "Tokens whose KV was computed.", lambda s: s.num_computed_tokens),
    ("steps", "Steps of the engine.", lambda s: s.num_steps),
    ("steps_ahead", "Steps whose forward was queued before the step before was read.", lambda s: s.num_ahead),
    ("preemptions", "How often a running request gave its blocks back.", lambda s: s.num_preemptions),
    ("recoveries", "How often the engine went on after an exception in it.", lambda s: s.num_recoveries),
    ("failed_outputs", "Outputs that an exception in the engine has ended.", lambda s: s.num_failed),
    ("kv_blocks_stored", "Blocks that were copied to a tier below the pool.", lambda s: s.num_stored_blocks),
    ("kv_blocks_loaded", "Blocks that were read back.", lambda s: s.num_loaded_blocks),
    (
        "kv_blocks_unstored",
        "Blocks, and states and windows at their ends, that were not copied, since too many waited.",
        lambda s: s.num_unstored_blocks,
    ),
    ("kv_tier_faults", "Failures below the pool; each was a miss.", lambda s: s.num_tier_faults),
    ("kv_blocks_evicted", "Cached blocks that made room for others.", lambda s: s.num_evicted_blocks),
    ("kv_event_batches", "Batches of KV events that were published.", lambda s: s.num_event_batches),
    (
        "kv_event_batches_dropped",
        "Batches of KV events that were dropped, since too many waited.",
        lambda s: s.num_dropped_event_batches,
    ),
    (
        "pins_given_up",
        "Pins that ended early: to make room for a request, or lost in a fault.",
        lambda s: s.num_pins_given_up,
    ),
)


# other servers' names → ours: (gauges, counters)
ALIASES: dict[MetricNames, tuple[Sequence[tuple[str, Figure]], Sequence[tuple[str, Figure]]]] = {
    "phloem": ((), ()),
    "vllm": (
        (
            ("vllm:num_requests_running", lambda s: s.num_running),
            ("vllm:num_requests_waiting", lambda s: s.num_waiting),
            ("vllm:kv_cache_usage_perc", lambda s: s.usage),
            ("vllm:gpu_cache_usage_perc", lambda s: s.usage),
            ("vllm:gpu_prefix_cache_hit_rate", lambda s: s.hit_rate),
        ),
        (
            ("vllm:prompt_tokens", lambda s: s.prompt_tokens),
            ("vllm:generation_tokens", lambda s: s.completion_tokens),
            ("vllm:prefix_cache_queries", lambda s: s.prompt_tokens),
            ("vllm:prefix_cache_hits", lambda s: s.cached_tokens),
            ("vllm:gpu_prefix_cache_queries", lambda s: s.prompt_tokens),
            ("vllm:gpu_prefix_cache_hits", lambda s: s.cached_tokens),
            ("vllm:num_preemptions", lambda s: s.num_preemptions),
        ),
    ),
    "sglang": (
        (
            ("sglang:num_running_reqs", lambda s: s.num_running),
            ("sglang:num_queue_reqs", lambda s: s.num_waiting),
            ("sglang:num_used_tokens", lambda s: s.num_used_tokens),
            ("sglang:max_total_num_tokens", lambda s: s.num_pool_tokens),
            ("sglang:token_usage", lambda s: s.usage),
            ("sglang:page_size", lambda s: s.block_size),
            ("sglang:num_pages", lambda s: s.num_blocks),
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
THROUGHPUT_SECONDS = 10.0  # at least this long it is averaged over, if it was read that long ago


class Throughput:
    """Tokens generated per second, between now and an earlier call. num_tokens: how many there are already."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, num_tokens: int = 0) -> None:
        self._clock = clock
        self._asked: deque[tuple[float, int]] = deque([(clock(), num_tokens)], maxlen=1024)  # when, and tokens so far

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

    def __init__(
        self,
        statistics: Callable[[], EngineStatistics],
        config: EngineConfig,
        settings: ServerSettings,
        throughput: Throughput,
    ) -> None:
        self._statistics = statistics
        self._config = config
        self._names = settings.metric_names
        self._throughput = throughput
        self._has_adapters = settings.adapter_loading or bool(config.adapters)
        self._model = settings.model_name
        self._gauges, self._counters = ALIASES[settings.metric_names]

    def collect(self) -> Iterable[Metric]:
        statistics = self._statistics()
        for name, text, read in GAUGES:
            yield GaugeMetricFamily(f"phloem_{name}", text, value=read(statistics))
        for name, text, read in COUNTERS:
            yield CounterMetricFamily(f"phloem_{name}", text, value=read(statistics))
        alias, model = f"The value that {self._names} reports under this name.", {"model_name": self._model}
        for name, read in self._gauges:
            yield _labelled(name, alias, model, read(statistics))
        for name, read in self._counters:
            counter = CounterMetricFamily(name, alias, labels=["model_name"])
            counter.add_metric([self._model], read(statistics))
            yield counter
        yield from self._with_labels(statistics)
        if self._names == "sglang":
            rate = self._throughput.at(statistics.completion_tokens)
            yield _labelled("sglang:gen_throughput", "Generated tokens per second.", model, rate)
        if self._names == "vllm":
            tokens = HistogramMetricFamily(
                "vllm:iteration_tokens_total", "Tokens computed per engine step.", labels=["model_name"]
            )
            steps = [("+Inf", float(statistics.num_steps))]  # only their number and sum are known
            tokens.add_metric([self._model], steps, statistics.num_computed_tokens)
            yield tokens

    def _with_labels(self, statistics: EngineStatistics) -> Iterable[Metric]:
        """What has labels of its own."""
        for name, text, numbers in (
            ("drafted", "Tokens proposed by drafts, by what proposed them.", statistics.drafted_by),
            ("jumped", "Drafted tokens that were accepted.", statistics.jumped_by),
        ):
            counter = CounterMetricFamily(f"phloem_{name}_tokens", text, labels=["by"])
            for source, number in numbers.items():
                counter.add_metric([source], number)
            yield counter
        yield GaugeMetricFamily(
            "phloem_ranks", "Processes that compute the model together.", value=self._config.tensor_parallel_size
        )
        if self._config.draft_model_name is not None:
            yield _labelled(
                "phloem_draft_model_rests",
                "1 while a draft of the model in the label would cost more than it saves, so that none is made.",
                {"model": self._config.draft_model_name},
                float(statistics.draft_model_rests),
            )
        tiers = GaugeMetricFamily("phloem_kv_tier_bytes", "KV in each tier below the pool.", labels=["tier"])
        for name, num_bytes in statistics.tier_bytes.items():
            tiers.add_metric([name], num_bytes)
        yield tiers
        if self._names == "vllm":
            yield _labelled(
                "vllm:cache_config_info", "The KV pool, in its labels.", self._cache_config(statistics), 1.0
            )
            if self._has_adapters:
                adapters = {
                    "max_lora": str(statistics.max_running_requests),  # a step takes as many as it has requests
                    "running_lora_adapters": ",".join(statistics.running_adapters),
                    "waiting_lora_adapters": ",".join(statistics.waiting_adapters),
                }
                text = "Adapters of running and of waiting requests, in its labels; the value is the time of day."
                yield _labelled("vllm:lora_requests_info", text, adapters, time.time())
        if self._names == "sglang":
            pages = {"page_size": str(statistics.block_size), "num_pages": str(statistics.num_blocks)}
            labels = {"model_name": self._model, **pages}
            yield _labelled("sglang:cache_config_info", "The KV pool, in its labels.", labels, 1.0)

    def _cache_config(self, statistics: EngineStatistics) -> dict[str, str]:
        return {
            "block_size": str(statistics.block_size),
            "num_gpu_blocks": str(statistics.num_blocks),
            "cache_dtype": self._config.kv_dtype,
            "enable_prefix_caching": str(self._config.prefix_cache),
            "model_name": self._model,
        }


def _labelled(name: str, text: str, labels: Mapping[str, str], value: float) -> Metric:
    gauge = GaugeMetricFamily(name, text, labels=list(labels))
    gauge.add_metric(list(labels.values()), value)
    return gauge
