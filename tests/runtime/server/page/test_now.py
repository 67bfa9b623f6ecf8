"""What is going on, against what the engine counts; and what the page is told of the model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.server import ServerSettings
from phloem.runtime.server.page import now as now_module
from phloem.runtime.server.page.now import WHAT_IF_SECONDS, Now
from phloem.runtime.server.page.recent_requests import RecentRequests
from phloem.runtime.server.service import Service

from ..wire import Client


def test_numbers_are_those_of_the_engine(page: Client, page_engine: AsyncEngine) -> None:
    assert page.get("/page/now").json()["tokens_per_second"]["output"] is None, "the first of a row of polls"
    page.complete("A few words to be counted, in a block and a half or so.", max_tokens=5, n=2)
    found = page.get("/page/now").json()
    known = page_engine.statistics()
    assert found["queue"] == known.num_waiting == 0 and found["running"] == known.num_running
    assert found["generated_tokens"] == known.completion_tokens and found["jumped_tokens"] == known.jumped_tokens
    assert found["prompt_tokens"] == known.prompt_tokens and found["cached_tokens"] == known.cached_tokens
    assert found["hit_rate"] == round(known.hit_rate, 4) and found["seats"] == 256
    pool = found["pool"]
    assert pool["num_blocks"] == 512 and pool["free"] + pool["cached"] == 512 and pool["leased"] >= pool["pinned"]
    assert pool["leased"] == known.num_cached_blocks - known.num_evictable_blocks
    assert found["ttft_ms"]["n"] == 2, "of this application"
    assert 0 < found["ttft_ms"]["p50"] <= found["ttft_ms"]["p95"] <= found["ttft_ms"]["p99"]
    assert found["inter_token_ms"]["n"] >= 2 and 0 < found["step_ms"]["p50"] <= found["step_ms"]["p99"]
    assert found["tokens_per_second"]["output"] > 0 and len(found["misses"]) <= 20
    [miss] = [miss for miss in found["misses"] if miss["reason"] != "complete"]
    assert miss["seconds_ago"] >= 0 and miss["sentence"] and miss["request_id"].startswith("req_")


def test_the_page_is_told_of_the_model(page: Client, operators_page: Client, page_engine: AsyncEngine) -> None:
    found = page.get("/page/about").json()
    engine = page_engine.engine
    assert found["model"] == "nano" and found["models"] == ["nano"] and found["max_model_len"] == engine.max_model_len
    assert found["has_text"] and found["has_chat"] and not found["thinks"] and not found["admin"]
    assert (found["vocab_size"], found["block_size"], found["num_blocks"]) == (engine.tokenizer.vocab_size, 16, 512)
    assert found["layer_kinds"] == ["full"] and operators_page.get("/page/about").json()["admin"]


class Rates:
    """What is asked for in the place of rates: the counts."""

    def __init__(self, num_tokens: int = 0) -> None:
        pass

    def at(self, count: int) -> float:
        return count


def test_prompts_are_counted_as_far_as_they_are_computed_and_a_replay_serves_for_a_while(
    page: Client, page_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        page.complete("A prompt that is cached when it comes again, as it is longer than a block.", max_tokens=1)
    monkeypatch.setattr(now_module, "Throughput", Rates)
    service = Service(page_engine, ServerSettings(page=True), "1")
    rows = [("optimum", 1.0, 0.9), ("lru", 0.5, 0.2), ("lru", 1.0, 0.3), ("lfu", 1.0, 0.25)]
    entries = [{"policy": p, "share": s, "num_blocks": int(512 * s), "hit_rate": rate} for p, s, rate in rows]
    asked: list[float] = []

    async def report(seconds: float) -> dict[str, Any]:
        asked.append(seconds)
        return {"what_if": entries, "eviction_policy": "lru"}

    async def seen() -> list[dict[str, Any]]:
        found = []
        for asks in (False, True, True, True):
            found.append(now.as_data(asks_what_if=asks))
            await asyncio.sleep(0)
        return found

    monkeypatch.setattr(service, "cache_report", report)
    now = Now(service, RecentRequests("nano", shows_text=False))
    first, _, _, last = asyncio.run(seen())
    known = page_engine.statistics()
    assert known.cached_tokens and first["what_if"] is None and asked == [WHAT_IF_SECONDS]
    assert first["tokens_per_second"] == {"output": None, "prompt": None}, "nothing is known yet"
    assert last["tokens_per_second"]["prompt"] == known.prompt_tokens - known.cached_tokens
    assert [policy["name"] for policy in last["what_if"]["policies"]] == ["lru", "lfu", "optimum"], "in use, others"
    assert [size["num_blocks"] for size in last["what_if"]["sizes"]] == [256, 512]
    assert last["what_if"]["seconds_ago"] >= 0
