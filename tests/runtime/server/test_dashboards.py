"""The dashboards that other projects publish, over our `/metrics`: every panel finds its series.

What the panels of these dashboards ask for, as facts: the name of the series (with the suffix of histograms and
counters) and the labels by which it is selected or grouped.

* vLLM: examples/observability/prometheus_grafana/grafana.json, and of examples/observability/dashboards/grafana
  query_statistics.json and performance_statistics.json
* SGLang: examples/monitoring/grafana/dashboards/json/sglang-dashboard.json
"""

from __future__ import annotations

import pytest

from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.server import ServerSettings, create_app
from phloem.runtime.server.metric_tables import Throughput
from phloem.runtime.server.settings import MetricNames
from phloem.runtime.speculate.draft_counts import SOURCES

from ..fakes import threaded_engine
from .wire import Client, series_of

Wanted = tuple[str, frozenset[str]]
MODEL = frozenset({"model_name"})
BUCKET = frozenset({"model_name", "le"})
UNLABELLED: frozenset[str] = frozenset()


def latencies(name: str) -> list[Wanted]:
    return [(f"{name}_bucket", BUCKET), (f"{name}_sum", MODEL), (f"{name}_count", MODEL)]


PANELS: dict[MetricNames, dict[str, list[Wanted]]] = {
    "vllm": {
        "E2E Request Latency": latencies("vllm:e2e_request_latency_seconds"),
        "Token Throughput": [("vllm:prompt_tokens_total", MODEL), ("vllm:generation_tokens_total", MODEL)],
        "Inter Token Latency": latencies("vllm:inter_token_latency_seconds"),
        "Scheduler State": [("vllm:num_requests_running", MODEL), ("vllm:num_requests_waiting", MODEL)],
        "Time To First Token Latency": latencies("vllm:time_to_first_token_seconds"),
        "Cache Utilization": [("vllm:kv_cache_usage_perc", MODEL)],
        "Request Prompt Length": [("vllm:request_prompt_tokens_bucket", BUCKET)],
        "Request Generation Length": [("vllm:request_generation_tokens_bucket", BUCKET)],
        "Finish Reason": [("vllm:request_success_total", frozenset({"model_name", "finished_reason"}))],
        "Queue Time": [("vllm:request_queue_time_seconds_sum", MODEL)],
        "Requests Prefill and Decode Time": [
            ("vllm:request_prefill_time_seconds_sum", MODEL),
            ("vllm:request_decode_time_seconds_sum", MODEL),
        ],
        "Max Generation Token in Sequence Group": [("vllm:request_max_num_generation_tokens_sum", MODEL)],
        "Successful Requests Over Time": [("vllm:request_success_total", MODEL)],
        "Latency percentiles": [("vllm:e2e_request_latency_seconds_bucket", BUCKET)],
        "Input Token Size": [("vllm:request_prompt_tokens_bucket", BUCKET)],
        "Input and Output Tokens Over Time": [
            ("vllm:prompt_tokens_total", MODEL),
            ("vllm:generation_tokens_total", MODEL),
        ],
        "E2E, TTFT and ITL Over Time": [
            *latencies("vllm:e2e_request_latency_seconds"),
            *latencies("vllm:time_to_first_token_seconds"),
            *latencies("vllm:inter_token_latency_seconds"),
        ],
        "TPS Over Time": [("vllm:iteration_tokens_total_count", UNLABELLED)],
    },
    "sglang": {
        "End-to-End Request Latency": latencies("sglang:e2e_request_latency_seconds"),
        "Time-To-First-Token Latency": latencies("sglang:time_to_first_token_seconds"),
        "Num Running Requests": [("sglang:num_running_reqs", MODEL)],
        "Token Generation Throughput": [("sglang:gen_throughput", MODEL)],
        "Cache Hit Rate": [("sglang:cache_hit_rate", MODEL)],
        "Number Queued Requests": [("sglang:num_queue_reqs", MODEL)],
    },
}
IDLE = {  # nothing runs or waits when it is looked at
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "sglang:num_running_reqs",
    "sglang:num_queue_reqs",
}


