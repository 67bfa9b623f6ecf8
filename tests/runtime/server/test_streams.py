"""Leaving, silence and slowness: what happens to the request when the client is not there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from .fakes import FakeAsyncEngine
from .wire import Answer, client, exchange

BODY = {"messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.parametrize("prompts", ["a", ["a", "b", "c"]])
@pytest.mark.parametrize("num_chunks", [0, 1, 4])
def test_a_client_that_leaves_a_stream_ends_its_request(prompts: Any, num_chunks: int) -> None:
    asked = client(FakeAsyncEngine(token_seconds=0.02))
    answer = asked.post(
        "/v1/completions",
        {"prompt": prompts, "stream": True},
        leave_after=lambda answer: len(answer.chunks) >= num_chunks,
    )
    assert num_chunks <= len(answer.chunks) <= num_chunks + 4
    assert asked.engine.num_open == 0 and asked.engine.num_aborted == len(asked.engine.calls) > 0


def test_a_client_that_leaves_before_the_answer_ends_its_request() -> None:
    asked = client(FakeAsyncEngine(token_seconds=0.05))
    answer = asked.post("/v1/chat/completions", BODY, leave_after=lambda answer: True)
    assert answer.status == 0 and asked.engine.num_aborted == 1 and asked.engine.num_open == 0
    assert 'status="499"' in asked.get("/metrics").body.decode()


def test_a_client_that_leaves_during_preparation_reaches_no_engine() -> None:
    asked = client(FakeAsyncEngine())
    asked.engine.gate.clear()
    answer = asked.post("/v1/chat/completions", {**BODY, "regex": "a"}, leave_after=lambda answer: True)
    asked.engine.gate.set()
    assert answer.status == 0 and asked.engine.calls == []


def test_a_silent_stream_is_pinged() -> None:
    asked = client(FakeAsyncEngine(token_seconds=0.1, reply="ab"), ping_interval=0.03)
    answer = asked.chat(stream=True)
    assert answer.body.count(b": ping\n\n") >= 3
    assert answer.chunks[0] == b": ping\n\n"
    texts = [event["choices"][0]["delta"].get("content") or "" for event in answer.events()[:-1]]
    assert "".join(texts) == "ab"


def test_a_busy_stream_is_not_pinged() -> None:
    assert b"ping" not in client().chat(stream=True).body


def test_a_constraint_that_takes_too_long_is_refused() -> None:
    asked = client(FakeAsyncEngine(), prepare_timeout=0.05)
    asked.engine.gate.clear()
    answer = asked.chat(regex="a")
    asked.engine.gate.set()
    assert (answer.status, answer.error["code"]) == (400, "prepare_timeout")


def test_preparation_does_not_hold_up_other_requests() -> None:
    asked = client(FakeAsyncEngine())
    asked.engine.gate.clear()
    order: list[str] = []

    async def ask(name: str, fields: dict[str, object]) -> None:
        body = json.dumps({**BODY, **fields}).encode()
        answer = await exchange(asked.app, "POST", "/v1/chat/completions", body, {"content-type": "application/json"})
        assert answer.status == 200
        order.append(name)
        asked.engine.gate.set()

    async def run() -> None:
        async with asked.app.router.lifespan_context(asked.app):
            await asyncio.gather(ask("hard", {"regex": "a"}), ask("easy", {}))

    asyncio.run(run())
    assert order == ["easy", "hard"]


def test_a_body_that_does_not_arrive_is_given_up() -> None:
    asked = client(body_timeout=0.05)

    async def run() -> Answer:
        answer = Answer()

        async def receive() -> dict[str, Any]:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Any) -> None:
            answer.status = message.get("status", answer.status)
            answer.chunks.append(message.get("body", b""))

        scope = {"type": "http", "method": "POST", "path": "/v1/completions", "query_string": b"", "root_path": ""}
        headers = [(b"content-type", b"application/json"), (b"content-length", b"10")]
        async with asked.app.router.lifespan_context(asked.app):
            await asked.app({**scope, "headers": headers}, receive, send)
        return answer

    answer = asyncio.run(run())
    assert (answer.status, answer.error["code"]) == (408, "request_timeout")
