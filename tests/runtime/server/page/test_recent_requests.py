"""The last requests: where their time went adds up, what is kept of them, and that no text leaves."""

from __future__ import annotations

import json
import time
from array import array
from dataclasses import replace
from typing import Any

import pytest

from phloem.runtime.cache.cache_explanation import CacheExplanation
from phloem.runtime.request import Delta, FinishReason, RequestOptions, SamplingParams, Usage
from phloem.runtime.server.page.recent_requests import MAX_REQUESTS, RecentRequests
from phloem.runtime.server.prepare import EngineCall
from phloem.runtime.server.request_record import RequestRecord

from ..fakes import FakeAsyncEngine
from ..wire import Client, client

MISS = CacheExplanation("never_seen", 2, 2, None, "secret before", "secret after")
HI: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}


def listed(asked: Client) -> list[dict[str, Any]]:
    return list(asked.get("/page/requests").json()["requests"])


def end_one(recent: RecentRequests, number: int, usage: Usage | None = None, num_calls: int = 1) -> list[EngineCall]:
    """A request that comes and ends; usage: of its answer, if it has one."""
    record = RequestRecord()
    recent.begin(f"{number}", "/v1/completions", record)
    calls = [EngineCall([1], SamplingParams(), None, RequestOptions()) for _ in range(num_calls)]
    record.begin(calls)
    if usage is not None:
        record.push(0, Delta(f"{number}", 0, "a", (1,), FinishReason.STOP, usage))
    recent.end(f"{number}", "/v1/completions", 200, is_read_only=False)
    return calls


@pytest.mark.parametrize("shows_text", [False, True])
def test_the_parts_of_a_request_add_up_to_its_seconds(shows_text: bool) -> None:
    now = [10.0]
    recent, record = RecentRequests("m", shows_text=shows_text), RequestRecord(lambda: now[0])
    recent.begin("req_1", "/v1/chat/completions", record)
    now[0] = 12.0  # all of it was compilation
    options = RequestOptions()
    call = EngineCall(array("i", [1, 2, 3]), SamplingParams(n=2), None, options, compiled=((10.0, 12.0),))
    record.begin([call])
    assert options == {"request_id": "req_1", "explain_cache": True}
    usages = [Usage(3, 1, admitted_at=at, queue_seconds=at - 12, cache_explanation=MISS) for at in (12.5, 13.5)]
    for at, index, reason in (
        (14.0, 0, None),
        (15.0, 1, None),
        (17.0, 0, FinishReason.STOP),
        (20.0, 1, FinishReason.STOP),
    ):
        now[0] = at
        usages[index].completion_tokens += 1
        record.push(0, Delta("req_1", index, "a", (1,), reason, usages[index]))
    recent.end("req_1", "/v1/chat/completions", 200, is_read_only=False)
    [found] = recent.as_data()["requests"]
    parts = [found[name] for name in ("compile_ms", "queue_ms", "prefill_ms", "decode_ms")]
    assert parts == [2000.0, 500.0, 1500.0, 6000.0] and sum(parts) == 1000 * found["seconds"]
    assert (found["prompt_tokens"], found["cached_tokens"], found["completion_tokens"]) == (3, 1, 4)
    assert found["finish_reason"] == "stop" and not found["is_running"] and found["cache"]["reason"] == "never_seen"
    assert ("secret" in json.dumps(found)) is shows_text
    [miss] = recent.misses(20)
    assert miss["request_id"] == "req_1" and miss["sentence"] == found["cache"]["sentence"]


def test_a_request_under_way_is_as_far_as_it_has_come() -> None:
    now = [0.0]
    recent, record = RecentRequests("m", shows_text=False), RequestRecord(lambda: now[0])
    recent.begin("req_1", "/v1/completions", record)
    assert recent.as_data()["requests"] == [], "the engine was not asked yet"
    record.begin([EngineCall([1], SamplingParams(), None, RequestOptions())])
    [found] = recent.as_data()["requests"]
    assert found["is_running"] and found["status"] is None and found["ended_seconds_ago"] is None
    assert found["queue_ms"] > 0 and found["prefill_ms"] is None and found["decode_ms"] is None
    record.push(0, Delta("req_1", 0, "a", (1,), None, Usage(1, admitted_at=0.0)))
    [found] = recent.as_data()["requests"]
    assert found["decode_ms"] > 1000 * time.monotonic() - 60_000, "it goes on, though no token has come since"
    record.end()
    assert recent.as_data()["requests"] == [], "its answer is sent; what became of it is not known yet"


