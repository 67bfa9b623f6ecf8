"""SGLang's router, SMG (https://github.com/smg-project/smg), before two servers: hits, loads, a worker that is killed.

The router and both workers are processes of their own, on loopback.
"""

from __future__ import annotations

import importlib.util
import json
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from ..cli.serve_process import Process
from .loopback import until
from .smg_process import routing

WORKER = ("nano", "--num-blocks", "1024", "--no-warm-up", "--metric-names", "vllm")
ROUTER = ("--policy", "cache_aware", "--load-monitor-interval", "1")
NUM_FAMILIES, NUM_TURNS = 4, 3
MANY = 1500  # tokens: seconds of work


@dataclass
class Fleet:
    """A router and its workers.

    Attributes:
        router: a client of it.
        workers: by their URLs.
    """

    router: httpx.Client
    workers: dict[str, Process]

    def complete(self, prompt: str, **fields: object) -> Any:
        """The router's answer."""
        answer = self.router.post("/v1/completions", json=_body(prompt, **fields))
        assert answer.status_code == 200, answer.text
        return answer.json()

    def seen_loads(self) -> list[dict[str, Any]]:
        """The loads that the router has found at its last look."""
        found: list[dict[str, Any]] = self.router.get("/get_loads").json()["loads"]
        return found

    def busy_workers(self) -> list[str]:
        """URLs of the workers that say that they run a request."""
        found = {url: self.router.get(f"{url}/v1/loads").json()["loads"][0] for url in self.workers}
        return [url for url, load in found.items() if load["num_running_reqs"]]


def _body(prompt: str, **fields: object) -> dict[str, object]:
    return {"model": "nano", "prompt": prompt, "max_tokens": 4, "ignore_eos": True, **fields}


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with ExitStack() as stack:
        processes = [Process(*WORKER), Process(*WORKER)]
        for process in processes:
            stack.callback(process.close)
        workers = {process.url: process for process in processes}
        yield Fleet(stack.enter_context(routing([*ROUTER, "--worker-urls", *workers], len(workers))), workers)


@pytest.mark.skipif(importlib.util.find_spec("smg") is None, reason="needs SMG: pip install smg")
@pytest.mark.timeout(600)
def test_smg_finds_prefixes_sees_loads_and_goes_on_without_a_worker(fleet: Fleet) -> None:
    check_hits(fleet)
    check_loads(fleet)
    check_kill(fleet)


def check_hits(fleet: Fleet) -> None:
    """Every prompt that was sent before goes where its prefix is."""
    letters = random.Random(19)
    families = ["".join(letters.choices("abcdefgh ", k=400)) for _ in range(NUM_FAMILIES)]
    for turn in range(NUM_TURNS):
        for family in families:
            usage = fleet.complete(f"{family}{turn}")["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            assert cached <= 32 if turn == 0 else cached >= usage["prompt_tokens"] - 32, (turn, usage)


def check_loads(fleet: Fleet) -> None:
    """While workers work, the router sees it."""
    ends = threading.Event()

    def work() -> None:
        while not ends.is_set():
            fleet.complete("Long", max_tokens=MANY)

    def is_seen() -> bool:
        loads = fleet.seen_loads()
        working = [load for load in loads if load["num_running_reqs"] and load["num_used_tokens"]]
        assert all(load["token_usage"] > 0 for load in working)
        return len(loads) == 2 and all(load["max_total_num_tokens"] == 1024 * 16 for load in loads) and bool(working)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        until(is_seen)
    finally:
        ends.set()
        thread.join()


def check_kill(fleet: Fleet) -> None:
    """A worker is killed in the middle of a stream: that stream breaks off, and all later requests are answered."""
    with fleet.router.stream("POST", "/v1/completions", json=_body("Long", max_tokens=MANY, stream=True)) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith("data: {")
        [url] = fleet.busy_workers()
        fleet.workers[url].signal(signal.SIGKILL)
        rest = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    assert "error" in rest[-1] and len(rest) < MANY, "the router says that the stream broke off"
    assert all(choice["finish_reason"] is None for event in rest[:-1] for choice in event["choices"])
    for number in range(8):
        assert fleet.complete(f"After {number}")["usage"]["completion_tokens"] == 4
