"""Prompts at one replica, answers at another, without Ray: answers are those of one engine, whatever happens."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.cluster import known_routers
from phloem.cluster import prefill_first as module
from phloem.cluster.application import build
from phloem.cluster.front import LEAST_TOKENS, is_worth_a_prefill
from phloem.cluster.prefill_first import prefill_first
from phloem.cluster.remote_engine import Gone, RemoteEngine
from phloem.errors import ConfigError, EngineStopped, PhloemError, QueueFull
from phloem.runtime.engine.engine import Engine
from phloem.runtime.request import Delta, SamplingParams
from phloem.runtime.server.prefill import answers
from phloem.runtime.server.prepare import EngineCall

from ..runtime.fakes import NEVER, threaded_engine
from .test_remote_engine import CONSTRAINTS, Fleet, said

WAYS = ("whole", "dies", "refuses", "stopped", "nothing", "hangs")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


class Apart:
    """A prefill and a decode replica over one folder.

    Attributes:
        way: what becomes of the calls of the prefill replica.
    """

    def __init__(self, checkpoint: Path, blocks: Path, way: str) -> None:
        def make(role: str) -> Engine:
            return threaded_engine(folder=checkpoint, block_size=4, num_blocks=256, disk_cache=str(blocks), role=role)

        self.way = way
        self.prefill = Fleet(1, lambda: make("prefill"))
        self.decode = Fleet(1, lambda: make("decode"))
        self.num_prompts = 0

    async def compute(self, tokens: bytes, namespace: str, call: EngineCall) -> AsyncGenerator[Delta | PhloemError]:
        self.num_prompts += 1
        if self.way == "dies":
            raise Gone("ActorDiedError")
        if self.way == "refuses":
            yield QueueFull("all are busy")
            return
        if self.way == "stopped":
            raise EngineStopped("it has stopped")
        if self.way == "hangs":
            await asyncio.Event().wait()
        if self.way == "whole":
            async with aclosing(answers(self.prefill.replicas[0], array("i", tokens), call)) as deltas:
                async for delta in deltas:
                    yield delta

    def front(self) -> RemoteEngine:
        send = prefill_first(self.compute, self.decode.send, is_worth_a_prefill)
        return RemoteEngine(threaded_engine(num_blocks=2), send, list)

    def run(self, work: Any) -> Any:
        try:
            return self.decode.run(work)
        finally:
            self.prefill.replicas[0].stop()


@settings(deadline=None, max_examples=12)
@given(
    st.integers(0, 2**40),
    st.sampled_from(CONSTRAINTS),
    st.sampled_from([1, 3]),
    st.sampled_from([0.0, 1.0]),
    st.sampled_from(WAYS),
)
def test_answers_are_those_of_one_engine(
    tmp_path_factory: pytest.TempPathFactory,
    checkpoint: Path,
    seed: int,
    constraint: Any,
    n: int,
    temperature: float,
    way: str,
) -> None:
    rng = Random(seed)
    sampling = SamplingParams(max_tokens=24, temperature=temperature, seed=seed, n=n, stop=NEVER, logprobs=1)
    prompt = [rng.randrange(256) for _ in range(rng.randint(LEAST_TOKENS, 90))]
    lone = Fleet(1)
    truth = lone.run(said(lone.front(), prompt, sampling, constraint, namespace="salt"))
    pair = Apart(checkpoint, tmp_path_factory.mktemp("blocks"), way)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PATIENCE", 0.05 if way == "hangs" else 60.0)
        assert pair.run(said(pair.front(), prompt, sampling, constraint, namespace="salt")) == truth
    assert pair.num_prompts == 1
    loaded = pair.decode.replicas[0].statistics().loaded_tokens
    assert loaded == ((len(prompt) - 1) // 4 * 4 if way == "whole" else 0)
    assert pair.prefill.replicas[0].statistics().completion_tokens == (1 if way == "whole" else 0)


class Router:
    """What the front asks of a `PrefixRouter`."""

    def __init__(self, *, is_for_prefill: bool, has_replicas: bool = True, missing: int = 0) -> None:
        self.is_for_prefill, self.has_replicas = is_for_prefill, has_replicas
        self.num_missing = lambda tokens, namespace: missing


@pytest.mark.parametrize("missing", [LEAST_TOKENS - 1, LEAST_TOKENS])
@pytest.mark.parametrize("has_replicas", [True, False])
def test_a_prompt_is_computed_elsewhere_if_much_of_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, missing: int, has_replicas: bool
) -> None:
    tokens = bytes(4 * missing)
    assert is_worth_a_prefill(tokens, "") == (missing == LEAST_TOKENS), "before any router is known"
    routers = [
        Router(is_for_prefill=True, has_replicas=has_replicas),
        Router(is_for_prefill=False, missing=missing),
        Router(is_for_prefill=False, missing=1000),
    ]
    monkeypatch.setattr(known_routers, "ROUTERS", routers)
    assert is_worth_a_prefill(bytes(4000), "") == (missing == LEAST_TOKENS and has_replicas)


def test_an_application_needs_a_store_for_it() -> None:
    with pytest.raises(ConfigError, match=r"prefill_replicas: .* shared_cache .* disk_cache"):
        build({"model": "nano", "prefill_replicas": 1})
    with pytest.raises(ConfigError, match="prefill_replicas: expected a whole number of at least 0, got -1"):
        build({"model": "nano", "prefill_replicas": -1})
    with pytest.raises(ConfigError, match=r"role: no argument of phloem\.cluster:build"):
        build({"model": "nano", "role": "prefill"})
