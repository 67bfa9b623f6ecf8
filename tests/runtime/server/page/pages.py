"""Clients of pages, and what they read."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.server import ServerSettings, create_app

from ..wire import Client


def page_over(engine: AsyncEngine, **settings: Any) -> Client:
    """A client of a new application with a page."""
    app = create_app(engine, ServerSettings(page=True, **settings))
    return Client(app, engine)  # type: ignore[arg-type]  # a real one does as well


def decoded(packed: bytes) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Header and columns of a snapshot."""
    length = int.from_bytes(packed[:4], "little")
    head = json.loads(packed[4 : 4 + length])
    numbers = np.frombuffer(packed[4 + length :], "<i4").reshape(len(head["columns"]), head["num_nodes"])
    return head, {name: column.tolist() for name, column in zip(head["columns"], numbers, strict=True)}
