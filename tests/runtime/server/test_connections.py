"""Clients that keep a connection and do not go on: no head, no body, no reading; and too many of them."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from resource import RLIM_INFINITY
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phloem.runtime.server import ServerSettings
from phloem.runtime.server.connections import Connections

from .fakes import FakeAsyncEngine
from .loopback import can_send, is_closed, loopback, until
from .wire import client

SMALL = 4096  # bytes of a socket's buffer: the system makes a few kilobytes of it
HEALTH = b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"


def post(path: str, body: dict[str, Any], *headers: str) -> bytes:
    text = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: a", "Content-Type: application/json", f"Content-Length: {len(text)}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode() + text


def chat(**fields: Any) -> bytes:
    return post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], **fields})


# -- one look at a time --------------------------------------------------------------------------------------------


@dataclass
class Transport:
    """What is done to it; `left` bytes are not taken yet."""

    left: int = 0
    closing: bool = False
    done: list[str] = field(default_factory=list)

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.left

    def close(self) -> None:
        self.done.append("close")

    def abort(self) -> None:
        self.done.append("abort")


class Protocol:
    """As uvicorn's: `cycle` is the last request."""

    def __init__(self) -> None:
        self.transport = Transport()
        self.flow = SimpleNamespace(write_paused=False)
        self.cycle: SimpleNamespace | None = None

    def move(self, move: str) -> None:
        if move == "request":
            self.cycle = SimpleNamespace(response_complete=False)
        elif move == "answer" and self.cycle is not None:
            self.cycle.response_complete = True
        elif move in ("stall", "resume"):
            self.flow.write_paused = move == "stall"
            self.transport.left = 100_000 if move == "stall" else 0
        elif move == "close":
            self.transport.closing, self.transport.left = True, 7
        elif move == "sip":
            self.transport.left = max(0, self.transport.left - 1)

    @property
    def state(self) -> object:
        if self.flow.write_paused or self.transport.closing:
            return "reader", self.transport.left
        if self.cycle is None or self.cycle.response_complete:
            return "head", id(self.cycle)
        return None


MOVES = st.sampled_from(["request", "answer", "stall", "sip", "resume", "close", "nothing", "nothing"])


@given(st.lists(st.tuples(MOVES, st.integers(1, 9)), max_size=40))
def test_a_connection_is_ended_when_and_only_when_nothing_has_happened_for_so_long(
    moves: list[tuple[str, int]],
) -> None:
    protocol, now, since, before = Protocol(), 0, 0, object()
    connections = Connections(ServerSettings(header_timeout=10, send_timeout=20))
    for move, seconds in [("nothing", 1), *moves]:
        now += seconds
        protocol.move(move)
        if protocol.state != before:
            before, since = protocol.state, now
        connections.sweep([protocol], now)
        kind = before[0] if isinstance(before, tuple) else None
        limit, expected = {"head": (10, "close"), "reader": (20, "abort"), None: (now + 1, "")}[kind]
        assert protocol.transport.done == [expected] * (now - since >= limit)
        protocol.transport.done.clear()


# -- over sockets ----------------------------------------------------------------------------------------------------


def test_connections_without_a_whole_head_are_closed_and_running_requests_are_not() -> None:
    """Nothing sent; half a head; one that comes byte by byte; half of a second one. A stream runs on meanwhile."""
    slow = FakeAsyncEngine(reply="x" * 30, token_seconds=0.1)
    with loopback(slow, header_timeout=1.0) as served, served.connect(chat(stream=True)) as stream:
        waiting = [served.connect(start) for start in [b"", HEALTH[:-2]] * 20]
        again = [served.connect(HEALTH) for _ in range(5)]
        for made in again:
            assert b"200 OK" in made.recv(1 << 16)
            made.sendall(HEALTH[:9])
        dripping = served.connect()
        until(lambda: not can_send(dripping, b"G") or is_closed(dripping))
        for made in [*waiting, *again]:
            until(lambda made=made: is_closed(made))
            made.close()
        dripping.close()
        text = b""
        while not text.endswith(b"[DONE]\n\n\r\n") and (piece := stream.recv(1 << 16)):
            text += piece
        assert text.count(b'"content":"x"') == 30 and slow.num_aborted == 0


def test_one_connection_too_many_is_refused_until_another_ends(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, logger="phloem.server"),
        loopback(max_connections=2, log_level="warning") as served,
    ):
        kept = [served.connect(HEALTH) for _ in range(2)]
        until(lambda: served.num_open == 2)
        refused = served.ask(b"")
        assert refused.startswith(b"HTTP/1.1 503") and b"Retry-After: 1" in refused
        assert json.loads(refused.partition(b"\r\n\r\n")[2])["error"]["code"] == "unavailable"
        kept[0].close()
        until(lambda: served.num_open == 1)
        with served.connect(HEALTH) as made:
            assert made.recv(1 << 16).startswith(b"HTTP/1.1 200")
        kept[1].close()
        until(lambda: "1 connections were refused" in caplog.text)


