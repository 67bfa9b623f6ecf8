"""NVIDIA Dynamo's KV indexer, fed by the engine's events, knows what the tree has.

The indexer runs in this process (`SelectionService` of ai-dynamo-runtime, which subscribes by itself, asks for replays,
and answers how many blocks of a prompt a worker has); the standalone one is the same code, but listens on all
interfaces.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("zmq", reason="pyzmq (phloem[events]) is not installed")
pytest.importorskip("msgpack", reason="msgpack (phloem[events]) is not installed")
pytest.importorskip("dynamo._core", reason="ai-dynamo-runtime, a router's indexer, is not installed")

from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import SamplingParams

from .traffic import SIZE, Traffic, endpoints, make_engine

LOCAL = "tcp://127.0.0.1:*"


class Indexer:
    """Dynamo's; worker 1 is the engine."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._service: Any = pytest.importorskip("dynamo._core").SelectionService(indexer_threads=1)

    def subscribe(self, engine: Engine) -> None:
        events, replay = endpoints(engine)
        worker = {
            "worker_id": 1,
            "model_name": "fake",
            "block_size": SIZE,
            "endpoint": "http://127.0.0.1:1",
            "kv_events_endpoint": events,
            "replay_endpoint": replay,
            "max_num_batched_tokens": 1000,
        }
        self._ask("upsert_worker", worker)
        prompt = [200 + number for number in range(SIZE)]
        while not self.knows(prompt, "", None):  # until then its socket may not be connected
            engine.flush_cache()
            engine.generate(prompt, SamplingParams(max_tokens=1))
            time.sleep(0.01)

    def _ask(self, name: str, request: dict[str, Any]) -> Any:
        async def asked() -> Any:
            return await getattr(self._service, name)(request)

        return self._loop.run_until_complete(asked())

    def knows(self, prompt: list[int], namespace: str, adapter: str | None) -> int:
        """Blocks of a prompt that the engine has on its device, as the indexer believes."""
        request: dict[str, Any] = {"token_ids": prompt, "model_name": "fake"}
        if adapter is not None:
            request["lora_name"] = adapter
        if namespace:
            request["cache_salt"] = namespace
        (worker,) = self._ask("overlap_scores", request)["workers"] or [{"device_blocks": 0}]
        return int(worker["device_blocks"])

    def close(self) -> None:
        self._service.shutdown()
        self._loop.close()


@contextmanager
def indexer_of(engine: Engine) -> Iterator[Indexer]:
    indexer = Indexer()
    try:
        indexer.subscribe(engine)
        yield indexer
    finally:
        indexer.close()


def wait_until_equal(indexer: Indexer, traffic: Traffic, *, with_salted: bool = True) -> int:
    """Of the last prompts; returns how many questions agreed."""
    end = time.monotonic() + 20.0
    asked = [one for one in traffic.prompts[-12:] if len(one[0]) >= SIZE]
    expected = [traffic.cached(*one) if with_salted or not one[1] else 0 for one in asked]
    while (found := [indexer.knows(*one) for one in asked]) != expected:
        assert time.monotonic() < end, list(zip(asked, expected, found, strict=True))
        time.sleep(0.005)
    return len(asked)


@pytest.mark.parametrize("form", ["map", "array"])
def test_it_knows_what_the_tree_has_after_each_step(form: str) -> None:
    """Adapters included. It subscribes after the first steps, and so begins with a replay."""
    engine = make_engine({"endpoint": LOCAL, "replay_endpoint": LOCAL, "format": form}, num_blocks=60)
    traffic = Traffic(engine, 3)
    for _ in range(20):
        traffic.step()
    num_asked = 0
    with indexer_of(engine) as indexer:
        for _ in range(1000 if form == "map" else 200):
            traffic.step()
            num_asked += wait_until_equal(indexer, traffic, with_salted=False)
        traffic.finish()
        wait_until_equal(indexer, traffic, with_salted=False)
    assert num_asked > 1000
    assert engine.statistics().num_evicted_blocks > 50
    engine.close()


def test_salts_are_its_cache_salts_where_they_are_published() -> None:
    engine = make_engine({"endpoint": LOCAL, "replay_endpoint": LOCAL, "include_salted": True}, num_blocks=60)
    traffic = Traffic(engine, 4)
    with indexer_of(engine) as indexer:
        for _ in range(200):
            traffic.step()
            wait_until_equal(indexer, traffic)
    engine.close()
