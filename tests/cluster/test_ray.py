"""`phloem serve --replicas 2` as a user starts it: hits by counts, a replica that is killed, a client that leaves.

And with `--prefill-replicas`: prompts are computed by one, answers by another.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from urllib.error import HTTPError

import jsonschema
import pytest

pytest.importorskip("ray.serve", reason="Ray Serve (phloem[ray]) is not installed")
pytest.importorskip("zmq", reason="pyzmq (phloem[ray]) is not installed")

from phloem.cluster.front import sender
from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import Delta, SamplingParams, Usage
from phloem.runtime.server.prepare import EngineCall

from .served_cluster import SCHEMA, Cluster, running_cluster, streams


def test_prompts_are_computed_by_some_and_answered_by_others(tmp_path: Path) -> None:
    """Before the others: its Ray has ended when theirs begins."""
    rng = Random(9)
    prompt = [rng.randrange(300, 1000) for _ in range(1000)]
    greedy = {"temperature": 0, "ignore_eos": True, "max_tokens": 12, "return_token_ids": True}
    with Engine("nano", device="cpu", num_blocks=1024) as alone:
        truth = alone.generate(prompt, SamplingParams(max_tokens=12, temperature=0.0, ignore_eos=True)).token_ids
    with running_cluster(1, "--disk-cache", str(tmp_path), num_prefill=1) as apart:
        answer = apart.complete(prompt, **greedy)
        assert answer["choices"][0]["token_ids"] == list(truth)
        assert answer["usage"]["prompt_tokens_details"]["loaded_tokens"] == 992, "of 1,000, the last block aside"
        assert apart.metric("phloem_retries_total") == 0
        assert apart.cached(prompt[:400], cache_salt="another") == 384, "it was loaded, too"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with running_cluster(2) as running:
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
    truth = streams(cluster, None)
    for _, text in truth:
        jsonschema.validate(json.loads(text), SCHEMA)
    before = cluster.metric("phloem_retries_total")
    for frame in (1, 100):
        cluster.wait(cluster.is_whole)
        assert streams(cluster, frame) == truth
    assert cluster.metric("phloem_retries_total") > before


def test_a_replicas_moments_are_on_the_fronts_clock() -> None:
    """Those of another machine mean nothing here."""

    async def replica(*_: object) -> AsyncIterator[Delta]:
        yield Delta("r", 0, "", (), None, Usage(queue_seconds=0.25, admitted_at=-1e6))
        yield Delta("r", 0, "", (), None, Usage(queue_seconds=0.0, admitted_at=None))

    async def moments() -> list[float | None]:
        handle = SimpleNamespace(options=lambda stream: SimpleNamespace(generate=SimpleNamespace(remote=replica)))
        call = EngineCall((), SamplingParams(), None, {})
        return [answer.usage.admitted_at async for answer in sender(handle)(b"", "", call) if isinstance(answer, Delta)]

    before = time.monotonic()
    admitted_at, never = asyncio.run(moments())
    assert admitted_at is not None and before + 0.25 <= admitted_at <= time.monotonic() + 0.25
    assert never is None