@pytest.mark.parametrize(
    ("open_files", "most"), [(64, 32), (256, 128), (1024, 896), (8320, 8192), (1 << 20, 8192), (RLIM_INFINITY, 8192)]
)
def test_without_a_bound_on_connections_that_on_open_files_makes_one(
    open_files: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but 128 of them, or half where that is more; 8192 at most."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (open_files, RLIM_INFINITY))
    assert Connections(ServerSettings())._limit == most


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_a_client_that_never_reads_loses_its_request_and_its_connection(stream: bool) -> None:
    engine = FakeAsyncEngine(reply="x" * 4000)
    sent = chat(stream=stream, logprobs=True, top_logprobs=5)
    with loopback(engine, send_buffer=SMALL, send_timeout=1.0, header_timeout=1.0) as served:
        unread = [served.connect(sent, receive_buffer=SMALL) for _ in range(4)]
        with served.connect(sent) as reader:
            text = b""
            while not text.endswith(b"[DONE]\n\n\r\n" if stream else b"}}") and (piece := reader.recv(1 << 16)):
                text += piece
            assert text.count(b'"bytes":[120],"top_logprobs"') == 4000  # a client that reads gets everything
        until(lambda: served.num_open == 0 and engine.num_open == 0)
        assert engine.num_aborted == (4 if stream else 0)
        for made in unread:
            made.close()


BIG = 50_000_000


@pytest.mark.parametrize(
    ("head", "status"),
    [
        ("POST /v1/completions HTTP/1.1", 413),
        ("POST /v1/completions HTTP/1.0", 413),
        ("POST /v1/completions HTTP/1.1\r\nConnection: close", 413),
        ("POST /v1/completions HTTP/1.1\r\nX-Api-Key: wrong", 401),
        ("POST /nowhere HTTP/1.0", 404),
        ("POST /health HTTP/1.0", 405),
        ("POST /v1/completions HTTP/1.0\r\nContent-Encoding: gzip", 415),
    ],
)
@pytest.mark.parametrize("chunked", [False, True], ids=["sized", "chunked"])
def test_a_client_that_sends_all_before_it_reads_sees_why_it_was_refused(head: str, status: int, chunked: bool) -> None:
    if chunked and "HTTP/1.0" in head:
        head = head.replace("HTTP/1.0", "HTTP/1.1") + "\r\nConnection: close"
    body = b" " * (BIG if status == 413 else BIG // 10)
    size = f"Content-Length: {len(body)}"
    if chunked:
        size, body = "Transfer-Encoding: chunked", b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    key = "" if status == 401 else "X-Api-Key: k\r\n"
    text = f"{head}\r\nHost: a\r\nContent-Type: application/json\r\n{key}{size}\r\n\r\n"
    with loopback(api_keys=("k",), header_timeout=1.0) as served:
        answer = served.ask(text.encode() + body)
    assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["message"]


def test_a_body_that_never_ends_is_left_after_the_answer() -> None:
    """The answer is there at once; what follows it is dropped for a while, and then no longer."""
    with loopback(body_timeout=0.3, header_timeout=0.3) as served:
        head = (
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 9999999999"
        )
        with served.connect(head + b"\r\n\r\n") as made:
            assert made.recv(1 << 16).startswith(b"HTTP/1.1 413")
            until(lambda: not can_send(made, b" " * 1000))
        until(lambda: served.num_open == 0)


def test_what_follows_a_refusal_on_the_same_connection_is_answered() -> None:
    body = b" " * 300_000
    head = b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    with loopback() as served, served.connect(head + body + HEALTH) as made:
        text = b""
        while b'{"status":"ok"}' not in text and (piece := made.recv(1 << 16)):
            text += piece
        assert text.startswith(b"HTTP/1.1 404") and b"HTTP/1.1 200" in text


def test_an_upgrade_to_websockets_leaves_no_line_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    upgrade = b"GET /v1/realtime HTTP/1.1\r\nHost: a\r\nConnection: close, Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with caplog.at_level(logging.WARNING), loopback(api_keys=("k",), log_level="warning") as served:
        logging.getLogger("uvicorn.error").propagate = True
        caplog.clear()
        assert served.ask(upgrade).startswith(b"HTTP/1.1 401")
        assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("name", ["header_timeout", "send_timeout", "max_connections"])
def test_bounds_are_positive(name: str) -> None:
    with pytest.raises(Exception, match=f"{name}: 0 is out of range"):
        client(**{name: 0})


@pytest.mark.parametrize("dies", [False, True])
def test_a_server_whose_engine_has_died_ends_and_has_failed(dies: bool) -> None:
    with loopback() as served:
        if dies:
            served.engine.is_alive = False
            until(lambda: served.server.should_exit)
    assert served.server.has_failed is dies
