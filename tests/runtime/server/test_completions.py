"""Completions, tokenisation and the small routes."""

from __future__ import annotations

import pytest

from phloem.errors import DeadlineExceeded, RequestError

from .fakes import FakeAsyncEngine
from .wire import client


def test_an_answer_has_openais_shape() -> None:
    body = client().complete("Hi").json()
    assert body["object"] == "text_completion" and body["id"].startswith("cmpl-")
    assert body["choices"] == [{"index": 0, "text": "Hello wörld", "logprobs": None, "finish_reason": "stop"}]
    assert body["usage"]["prompt_tokens"] == 2


def test_sixteen_tokens_are_the_default_budget() -> None:
    asked = client()
    asked.complete("Hi")
    asked.complete("Hi", max_tokens=None)
    assert [call["sampling"].max_tokens for call in asked.engine.calls] == [16, 16]


@pytest.mark.parametrize(
    ("prompt", "seen"),
    [("ab", ["ab"]), (["ab", "c"], ["ab", "c"]), ([97, 98], ["ab"]), ([[97], [98, 99]], ["a", "bc"])],
)
def test_prompts_may_be_text_or_token_ids_one_or_many(prompt: object, seen: list[str]) -> None:
    asked = client()
    body = asked.complete(prompt, n=2).json()
    assert sorted(call["prompt"] for call in asked.engine.calls) == sorted(seen)
    assert [choice["index"] for choice in body["choices"]] == list(range(2 * len(seen)))
    assert body["usage"]["prompt_tokens"] == sum(map(len, seen))
    assert body["usage"]["completion_tokens"] == 13 * 2 * len(seen)


def test_of_a_request_for_a_prompts_kv_no_answer_is_looked_at() -> None:
    asked = client()
    params = {"do_remote_decode": True, "do_remote_prefill": False, "remote_block_ids": None, "more": [1]}
    body = asked.complete("Hi", max_tokens=1, min_tokens=1, regex="[a-z]{9}", kv_transfer_params=params).json()
    (call,) = asked.engine.calls
    assert call["constraint"] is None and call["sampling"].max_tokens == 1 and call["sampling"].min_tokens == 0
    assert "kv_transfer_params" not in body, "there is no store here"
    asked.complete("Hi", max_tokens=9, kv_transfer_params={"do_remote_prefill": True, "remote_host": 5})
    assert asked.engine.calls[1]["sampling"].max_tokens == 9
    refused = asked.complete("Hi", kv_transfer_params={"do_remote_decode": "yes"})
    assert refused.status == 400 and refused.json()["error"]["param"].startswith("kv_transfer_params")


def test_usage_comes_last_or_with_every_chunk() -> None:
    answer = client().complete("a", stream=True, stream_options={"include_usage": True})
    *events, last, done = answer.events()
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert done == "[DONE]" and last["choices"] == [] and last["usage"]["completion_tokens"] == 13
    assert all(event["usage"] is None for event in events)
    events = client().complete(["a", "b"], stream=True, stream_options={"continuous_usage_stats": True}).events()
    counts = [event["usage"]["completion_tokens"] for event in events[:-1]]
    assert counts == sorted(counts) and counts[-1] == 26


def test_echo_with_logprobs_scores_the_prompt() -> None:
    body = client().complete("Hi!", echo=True, logprobs=1, max_tokens=0).json()
    [choice] = body["choices"]
    assert choice["text"] == "Hi!"
    assert choice["logprobs"]["tokens"] == ["H", "i", "!"]
    assert choice["logprobs"]["token_logprobs"] == [None, -2.0, -2.0]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]
    assert client().complete("Hi!", echo=True).json()["choices"][0]["text"] == "Hi!Hello wörld"


def test_logprobs_are_four_parallel_arrays() -> None:
    whole = client().complete("Hi", logprobs=1, max_tokens=4).json()["choices"][0]["logprobs"]
    assert whole["tokens"] == list("Hell") and whole["text_offset"] == [0, 1, 2, 3]
    assert whole["token_logprobs"] == [-9999.0, -0.5, -0.5, -0.5]
    assert whole["top_logprobs"][1] == {"\x00": -1.0, "e": -0.5}, "the likeliest, and the token itself"