def series_after_traffic(names: MetricNames) -> dict[str, list[tuple[dict[str, str], float]]]:
    """By name: labels and value of each series, when some requests have been answered."""
    driver = AsyncEngine(threaded_engine(num_blocks=64))
    settings = ServerSettings(model_name="served", metric_names=names, tool_call_format="none", reasoning_format="none")
    asked = Client(create_app(driver, settings), driver)  # type: ignore[arg-type]  # a real one does as well
    try:
        for options in ({}, {"stream": True}, {"n": 2}, {"max_tokens": 7}):
            answer = asked.complete(list(range(1, 20)), **{"max_tokens": 4, "temperature": 0, **options})
            assert answer.status == 200, answer.body
        return series_of(asked.get("/metrics").body.decode())
    finally:
        driver.stop()


@pytest.mark.parametrize("names", PANELS)
def test_every_panel_is_filled(names: MetricNames) -> None:
    found = series_after_traffic(names)
    for panel, wanted in PANELS[names].items():
        for name, labels in wanted:
            assert name in found, f"{panel}: {name}"
            for has, _ in found[name]:
                assert labels <= has.keys(), f"{panel}: {name} has {sorted(has)}"
                assert has.get("model_name") == "served"
            if name not in IDLE:
                assert any(value > 0 for _, value in found[name]), f"{panel}: {name} is empty"


def test_the_new_histograms_say_what_happened() -> None:
    found = series_after_traffic("vllm")
    sums = {name: sum(value for _, value in series) for name, series in found.items()}
    assert sums["vllm:request_prompt_tokens_count"] == sums["vllm:request_success_total"] == 5
    assert sums["vllm:request_prompt_tokens_sum"] == 5 * 19 == sums["vllm:prompt_tokens_total"]
    assert sums["vllm:request_generation_tokens_sum"] == 4 * 4 + 7 == sums["vllm:generation_tokens_total"]
    assert sums["vllm:request_max_num_generation_tokens_sum"] == 3 * 4 + 7
    assert sums["vllm:request_max_num_generation_tokens_count"] == 4
    assert sums["vllm:e2e_request_latency_seconds_count"] == sums["vllm:time_to_first_token_seconds_count"] == 5
    reasons = {labels["finished_reason"]: value for labels, value in found["vllm:request_success_total"]}
    assert reasons == {"length": 5.0, "stop": 0.0, "abort": 0.0, "error": 0.0}
    parts = [f"vllm:request_{part}_time_seconds" for part in ("queue", "prefill", "decode")]
    assert all(sums[f"{part}_count"] == 5 and sums[f"{part}_sum"] >= 0 for part in parts)
    for name in ("request_queue_time_seconds", "request_prompt_tokens"):
        assert sums[f"phloem_{name}_count"] == sums[f"vllm:{name}_count"], "under our own names too"
    assert sums["vllm:iteration_tokens_total_sum"] >= sums["vllm:generation_tokens_total"] - 5
    assert {labels["by"] for labels, _ in found["phloem_drafted_tokens_total"]} == set(SOURCES)
    assert sums["phloem_recoveries_total"] == sums["phloem_failed_outputs_total"] == 0


def test_throughput_is_that_of_the_last_seconds() -> None:
    now = [0.0]
    throughput = Throughput(lambda: now[0])
    assert throughput.at(0) == 0.0
    now[0] = 20.0
    assert throughput.at(100) == 5.0
    now[0] = 25.0
    assert throughput.at(200) == pytest.approx(200 / 25)
    now[0] = 31.0
    assert throughput.at(200) == pytest.approx(100 / 11)
    now[0] = 60.0
    assert throughput.at(200) == 0.0
    now[0] = 61.0
    assert throughput.at(0) == 0.0, "counters that were set to zero"
