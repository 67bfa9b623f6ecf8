"""phloem's server on a loopback port, over a model that is loaded once for all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import phloem as ph
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.server import ServerSettings, create_app

from ..server.loopback import PATIENCE, running

KEY = "sk-loopback"


@cache
def nano() -> LoadedModel:
    return load(EngineConfig(device="cpu"))


def engine() -> ph.Engine:
    """Its drafts do not depend on how busy the machine is."""
    config = EngineConfig(device="cpu", num_blocks=2048)
    return ph.Engine.from_loaded(config, nano(), stopwatch=lambda: 0.0)


@contextmanager
def serving() -> Iterator[tuple[str, AsyncEngine]]:
    """A server's URL and its engine."""
    async_engine = AsyncEngine(engine())
    settings = ServerSettings(api_keys=(KEY,), drain_timeout=5.0, prepare_timeout=PATIENCE, admin=True)
    try:
        with running(create_app(async_engine, settings)) as (url, _):
            yield url, async_engine
    finally:
        async_engine.stop()
