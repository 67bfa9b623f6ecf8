"""What is going on, against what the engine counts; and what the page is told of the model."""

from __future__ import annotations

from phloem.runtime.engine.async_engine import AsyncEngine

from ..wire import Client


def test_numbers_are_those_of_the_engine(page: Client, page_engine: AsyncEngine) -> None:
    page.complete("A few words to be counted, in a block and a half or so.", max_tokens=5, n=2)
    found = page.get("/page/now").json()
    known = page_engine.statistics()
    assert found["queue"] == known.num_waiting == 0 and found["running"] == known.num_running
    assert found["generated_tokens"] == known.completion_tokens and found["jumped_tokens"] == known.jumped_tokens
    assert found["prompt_tokens"] == known.prompt_tokens and found["cached_tokens"] == known.cached_tokens
    assert found["hit_rate"] == round(known.hit_rate, 4) and found["seats"] == 256
    pool = found["pool"]
    assert pool["num_blocks"] == 512 and pool["free"] + pool["cached"] == 512 and pool["leased"] >= pool["pinned"]
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
