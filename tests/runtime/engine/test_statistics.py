"""What an engine counts: nothing of its warm-up, everything while it happens, and the same as its what-if table."""

from __future__ import annotations

import random
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.runtime.engine.engine import Engine
from phloem.runtime.engine.statistics import COUNTED, COUNTED_BY, EngineStatistics
from phloem.runtime.engine.warmup import warm_up
from phloem.runtime.request import SamplingParams

from ..fakes import fake_engine

STATE = {"num_blocks", "num_free_blocks", "num_cached_blocks", "num_evictable_blocks", "num_pinned_blocks"}
STATE |= {"num_running", "num_waiting", "tier_bytes", "block_size", "num_waiting_tokens"}
STATE |= {"running_adapters", "waiting_adapters", "max_running_requests", "draft_model_rests"}


def test_every_figure_is_a_state_or_a_counter() -> None:
    """So no counter that is added later is forgotten when they are set to zero."""
    assert {field.name for field in fields(EngineStatistics)} == STATE | set(COUNTED) | set(COUNTED_BY)
    assert not STATE & set(COUNTED)


@pytest.mark.parametrize("tiers", [False, True])
def test_warm_up_leaves_no_trace(tiers: bool, tmp_path: Path) -> None:
    options: dict[str, Any] = {"host_memory_bytes": 1 << 16, "disk_cache": str(tmp_path / "kv")} if tiers else {}
    if tiers:
        (tmp_path / "config.json").write_text("{}")
        (tmp_path / "model.safetensors").write_bytes(b"weights")
        options["folder"] = tmp_path
    with fake_engine(num_blocks=40, **options) as engine:
        before = engine.statistics()
        reports: list[tuple[int, int]] = []
        warm_up(engine, report=lambda done, total: reports.append((done, total)))
        assert [done for done, _ in reports] == list(range(reports[0][1]))
        assert engine.monitor._count().num_finished > 0 and engine.monitor._count().num_evicted_blocks > 0, (
            "it did something"
        )
        after = engine.statistics()
        assert {name: getattr(after, name) for name in COUNTED} == dict.fromkeys(COUNTED, 0)
        assert after.hit_rate == 0.0 and after.num_free_blocks == before.num_free_blocks
        report = engine.cache_report()
        assert report.num_recorded_requests == report.num_evicted_blocks == report.prompt_tokens == 0
        assert report.what_if == () and report.hit_rate == report.recorded_hit_rate == 0.0
        engine.generate([1, 2, 3, 4, 5, 6], SamplingParams(max_tokens=2, temperature=0.0, ignore_eos=True))
        now = engine.statistics()
        assert (now.num_finished, now.prompt_tokens, now.cached_tokens, now.completion_tokens) == (1, 6, 0, 2)
        assert engine.cache_report().num_recorded_requests == 1


def counted(engine: Engine) -> dict[str, int]:
    statistics = engine.statistics()
    return {name: getattr(statistics, name) for name in COUNTED}


@pytest.mark.parametrize("seed", range(8))
def test_counters_move_with_every_step_and_never_back(seed: int) -> None:
    """Random arrivals, aborts, forks and preemptions in a small pool, against the requests themselves."""
    source = random.Random(seed)
    engine = fake_engine(num_blocks=24, max_batch_tokens=10, max_running_requests=4)
    open_ids: list[str] = []
    before = counted(engine)
    requests: list[Any] = []
    for _ in range(120):
        kind = source.random()
        if kind < 0.3:
            prompt = [source.randrange(3) for _ in range(source.randrange(1, 20))]
            params = SamplingParams(max_tokens=source.randrange(12), ignore_eos=True, n=source.choice([1, 1, 2]))
            open_ids.append(engine.add(prompt, params))
            requests += engine._requests[open_ids[-1]]
        elif kind < 0.36 and open_ids:
            engine.abort(open_ids.pop(source.randrange(len(open_ids))))
        elif kind < 0.42 and open_ids:
            running = [name for name in open_ids if any(r in engine._scheduler.running for r in engine._requests[name])]
            for name in running[:1]:
                index = next(i for i, r in enumerate(engine._requests[name]) if r in engine._scheduler.running)
                children = engine.fork(name, index=index)
                open_ids += children
                requests += [request for child in children for request in engine._requests[child]]
        engine.step()
        open_ids = [name for name in open_ids if name in engine._requests]
        now = counted(engine)
        assert all(now[name] >= before[name] for name in COUNTED)
        admitted = [request for request in requests if request.admitted_before]
        assert now["prompt_tokens"] == sum(request.num_prompt_tokens for request in admitted)
        assert now["cached_tokens"] == sum(request.usage.cached_tokens for request in admitted)
        assert now["completion_tokens"] == sum(
            request.num_output_tokens - request.usage.forked_tokens for request in requests
        )
        before = now
    assert before["num_preemptions"] + before["cached_tokens"]


def test_a_long_prompt_counts_when_it_is_admitted_not_when_it_is_done() -> None:
    engine = fake_engine(max_batch_tokens=8)
    engine.generate(list(range(16)), SamplingParams(max_tokens=0))
    engine.add(list(range(40)), SamplingParams(max_tokens=4, ignore_eos=True))
    engine.step()
    now = engine.statistics()
    assert (now.prompt_tokens, now.cached_tokens, now.completion_tokens, now.num_finished) == (56, 16, 0, 1)
    seen = []
    while engine.has_work:
        engine.step()
        seen.append(engine.statistics().completion_tokens)
    assert seen[-4:] == [1, 2, 3, 4]


PROMPTS = st.lists(
    st.tuples(
        st.sampled_from(["", "other"]),
        st.lists(st.sampled_from([0, 1]), min_size=1, max_size=19),
        st.integers(0, 5),
        st.integers(1, 2),
    ),
    min_size=1,
    max_size=14,
)


@settings(deadline=None, max_examples=60)
@given(PROMPTS, st.sampled_from([1, 4, 16]), st.sampled_from(["lru", "lfu", "cost"]))
def test_the_pool_in_use_replayed_has_the_hit_rate_that_was_reported(
    traffic: list[tuple[str, list[int], int, int]], block_size: int, policy: str
) -> None:
    """One request after the other, without evictions: to the token."""
    engine = fake_engine(num_blocks=1024, block_size=block_size, eviction_policy=policy)
    for namespace, prompt, max_tokens, spread in traffic:
        params = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        engine.generate([spread * token for token in prompt], params, namespace=namespace)
    report = engine.cache_report()
    assert report.num_evicted_blocks == 0 and report.num_recorded_requests == len(traffic)
    rates = {(entry.policy, entry.share): entry.hit_rate for entry in report.what_if}
    assert rates[policy, 1.0] == pytest.approx(report.hit_rate, abs=1e-12)
    assert rates["optimum", 1.0] == pytest.approx(report.hit_rate, abs=1e-12)
    assert report.recorded_hit_rate == report.hit_rate == engine.statistics().hit_rate
    assert f"(hit rate {report.hit_rate:.1%})" in str(report)