def test_one_failing_prompt_fails_the_answer_and_ends_the_others() -> None:
    asked = client(FakeAsyncEngine(failure=RequestError("the step failed")))
    assert asked.complete(["a", "b", "c"]).status == 500
    assert asked.engine.num_open == 0


def test_a_deadline_that_passes_in_the_queue_is_a_408() -> None:
    late = DeadlineExceeded("deadline_seconds: not begun within 2 s", param="deadline_seconds")
    answer = client(FakeAsyncEngine(refusal=late)).complete("Hi", deadline_seconds=2)
    assert (answer.status, answer.error["code"]) == (408, "deadline_exceeded")
    assert answer.error["param"] == "deadline_seconds"
    assert client().complete("Hi", deadline_seconds=0).status == 400


def test_models_are_listed_and_found_by_name() -> None:
    asked = client(aliases=("org/other",))
    body = asked.get("/v1/models").json()
    assert body["object"] == "list" and [card["id"] for card in body["data"]] == ["fake", "org/other"]
    assert asked.get("/v1/models/fake").json()["max_model_len"] == 64 * 16, "the pool's, less than the context"
    assert asked.get("/v1/models/org/other").json()["id"] == "org/other"
    missing = asked.get("/v1/models/gpt-4")
    assert (missing.status, missing.error["code"]) == (404, "model_not_found")
    assert asked.chat(model="org/other").json()["model"] == "org/other"


def test_small_routes_answer() -> None:
    asked = client()
    assert asked.get("/health").json() == {"status": "ok"}
    assert asked.get("/ready").json() == {"status": "ready"}
    assert set(asked.get("/version").json()) == {"version"}
    paths = asked.get("/openapi.json").json()["paths"]
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models", "/metrics", "/tokenize"} <= set(paths)


def test_tokenize_and_detokenize_are_inverse() -> None:
    asked = client()
    tokens = asked.post("/tokenize", {"prompt": "wörld"}).json()
    assert tokens["count"] == 6
    assert asked.post("/detokenize", {"tokens": tokens["tokens"]}).json() == {"prompt": "wörld"}
    chat = asked.post("/tokenize", {"messages": [{"role": "user", "content": "Hi"}]}).json()
    assert asked.post("/detokenize", {"tokens": chat["tokens"]}).json() == {"prompt": "<user>Hi<assistant>"}
    wrong = asked.post("/detokenize", {"tokens": [1, 257]})
    assert (wrong.status, wrong.error["param"]) == (400, "tokens[1]")
    assert asked.post("/tokenize", {}).status == 400


def test_metrics_tell_the_engine_and_the_answers() -> None:
    asked = client()
    asked.chat(stream=True)
    asked.post("/v1/chat/completions", {})
    asked.get("/nowhere/at/all")
    text = asked.get("/metrics").body.decode()
    for line in (
        "phloem_kv_blocks_free 40.0",
        "phloem_cached_tokens_total 45.0",
        'phloem_http_requests_total{method="POST",route="/v1/chat/completions",status="200"} 1.0',
        'phloem_http_requests_total{method="POST",route="/v1/chat/completions",status="400"} 1.0',
        'phloem_http_requests_total{method="GET",route="none",status="404"} 1.0',
        'phloem_finished_outputs_total{reason="stop"} 1.0',
        "phloem_time_to_first_token_seconds_count 1.0",
        "phloem_inter_token_latency_seconds_count 12.0",
    ):
        assert line in text, line
    assert "vllm:" not in text


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_metrics_may_use_another_servers_names(name: str) -> None:
    asked = client(metric_names=name)
    asked.chat()
    text = asked.get("/metrics").body.decode()
    assert f'{name}:prompt_tokens_total{{model_name="fake"}} 90.0' in text
    assert f'{name}:time_to_first_token_seconds_count{{model_name="fake"}} 1.0' in text


def test_two_applications_count_apart() -> None:
    first, second = client(), client()
    first.chat()
    assert 'reason="stop"' in first.get("/metrics").body.decode()
    assert 'reason="stop"' not in second.get("/metrics").body.decode()


def test_more_outputs_than_the_queue_holds_are_refused_before_anything_is_computed() -> None:
    asked = client()
    refused = asked.complete(["Hi"] * 16, n=65)
    assert refused.status == 400 and refused.error["param"] == "prompt" and not asked.engine.calls
    assert len(asked.complete("Hi", n=128).json()["choices"]) == 128
