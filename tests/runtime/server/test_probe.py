"""Whether the engine still generates: of an engine that is idle, busy, full, slow, hung or broken, and at what cost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
import torch

from phloem.errors import EngineStopped, PhloemError, QueueFull
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.engine.statistics import COUNTED
from phloem.runtime.request import SamplingParams
from phloem.runtime.server.probe import GLANCE, Probe

from ..fakes import NEVER, FakeDecoder, fake_engine, threaded_engine
from .fakes import FakeAsyncEngine
from .wire import client

AT_ONCE, LONG = 0.01, 3600.0  # seconds
GREEDY = SamplingParams(max_tokens=4, temperature=0.0, ignore_eos=True)


@dataclass(frozen=True)
class Steps:
    num_steps: int


@dataclass(frozen=True)
class Said:
    token_ids: tuple[int, ...] = (7,)


@dataclass
class StubEngine:
    """An engine for a probe alone.

    Attributes:
        gives: set: a token comes.
        works: each look at its statistics finds one more step done.
        refusal: raised in place of a token.
        num_probes, num_open: streams that were begun, and that are open.
    """

    gives: asyncio.Event = field(default_factory=asyncio.Event)
    works: bool = False
    refusal: PhloemError | None = None
    num_probes: int = 0
    num_open: int = 0
    num_steps: int = 0

    def statistics(self) -> Steps:
        self.num_steps += self.works
        return Steps(self.num_steps)

    async def generate(self, prompt: list[int], sampling: SamplingParams, *, is_probe: bool) -> AsyncIterator[Said]:
        assert is_probe and sampling.max_tokens == 1 and len(prompt) == 1
        self.num_probes += 1
        self.num_open += 1
        try:
            if self.refusal is not None:
                raise self.refusal
            await self.gives.wait()
            yield Said()
        finally:
            self.num_open -= 1


def probe_of(engine: object, patience: float = AT_ONCE, limit: float = AT_ONCE) -> Probe:
    return Probe(cast(AsyncEngine, engine), patience, limit)


async def settle(engine: StubEngine) -> None:
    """Until no stream is open."""
    while engine.num_open:
        await asyncio.sleep(0)


FULL, STOPPED = QueueFull("too many requests are waiting"), EngineStopped("it has stopped")


@pytest.mark.parametrize(
    ("made", "patience", "limit", "is_healthy"),
    [
        ({"gives": True}, LONG, LONG, True),
        ({"works": True}, AT_ONCE, LONG, True),  # its own token never comes, but steps are done
        ({"works": True, "refusal": FULL}, AT_ONCE, LONG, True),
        ({"refusal": FULL}, AT_ONCE, AT_ONCE, False),
        ({"refusal": STOPPED}, LONG, LONG, False),
    ],
    ids=["idle", "busy", "full", "full and hung", "broken"],
)
def test_an_engine_is_healthy_if_it_gives_a_token_or_works(
    made: dict[str, Any], patience: float, limit: float, is_healthy: bool
) -> None:
    async def run() -> None:
        engine = StubEngine(**{name: value for name, value in made.items() if name != "gives"})
        if "gives" in made:
            engine.gives.set()
        assert await probe_of(engine, patience, limit).generates() == is_healthy
        await settle(engine)

    asyncio.run(run())


def test_a_slow_engine_has_until_the_limit() -> None:
    async def run() -> None:
        engine = StubEngine()
        asked = asyncio.ensure_future(probe_of(engine, AT_ONCE, LONG).generates())
        while not engine.num_open:
            await asyncio.sleep(0)
        await asyncio.sleep(5 * AT_ONCE)
        assert not asked.done()
        engine.gives.set()
        assert await asked

    asyncio.run(run())


def test_a_hung_engine_is_found_and_so_is_its_recovery() -> None:
    async def run() -> None:
        engine = StubEngine()
        probe = probe_of(engine)
        assert not await probe.generates()
        await settle(engine)
        engine.gives.set()
        assert await probe.generates()
        assert engine.num_probes == 2

    asyncio.run(run())


def test_callers_share_one_probe_and_may_leave() -> None:
    async def run() -> None:
        engine = StubEngine()
        probe = probe_of(engine, LONG, LONG)
        callers = [asyncio.ensure_future(probe.generates()) for _ in range(10)]
        while not engine.num_open:
            await asyncio.sleep(0)
        callers[0].cancel()
        await asyncio.sleep(0)
        engine.gives.set()
        found = await asyncio.gather(*callers, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError) and found[1:] == [True] * 9
        assert engine.num_probes == 1

    asyncio.run(run())


def test_the_route_says_what_the_probe_finds() -> None:
    assert client().get("/health_generate").json() == {"status": "ok"}
    answer = client(FakeAsyncEngine(refusal=STOPPED)).get("/health_generate")
    assert answer.status == 503 and answer.error["code"] == "unavailable" and "retry-after" in answer.headers


class GatedDecoder(FakeDecoder):
    """Computes while `gate` is set; `entered` once it is at work."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.entered = threading.Event(), threading.Event()

    def forward(self, *arguments: Any) -> torch.Tensor:
        self.entered.set()
        assert self.gate.wait(60)
        return super().forward(*arguments)


