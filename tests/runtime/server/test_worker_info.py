"""The routes and metrics that routers read from a worker: what they say of an engine that is idle, busy and full."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from phloem.runtime.cli.serve import limits_of
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import Phase, SamplingParams
from phloem.runtime.server import ServerSettings, create_app
from phloem.runtime.server.metrics import Metrics
from phloem.runtime.server.settings import MetricNames
from phloem.runtime.server.worker_info import load_of

from ..fakes import NEVER, FakeDecoder, fake_engine
from .test_description import operation, validator
from .wire import Client, client, series_of

PATHS = ("/server_info", "/get_server_info", "/model_info", "/get_model_info", "/v1/loads")
ENDLESS = SamplingParams(max_tokens=200, temperature=0.0, ignore_eos=True, stop=NEVER)


@pytest.mark.parametrize("path", [*PATHS, "/health_generate"])
def test_answers_are_as_described(path: str) -> None:
    answer = client().get(path)
    assert answer.status == 200
    schema = operation("get", path)["responses"]["200"]["content"]["application/json"]["schema"]
    validator(schema).validate(answer.json())


def test_old_and_new_names_answer_the_same() -> None:
    asked = client()
    for name in ("server_info", "model_info"):
        new, old = asked.get(f"/{name}").json(), asked.get(f"/get_{name}").json()
        for answer in (new, old):
            answer.pop("internal_states", None)  # what has happened since
        assert new == old


def test_nothing_but_health_is_shown_without_a_key() -> None:
    asked = client(api_keys=("sk-a",))
    assert [asked.get(path).status for path in PATHS] == [401] * len(PATHS)
    assert asked.get("/health_generate").status == 200
    described = {path: "security" in operation("get", path) for path in ("/health", "/health_generate")}
    assert not any(described.values())


def test_a_model_is_shown_by_its_name_and_not_by_its_folder(tmp_path: Path) -> None:
    engine = fake_engine(folder=tmp_path / "secret-folder")
    with serving(engine, model_name="public") as asked:
        for path in PATHS:
            text = asked.get(path).body.decode()
            assert "secret-folder" not in text
        assert asked.get("/server_info").json()["served_model_name"] == "public"
        assert asked.get("/model_info").json()["model_path"] == "public"


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("dp_rank=1", "dp_rank"),
        ("dp_rank=-1", "dp_rank"),
        ("dp_rank=", "dp_rank"),
        ("dp_rank=zero", "dp_rank"),
        ("format=prometheus", "format"),
        ("format=", "format"),
        ("include=everything", "include"),
        ("include=core,memory,%00", "include"),
        (f"include={'x' * 5000}", "include"),
    ],
)
def test_loads_refuse_what_is_not_there(query: str, param: str) -> None:
    answer = client().get(f"/v1/loads?{query}")
    assert answer.status == 400 and answer.error["param"] == param
    assert len(answer.error["message"]) < 200


@pytest.mark.parametrize(
    "query", ["", "include=core,disagg,queues,memory", "include=all", "include=", "dp_rank=0&format=json", "other=1"]
)
def test_loads_answer_what_routers_ask(query: str) -> None:
    answer = client().get(f"/v1/loads?{query}").json()
    assert answer["dp_rank_count"] == 1 and [load["dp_rank"] for load in answer["loads"]] == [0]


@contextmanager
def serving(engine: Engine, **settings: Any) -> Iterator[Client]:
    driver = AsyncEngine(engine)
    chosen = ServerSettings(tool_call_format="none", reasoning_format="none", **settings)
    try:
        yield Client(create_app(driver, chosen), driver)  # type: ignore[arg-type]  # a real one does as well
    finally:
        driver.stop()


def full_engine() -> Engine:
    """Two requests run, of 8 and 5 prompt tokens, and two wait, of 6 and 7; the first prompt was asked for before."""
    engine = fake_engine(num_blocks=256, max_running_requests=2)
    engine.generate(list(range(8)), SamplingParams(max_tokens=1, temperature=0.0))
    for prompt in (range(8), range(20, 25), range(30, 36), range(40, 47)):
        engine.add(list(prompt), ENDLESS)
    engine.step()
    engine.step()
    return engine


def test_load_is_what_runs_and_waits() -> None:
    engine = full_engine()
    statistics = engine.statistics()
    load = load_of(statistics, 1.5)
    assert (load["num_running_reqs"], load["num_waiting_reqs"], load["num_total_reqs"]) == (2, 2, 4)
    used = sum(
        -(-request.num_computed_tokens // 4) * 4 for requests in engine._requests.values() for request in requests
    )
    assert load["num_used_tokens"] == used > 0 and load["max_total_num_tokens"] == 256 * 4
    assert load["num_total_tokens"] == used + 6 + 7
    assert load["token_usage"] == round(used / 1024, 4)
    assert 0 < load["cache_hit_rate"] < 1
    assert load["num_waiting_uncached_tokens"] == round(13 * (1 - statistics.hit_rate))
    assert (load["max_running_requests"], load["gen_throughput"]) == (2, 1.5)
    assert all(isinstance(load[name], int) for name in load if name.startswith(("num_", "max_", "dp_")))
    for request_id in list(engine._requests):
        engine.abort(request_id)
    load = load_of(engine.statistics(), 0.0)
    assert [load[name] for name in ("num_total_reqs", "num_used_tokens", "num_total_tokens", "token_usage")] == [0] * 4


def test_what_computes_and_drafts_is_told_without_its_path() -> None:
    engine = fake_engine(draft_decoder=FakeDecoder(), speculative_model="/secret-folder/small")
    with serving(engine, page=True) as asked:
        info, about = asked.get("/server_info").json(), asked.get("/page/about").json()
        metrics = asked.get("/metrics").body.decode()
    assert (info["tp_size"], info["speculative_algorithm"]) == (about["ranks"], "STANDALONE") == (1, "STANDALONE")
    assert info["speculative_draft_model_path"] == about["draft_model"] == "small"
    assert "\nphloem_ranks 1.0\n" in metrics and 'phloem_draft_model_rests{model="small"} 0.0' in metrics
    with serving(fake_engine()) as asked:
        assert asked.get("/server_info").json()["speculative_draft_model_path"] is None


def test_a_pool_smaller_than_the_context_is_said() -> None:
    with fake_engine(num_blocks=8) as engine:
        [line] = limits_of(engine.core)
    assert "32 tokens" in line and "--kv-memory" in line
    with fake_engine(num_blocks=1024) as engine:
        assert limits_of(engine.core) == []


def test_the_pool_on_every_route_and_metric_is_the_same() -> None:
    engine = fake_engine(num_blocks=48, block_size=8)
    with serving(engine) as asked:
        info, [load] = asked.get("/server_info").json(), asked.get("/v1/loads").json()["loads"]
    assert info["max_total_num_tokens"] == info["max_total_tokens"] == load["max_total_num_tokens"] == 48 * 8
    assert info["page_size"] == 8 and info["max_running_requests"] == load["max_running_requests"]
    [[vllm]] = series(engine, "vllm", "vllm:cache_config_info")
    assert (vllm[0]["num_gpu_blocks"], vllm[0]["block_size"], vllm[1]) == ("48", "8", 1.0)
    [[sglang]] = series(engine, "sglang", "sglang:cache_config_info")
    assert (sglang[0]["num_pages"], sglang[0]["page_size"], sglang[1]) == ("48", "8", 1.0)


def series(
    engine: Engine, names: MetricNames, *wanted: str, **settings: Any
) -> list[list[tuple[dict[str, str], float]]]:
    """Labels and values of series, by their names."""
    metrics = Metrics(engine.statistics, engine.config, ServerSettings(metric_names=names, **settings))
    found = series_of(metrics.render().decode())
    return [found.get(name, []) for name in wanted]


# Which series these routers read, and what they must say of `full_engine`; None: anything.
READ: dict[MetricNames, dict[str, dict[str, float | None]]] = {
    "vllm": {
        "llm-d, Gateway API inference extension": {
            "vllm:num_requests_waiting": 2,
            "vllm:num_requests_running": 2,
            "vllm:kv_cache_usage_perc": None,
            "vllm:cache_config_info": 1,
        },
        "their releases before vLLM 1": {"vllm:gpu_cache_usage_perc": None},
        "vLLM production stack": {
            "vllm:num_requests_running": 2,
            "vllm:num_requests_waiting": 2,
            "vllm:gpu_cache_usage_perc": None,
            "vllm:gpu_prefix_cache_hit_rate": None,
            "vllm:gpu_prefix_cache_hits_total": None,
            "vllm:gpu_prefix_cache_queries_total": None,
        },
        "SMG": {"vllm:num_requests_running": 2, "vllm:num_requests_waiting": 2, "vllm:kv_cache_usage_perc": None},
    },
    "sglang": {
        "llm-d, Gateway API inference extension": {
            "sglang:num_queue_reqs": 2,
            "sglang:num_running_reqs": 2,
            "sglang:token_usage": None,
            "sglang:page_size": None,
            "sglang:num_pages": None,
            "sglang:cache_config_info": 1,
        },
        "SMG": {"sglang:token_usage": None, "sglang:gen_throughput": None, "sglang:cache_hit_rate": None},
    },
}


@pytest.mark.parametrize("names", READ)
def test_routers_find_what_they_read(names: MetricNames) -> None:
    engine = full_engine()
    usage = engine.statistics().usage
    for reader, wanted in READ[names].items():
        for name, value in wanted.items():
            [found] = series(engine, names, name)
            assert len(found) == 1, f"{reader}: {name}"
            assert found[0][1] == value if value is not None else found[0][1] >= 0, f"{reader}: {name}"
            if "usage" in name:
                assert found[0][1] == usage > 0


def test_adapters_are_named_while_their_requests_run_or_wait() -> None:
    engine = fake_engine(max_running_requests=2)
    assert series(engine, "vllm", "vllm:lora_requests_info") == [[]], "as in vLLM, only where there can be adapters"
    for number, name in enumerate(("b", "a", "b", "c", None)):
        [request] = engine.prepare([number, 1, 2], ENDLESS)
        request.adapter = None if name is None else FakeAdapter(name)  # type: ignore[assignment]
        engine._totals.begin(request)
        request.phase = Phase.RUNNING if number < 2 else Phase.WAITING
    [[(labels, value)]] = series(engine, "vllm", "vllm:lora_requests_info", adapter_loading=True)
    assert labels["running_lora_adapters"] == "a,b" and labels["waiting_lora_adapters"] == "b,c"
    assert int(labels["max_lora"]) >= 1
    [[(_, later)]] = series(engine, "vllm", "vllm:lora_requests_info", adapter_loading=True)
    assert later >= value > 1e9, "the time of day: readers take the newest"


@dataclass(frozen=True)
class FakeAdapter:
    name: str
