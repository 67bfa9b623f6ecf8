"""`phloem serve --replicas N` in processes of its own, and what is asked of it; for tests and for `bench/`."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "n": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 3, "maxItems": 6},
    },
    "required": ["name", "n", "tags"],
    "additionalProperties": False,
}
NUM_BLOCKS = 1024
REPLICA = b"ServeReplica:phloem:phloem-replica"


class Cluster:
    """A running server with several replicas."""

    def __init__(self, url: str, num_replicas: int, num_prefill: int) -> None:
        self.url = url
        self.num_replicas = num_replicas
        self.num_engines = num_replicas + num_prefill  # whose pools the front adds up

    def post(self, path: str, body: dict[str, Any]) -> Any:
        return urlopen(
            Request(self.url + path, json.dumps(body).encode(), {"content-type": "application/json"}), timeout=120
        )

    def get(self, path: str) -> str:
        with urlopen(self.url + path, timeout=60) as answer:
            text: str = answer.read().decode()
        return text

    def complete(self, prompt: Any, **fields: Any) -> dict[str, Any]:
        with self.post("/v1/completions", {"prompt": prompt, "max_tokens": 4, **fields}) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def cached(self, prompt: list[int], **fields: Any) -> int:
        usage = self.complete(prompt, **fields)["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    def load(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("/v1/loads"))["loads"][0]
        return found

    def metric(self, name: str) -> float:
        (value,) = re.findall(rf"^{name} (\S+)$", self.get("/metrics"), re.MULTILINE)
        return float(value)

    def wait(self, condition: Any) -> None:
        end = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < end, "what was waited for did not come"
            time.sleep(0.2)

    def is_whole(self) -> bool:
        """Whether all replicas are there, and the front has heard of them."""
        num_tokens = self.load()["max_total_num_tokens"]
        return len(self.replicas()) == self.num_replicas and num_tokens == self.num_engines * NUM_BLOCKS * 16

    def replicas(self) -> list[int]:
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _is_replica(path)]


def _is_replica(path: Path) -> bool:
    try:
        return REPLICA in (path / "cmdline").read_bytes()
    except OSError:
        return False


@contextmanager
def running_cluster(num_replicas: int, *others: str, num_prefill: int = 0) -> Iterator[Cluster]:
    """Starts it, with other options of `phloem serve` too, and ends it as an operator does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--replicas", str(num_replicas), "--num-blocks", str(NUM_BLOCKS), *others]
    options += ["--prefill-replicas", str(num_prefill)]
    server = subprocess.Popen(
        [sys.executable, "-m", "phloem", "serve", "nano", *options, "--num-threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert server.stdout is not None
    reader = threading.Thread(target=server.stdout.read)
    running = Cluster(f"http://127.0.0.1:{port}", num_replicas, num_prefill)
    try:
        for line in server.stdout:
            if b"phloem serves nano" in line:
                break
        assert server.poll() is None, "it has ended"
        reader.start()
        running.complete([5])
        running.wait(running.is_whole)
        yield running
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(120)
        reader.join()
        server.stdout.close()
    assert server.returncode == 0 and not running.replicas()


def streams(cluster: Cluster, kill_at: int | None) -> list[tuple[str, str]]:
    """Why each of 32 constrained streams ended, and its text; at frame `kill_at` of all of them a replica is killed."""
    found: dict[int, tuple[str, str]] = {}
    frames = itertools.count(1)
    victims = cluster.replicas()

    def run(number: int) -> None:
        body = {
            "messages": [{"role": "user", "content": f"Make item {number}"}],
            "seed": number,
            "temperature": 1.0,
            "stream": True,
            "max_tokens": 300,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        }
        text, reason = "", ""
        with cluster.post("/v1/chat/completions", body) as answer:
            for line in answer:
                if line.startswith(b"data: {"):
                    if next(frames) == kill_at:
                        os.kill(victims[0], signal.SIGKILL)
                    frame = json.loads(line[6:])
                    failed = [{"delta": {"content": line.decode()}, "finish_reason": "error"}]
                    for choice in frame.get("choices", failed):
                        text += choice["delta"].get("content") or ""
                        reason = choice["finish_reason"] or reason
        found[number] = (reason, text)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kill_at is None or next(frames) > kill_at, "nothing was killed"
    return [found[number] for number in range(32)]
