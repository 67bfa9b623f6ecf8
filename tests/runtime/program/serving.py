"""phloem's server on a loopback port, over a model that is loaded once for all."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import phloem as ph
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.execute.loading import LoadedModel, load
from phloem.runtime.server import ServerSettings, create_app
from phloem.runtime.server.serve import listen, server_of, url_of

KEY = "sk-loopback"
PATIENCE = 120.0


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
    bound = listen("127.0.0.1", 0)
    settings = ServerSettings(api_keys=(KEY,), drain_timeout=5.0, prepare_timeout=PATIENCE, admin=True)
    server = server_of(create_app(async_engine, settings), log_level="error", access_log=False)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            threading.Event().wait(0.01)
        yield url_of(bound), async_engine
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join(PATIENCE)
        async_engine.stop()
        assert not thread.is_alive(), "the server did not end"