@pytest.mark.parametrize("is_busy", [True, False])
def test_an_engine_that_hangs_in_a_step_is_found(is_busy: bool) -> None:
    """In a step of another request, or of the probe itself: that a step was begun is no sign of life."""
    decoder = GatedDecoder()
    driver = AsyncEngine(threaded_engine(decoder=decoder))

    async def run() -> None:
        if is_busy:
            driver.submit([1, 2, 3], GREEDY)
        asked = asyncio.ensure_future(probe_of(driver, AT_ONCE, LONG).generates())
        assert await asyncio.to_thread(decoder.entered.wait, 60)
        await asyncio.sleep(3 * GLANCE)
        assert not asked.done() and not await probe_of(driver).generates()
        decoder.gate.set()
        assert await asked

    try:
        asyncio.run(run())
    finally:
        decoder.gate.set()
        driver.stop()


def test_a_probe_waits_in_no_queue() -> None:
    """The batch is full of a long request: the probe sees its progress."""
    driver = AsyncEngine(threaded_engine(num_blocks=1024, max_running_requests=1))
    endless = SamplingParams(max_tokens=3000, temperature=0.0, ignore_eos=True, stop=NEVER)
    stream = driver.submit([1, 2, 3], endless)
    try:
        assert asyncio.run(probe_of(driver, AT_ONCE, LONG).generates())
    finally:
        stream.abort()
        driver.stop()


def test_a_probe_is_in_no_sum_and_no_cache() -> None:
    engine = fake_engine()
    engine.generate([5, 6, 7, 8, 9], GREEDY)
    before, report = engine.statistics(), engine.cache_report()
    engine.generate([5], SamplingParams(max_tokens=7, temperature=0.0, ignore_eos=True), is_probe=True)
    after = engine.statistics()
    work = ("num_steps", "num_ahead", "num_forwards", "num_computed_tokens", "jumped_tokens")
    for name in COUNTED:
        if name not in work:
            assert getattr(after, name) == getattr(before, name), name
    assert after.num_computed_tokens > before.num_computed_tokens
    assert after.num_cached_blocks == before.num_cached_blocks and after.num_free_blocks == before.num_free_blocks
    assert engine.cache_report() == report
    engine.core.audit()


def test_a_probe_that_waits_is_in_no_load() -> None:
    engine = fake_engine()
    engine.add([5, 6, 7], GREEDY, is_probe=True)
    assert engine.statistics().num_waiting_tokens == 0
    engine.add([5, 6, 7], GREEDY)
    assert engine.statistics().num_waiting_tokens == 3
