"""A server with a page over the bundled model, called without a socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import LoadedModel

from ..wire import Client
from .pages import page_over


@pytest.fixture(scope="session")
def page_engine(nano: LoadedModel) -> Iterator[AsyncEngine]:
    """Drafts do not depend on how busy the machine is."""
    engine = AsyncEngine(Engine.from_loaded(EngineConfig(num_blocks=512, device="cpu"), nano, stopwatch=lambda: 0.0))
    yield engine
    engine.stop()


@pytest.fixture
def page(page_engine: AsyncEngine) -> Client:
    return page_over(page_engine)


@pytest.fixture
def operators_page(page_engine: AsyncEngine) -> Client:
    return page_over(page_engine, admin=True)
