"""One line of the log for every request, however it ends."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from phloem.errors import QueueFull
from phloem.runtime.request import Delta, FinishReason, Usage
from phloem.runtime.server.request_record import RequestRecord

from .fakes import FakeAsyncEngine
from .loopback import loopback, until
from .wire import client

HI: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}  # 19 tokens as a prompt, half of them cached
LINE = re.compile(
    r"(?P<id>req_[0-9a-f]{32}) (?P<what>\S+ \S+ \d+)(?: code=(?P<code>\S+))?(?: param=(?P<param>\S+))?"
    r"(?: prompt_tokens=(?P<prompt>\d+) cached_tokens=(?P<cached>\d+)(?: loaded_tokens=(?P<loaded>\d+))?"
    r" completion_tokens=(?P<completion>\d+))?"
    r"(?: first_token=(?P<first>\d+\.\d{3}))? seconds=(?P<seconds>\d+\.\d{3})(?P<rest>.*)"
)


def test_a_value_forges_no_field() -> None:
    record = RequestRecord()
    record.fail("c", "a seconds=9\nb")
    assert record.line().startswith(r"code=c param=a\x20seconds\x3d9\nb seconds=")


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, logger="phloem.server"):
        yield caplog


def lines(log: pytest.LogCaptureFixture) -> list[re.Match[str]]:
    found = [LINE.fullmatch(record.getMessage()) for record in log.records if record.levelno == logging.INFO]
    assert None not in found
    return [match for match in found if match is not None]


@pytest.mark.parametrize(
    ("path", "body", "counts"),
    [
        ("/v1/chat/completions", HI, (19, 9, 13)),
        ("/v1/chat/completions", {**HI, "n": 3}, (19, 9, 39)),
        ("/v1/completions", {"prompt": ["Hi", "Hum!"], "n": 2}, (6, 3, 52)),
        ("/v1/responses", {"input": "Hi"}, (19, 9, 13)),
        ("/v1/messages", {**HI, "max_tokens": 4}, (19, 9, 4)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_an_answer_leaves_one_line_with_its_tokens(
    path: str, body: dict[str, Any], counts: tuple[int, int, int], stream: bool, log: pytest.LogCaptureFixture
) -> None:
    answer = client().post(path, {**body, "stream": stream})
    [line] = lines(log)
    assert line["what"] == f"POST {path} 200" and line["id"] == answer.headers["x-request-id"]
    assert tuple(map(int, (line["prompt"], line["cached"], line["completion"]))) == counts
    assert 0 <= float(line["first"]) <= float(line["seconds"]) + 1e-3


@pytest.mark.parametrize(
    ("method", "path", "status", "place"),
    [
        ("POST", "/v1/chat/completions", 415, "/v1/chat/completions"),
        ("DELETE", "/v1/models", 405, "/v1/models"),
        ("GET", "/v1/models/none", 404, "/v1/models/{name:path}"),
        ("GET", "/v1/models", 200, "/v1/models"),
        ("HEAD", "/v1/models", 200, "/v1/models"),
        ("GET", "/now here\nreq_forged", 404, r"/now here\nreq_forged"),
        ("GET", "/" + "é" * 999, 404, "/" + r"\xe9" * 199),
    ],
)
def test_whatever_is_asked_leaves_one_line(
    method: str, path: str, status: int, place: str, log: pytest.LogCaptureFixture
) -> None:
    assert client().request(method, path).status == status
    [record] = [record for record in log.records if record.name == "phloem.server"]
    said = record.getMessage()
    code = "" if status == 200 else r"code=\w+ (param=\w+ )?"
    assert re.fullmatch(rf"req_\w{{32}} {method} {re.escape(place)} {status} {code}seconds=\d+\.\d+", said)


def test_refusals_and_faults_leave_one_line(log: pytest.LogCaptureFixture) -> None:
    client(api_keys=("k",)).post("/v1/chat/completions", HI)
    client(FakeAsyncEngine(refusal=QueueFull("full"))).post("/v1/chat/completions", HI)
    client(FakeAsyncEngine(failure=RuntimeError("boom"))).post("/v1/chat/completions", HI)
    client().post("/v1/chat/completions", {**HI, "model": "other"})
    statuses = ["401", "429", "500", "404"]
    assert [line["what"].split()[-1] for line in lines(log)] == statuses
    assert [line["completion"] is None for line in lines(log)] == [True, True, False, True]
    codes = ["invalid_api_key", "rate_limit_exceeded", "internal_error", "model_not_found"]
    assert [line["code"] for line in lines(log)] == codes
    assert [line["param"] for line in lines(log)] == [None, None, None, "model"]


def test_no_place_forges_a_line(log: pytest.LogCaptureFixture) -> None:
    """Nor a field of one: the name of a field that is not known comes from the caller."""
    answer = client().post("/v1/chat/completions", {**HI, "logit_bias": {"a\nreq_f code=200 " * 99: 1}})
    [line] = lines(log)
    assert answer.status == 400 and line["code"] and len(line[0]) < 1000 and "\n" not in line[0]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_client_that_leaves_leaves_a_line(stream: bool, log: pytest.LogCaptureFixture) -> None:
    asked = client(FakeAsyncEngine(token_seconds=0.05))
    asked.post("/v1/chat/completions", {**HI, "stream": stream}, leave_after=lambda answer: True)
    [line] = lines(log)
    assert line["what"] == "POST /v1/chat/completions 499"


def test_the_callers_id_stands_at_the_end(log: pytest.LogCaptureFixture) -> None:
    client().get("/v1/models", headers={"x-request-id": "it's 200 mine"})
    client().get("/v1/models", headers={"x-request-id": "ü\n"})  # is not used
    assert [line["rest"] for line in lines(log)] == [''' client_id="it's 200 mine"''', ""]


def test_what_is_asked_again_and_again_is_for_debug_unless_it_fails(log: pytest.LogCaptureFixture) -> None:
    for path in ("/health", "/ready", "/metrics"):
        assert client().get(path).status == 200
    assert lines(log) == []
    assert client(FakeAsyncEngine(is_alive=False)).get("/health").status == 503
    assert [line["what"] for line in lines(log)] == ["GET /health 503"]


def test_seconds_end_with_the_answer() -> None:
    now = [0.0]
    record = RequestRecord(lambda: now[0])
    now[0] = 1.5
    record.push(0, Delta("x", 0, "a", (1,), FinishReason.STOP, Usage(4, 2, completion_tokens=1)))
    now[0] = 2.25
    record.end()
    now[0] = 9.0
    record.end()
    assert record.line() == "prompt_tokens=4 cached_tokens=2 completion_tokens=1 first_token=1.500 seconds=2.250"


def test_what_was_read_from_a_tier_is_in_the_line() -> None:
    record = RequestRecord(lambda: 0.0)
    for output in range(2):  # of one prompt
        usage = Usage(40, 32, loaded_tokens=16, completion_tokens=1)
        record.push(0, Delta("x", output, "a", (1,), FinishReason.STOP, usage))
    expected = "prompt_tokens=40 cached_tokens=32 loaded_tokens=16 completion_tokens=2"
    assert record.line() == f"{expected} first_token=0.000 seconds=0.000"


@pytest.mark.parametrize(("level", "count"), [("info", 1), ("warning", 0)])
def test_the_server_prints_the_line_once(level: str, count: int, capfd: pytest.CaptureFixture[str]) -> None:
    with loopback(log_level=level) as served:
        assert served.ask(b"GET /v1/models HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200")
        until(lambda: not served.num_open)
    assert capfd.readouterr().err.count("GET /v1/models 200") == count


def test_browsers_see_the_id() -> None:
    origin = "https://app.example"
    answer = client(cors_origins=(origin,)).get("/v1/models", headers={"origin": origin})
    assert "x-request-id" in answer.headers["access-control-expose-headers"].lower()
    assert answer.headers["x-request-id"].startswith("req_")