def test_the_latest_misses_come_first() -> None:
    recent = RecentRequests("m", shows_text=False)
    for number in range(4):
        calls = end_one(recent, number, Usage(3, cache_explanation=MISS), num_calls=2)
        assert [call.options.get("request_id") for call in calls] == [str(number), f"{number}-1"], "one id for each"
    assert [miss["request_id"] for miss in recent.misses(2)] == ["3", "2"]


@pytest.mark.parametrize(("num_cached", "is_listed"), [(0, True), (4, True), (5, False), (9, False)])
def test_a_prompt_that_is_new_in_its_second_half_alone_has_not_missed(num_cached: int, is_listed: bool) -> None:
    recent = RecentRequests("m", shows_text=False)
    end_one(recent, 1, Usage(10, num_cached, cache_explanation=replace(MISS, reason="never_seen")))
    assert [miss["request_id"] for miss in recent.misses(9)] == ["1"] * is_listed


@pytest.mark.parametrize("stream", [False, True])
def test_requests_are_listed_newest_first_with_how_they_ended(stream: bool) -> None:
    asked = client(page=True)
    first = asked.post("/v1/chat/completions", {**HI, "n": 2, "stream": stream})
    asked.post("/v1/completions", {"prompt": "Hi", "regex": "("})
    for path in ("/v1/models", "/v1/models/none", "/page/requests", "/nowhere"):
        asked.get(path)
    refused, answered = listed(asked)
    assert (refused["route"], refused["status"], refused["error"]) == ("/v1/completions", 400, "invalid_regex")
    assert answered["request_id"] == first.headers["x-request-id"] and answered["route"] == "/v1/chat/completions"
    assert (answered["prompt_tokens"], answered["cached_tokens"], answered["completion_tokens"]) == (19, 9, 26)
    parts = [answered[name] or 0.0 for name in ("compile_ms", "queue_ms", "prefill_ms", "decode_ms")]
    assert 0 <= sum(parts) <= 1000 * answered["seconds"] + 0.01
    assert answered["model"] == "fake" and answered["finish_reason"] == "stop" and answered["status"] == 200


@pytest.mark.parametrize("asks", [False, True])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", HI | {"n": 2, "max_tokens": 4}),
        (
            "/v1/chat/completions",
            HI | {"max_tokens": 4, "stream": True, "stream_options": {"continuous_usage_stats": True}},
        ),
        ("/v1/completions", {"prompt": ["Hi", "Ho"], "max_tokens": 4}),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 4}),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 4, "stream": True}),
        ("/v1/messages", HI | {"max_tokens": 4}),
        ("/v1/embeddings", {"input": "Hi"}),
    ],
)
def test_a_caller_is_told_why_it_missed_only_if_it_asked(
    page: Client, path: str, body: dict[str, Any], asks: bool
) -> None:
    takes = path not in ("/v1/messages", "/v1/embeddings")
    answer = page.post(path, {"model": "nano", **body} | ({"explain_cache": asks} if takes else {}))
    assert answer.status == 200 and (b"cache_explanation" in answer.body) is (asks and takes), answer.body
    assert listed(page)[0]["cache"] is not None, "the page knows in any case"


def test_as_many_as_are_kept_are_kept() -> None:
    recent = RecentRequests("m", shows_text=False)
    for number in range(MAX_REQUESTS + 5):
        end_one(recent, number)
    shown = [one["request_id"] for one in recent.as_data()["requests"]]
    assert shown == [str(number) for number in range(MAX_REQUESTS + 4, 4, -1)]


def test_a_client_that_has_left_is_listed() -> None:
    asked = client(FakeAsyncEngine(), page=True)
    asked.post("/v1/chat/completions", {**HI, "stream": True}, leave_after=lambda answer: bool(answer.chunks))
    [found] = listed(asked)
    assert found["status"] in (200, 499) and not found["is_running"]
