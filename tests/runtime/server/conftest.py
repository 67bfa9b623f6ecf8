"""A real server on a loopback port, over the bundled model, shared by the tests of this folder."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from openai import OpenAI

from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.engine.engine import Engine
from phloem.runtime.engine.statistics import EngineStatistics
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.server import ServerSettings, create_app
from phloem.runtime.server.serve import DrainingServer
from phloem.runtime.server.settings import ToolCallFormat

from .loopback import PATIENCE, running, until

KEY = "sk-loopback"


@dataclass
class Served:
    """A running server and its engine."""

    url: str
    async_engine: AsyncEngine
    server: DrainingServer

    def client(self, key: str = KEY) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, timeout=PATIENCE)

    def terminate(self) -> None:
        self.server.handle_exit(signal.SIGTERM, None)

    def settle(self) -> EngineStatistics:
        """Waits until nothing runs or waits; the pools must then be balanced."""
        engine = self.async_engine.engine
        until(lambda: not self.async_engine.call(lambda: engine.core.has_work).result(PATIENCE))
        self.async_engine.call(engine.core.audit).result(PATIENCE)
        statistics = self.async_engine.call(engine.statistics).result(PATIENCE)
        assert statistics.num_held_blocks == 0 and statistics.num_running == statistics.num_waiting == 0
        assert statistics.num_evictable_blocks == statistics.num_cached_blocks
        return statistics


@contextmanager
def serving(
    loaded: LoadedModel,
    *,
    drain_timeout: float = 5.0,
    tool_call_format: ToolCallFormat = "auto",
    adapter_loading: bool = False,
    reranker_template: str | None = None,
    **settings: object,
) -> Iterator[Served]:
    """Serves until the block ends, then drains as after SIGTERM. Drafts do not depend on how busy the machine is."""
    engine = Engine.from_loaded(EngineConfig(**settings), loaded, stopwatch=lambda: 0.0)  # type: ignore[arg-type]
    async_engine = AsyncEngine(engine)
    server_settings = ServerSettings(
        api_keys=(KEY,),
        drain_timeout=drain_timeout,
        prepare_timeout=PATIENCE,
        admin=True,
        adapter_loading=adapter_loading,
        reranker_template=reranker_template,
        tool_call_format=tool_call_format,
    )
    try:
        with running(create_app(async_engine, server_settings)) as (url, server):
            yield Served(url, async_engine, server)
    finally:
        async_engine.stop()


@pytest.fixture(scope="session")
def nano() -> LoadedModel:
    return load(EngineConfig(device="cpu"))


@pytest.fixture(scope="session")
def served(nano: LoadedModel) -> Iterator[Served]:
    with serving(nano, num_blocks=4096, device="cpu") as running:
        yield running


@pytest.fixture
def openai_client(served: Served) -> Iterator[OpenAI]:
    with served.client() as client:
        yield client
