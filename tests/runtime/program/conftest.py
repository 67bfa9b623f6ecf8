"""A server whose answers are written down beforehand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .scripted_server import Script, scripted


@pytest.fixture
def server() -> Iterator[Script]:
    with scripted() as script:
        yield script
