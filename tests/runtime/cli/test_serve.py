"""The server as a process of its own."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator

import pytest

from .serve_process import Process
from .shell import Shell

SMALL = ("--num-blocks", "256")


@pytest.fixture
def server() -> Iterator[Process]:
    process = Process("--num-blocks", "1024", "--api-key", "sk-x", "--served-model-name", "mine", "--enable-admin")
    try:
        yield process
    finally:
        process.close()


def test_serve_finishes_what_runs_when_it_is_asked_to_stop(server: Process, shell: Shell) -> None:
    assert shell("inspect", "--cache", server.url, "--api-key", "sk-x") == 0
    assert "pool of 1,024 blocks of 16 tokens" in shell.out
    assert shell("inspect", "--cache", server.url) == 2
    assert "--api-key" in shell.err
    body = {"model": "mine", "prompt": "Hi", "max_tokens": 400, "ignore_eos": True, "stream": True}
    headers = {"content-type": "application/json", "authorization": "Bearer sk-x"}
    stream, late = server.connect(), server.connect()
    try:
        stream.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = stream.getresponse()
        assert answer.status == 200
        first = answer.readline()
        server.signal(signal.SIGTERM)
        late.request("POST", "/v1/completions", json.dumps(body), headers)
        refused = late.getresponse()
        assert refused.status == 503 and refused.getheader("Retry-After")
        refused.read()
        events = (first + answer.read()).decode().split("\n\n")
    finally:
        stream.close()
        late.close()
    assert events[-2] == "data: [DONE]"
    assert json.loads(events[-3].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert server.wait() == 0, "".join(server.log)
    assert "Traceback" not in "".join(server.log)


def test_a_port_in_use_is_refused_before_the_model_is_loaded(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert shell("serve", "--port", port) == 2
    assert f"--port {port}" in shell.err and "in use" in shell.err
