"""`phloem serve --replicas 2` as a user starts it: hits by counts, a replica that is killed, a client that leaves.

And with `--prefill-replicas`: prompts are computed by one, answers by another.
"""

from __future__ import annotations

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
from random import Random
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import jsonschema
import pytest

pytest.importorskip("ray", reason="Ray Serve (phloem[ray]) is not installed")
pytest.importorskip("zmq", reason="pyzmq (phloem[ray]) is not installed")

from phloem.runtime.engine import Engine
from phloem.runtime.request import SamplingParams

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
REPLICA = b"ServeReplica:phloem:phloem-replica"


class Cluster:
    """A running server with two replicas."""

    def __init__(self, url: str) -> None:
        self.url = url

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

    def replicas(self) -> list[int]:
        return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and _is_replica(path)]


def _is_replica(path: Path) -> bool:
    try:
        return REPLICA in (path / "cmdline").read_bytes()
    except OSError:
        return False


@contextmanager
def serving(*options: str) -> Iterator[Cluster]:
    """A server with two replicas."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("--port", str(port), "--num-blocks", "1024", "--num-threads", "1", *options)
    server = subprocess.Popen(
        [sys.executable, "-m", "phloem", "serve", "nano", *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert server.stdout is not None
    reader = threading.Thread(target=server.stdout.read)
    running = Cluster(f"http://127.0.0.1:{port}")
    try:
        for line in server.stdout:
            if b"phloem serves nano" in line:
                break
        assert server.poll() is None, "it has ended"
        reader.start()
        running.complete([5])
        running.wait(lambda: running.load()["max_total_num_tokens"] == 2 * 1024 * 16)
        yield running
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(120)
        reader.join()
        server.stdout.close()
    assert server.returncode == 0 and not running.replicas()


def test_prompts_are_computed_by_some_and_answered_by_others(tmp_path: Path) -> None:
    """Before the others: its Ray has ended when theirs begins."""
    rng = Random(9)
    prompt = [rng.randrange(300, 1000) for _ in range(1000)]
    greedy = {"temperature": 0, "ignore_eos": True, "max_tokens": 12, "return_token_ids": True}
    with Engine("nano", device="cpu", num_blocks=1024) as alone:
        truth = alone.generate(prompt, SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)).token_ids
    with serving("--replicas", "1", "--prefill-replicas", "1", "--disk-cache", str(tmp_path)) as apart:
        answer = apart.complete(prompt, **greedy)
        assert answer["choices"][0]["token_ids"] == list(truth)
        assert answer["usage"]["prompt_tokens_details"]["loaded_tokens"] == 992, "of 1,000, the last block aside"
        assert apart.metric("phloem_retries_total") == 0
        assert apart.cached(prompt[:400], cache_salt="another") == 384, "it was loaded, too"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with serving("--replicas", "2") as running:
        yield running


def test_repeated_prompts_go_where_they_are_cached(cluster: Cluster) -> None:
    rng = Random(1)
    families = [[rng.randrange(300, 1000) for _ in range(1000)] for _ in range(6)]
    for family in families:
        assert cluster.cached(family) < 16
    before = cluster.metric("phloem_retries_total")
    hits = [cluster.cached([*family, rng.randrange(300, 1000)]) >= 992 for _ in range(3) for family in families]
    assert all(hits) and cluster.metric("phloem_retries_total") == before


def test_a_namespace_hits_its_own_blocks_only(cluster: Cluster) -> None:
    prompt = [Random(2).randrange(300, 1000) for _ in range(500)]
    for salt in ("one", "two"):
        assert cluster.cached(prompt, cache_salt=salt) < 16
        assert cluster.cached(prompt, cache_salt=salt) >= 480


def test_a_schema_is_obeyed_and_a_wrong_one_is_refused_as_by_one_engine(cluster: Cluster) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    body = {"messages": [{"role": "user", "content": "An item"}], "max_tokens": 300, "response_format": wanted}
    with cluster.post("/v1/chat/completions", body) as answer:
        said = json.load(answer)["choices"][0]["message"]["content"]
    jsonschema.validate(json.loads(said), SCHEMA)
    wanted["json_schema"] = {"name": "x", "schema": {"type": "thing"}}
    with pytest.raises(HTTPError) as caught:
        cluster.post("/v1/chat/completions", body)
    with caught.value as refusal:
        assert refusal.code == 400 and b"thing" in refusal.read()


def test_a_client_that_leaves_ends_its_request(cluster: Cluster) -> None:
    body = {"prompt": [7], "max_tokens": 4000, "ignore_eos": True, "stream": True}
    with cluster.post("/v1/completions", body) as answer:
        answer.readline()
    cluster.wait(lambda: cluster.load()["num_total_reqs"] == 0)


def test_a_killed_replica_changes_no_answer(cluster: Cluster) -> None:
    """32 constrained streams, half of them at the replica that is killed."""
    truth = _streams(cluster, None)
    for _, text in truth:
        jsonschema.validate(json.loads(text), SCHEMA)
    before = cluster.metric("phloem_retries_total")
    for num_begun in (1, 20):
        cluster.wait(lambda: len(cluster.replicas()) == 2 and cluster.load()["max_total_num_tokens"] == 2 * 1024 * 16)
        assert _streams(cluster, num_begun) == truth
    assert cluster.metric("phloem_retries_total") > before


def lines_of(answer: Any) -> Iterator[bytes]:
    with answer:
        yield from answer


def _streams(cluster: Cluster, kill_at: int | None) -> list[tuple[str, str]]:
    """Why each stream ended, and its text; when so many have begun, a replica is killed."""
    found: dict[int, tuple[str, str]] = {}
    begun: set[int] = set()
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
        for line in lines_of(cluster.post("/v1/chat/completions", body)):
            if line.startswith(b"data: {"):
                if number not in begun:
                    begun.add(number)
                    if len(begun) == kill_at:
                        os.kill(victims[0], signal.SIGKILL)
                frame = json.loads(line[6:])
                for choice in frame.get("choices", [{"delta": {"content": line.decode()}, "finish_reason": "error"}]):
                    text += choice["delta"].get("content") or ""
                    reason = choice["finish_reason"] or reason
        found[number] = (reason, text)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(32)]
