"""Schemas within each other, for the modules of costly schemas (see `bombs.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def within(depth: int, wrap: Callable[[int, Any], Any], innermost: Any = True) -> Any:
    """A schema inside `depth` others; `wrap` is given the depth."""
    schema = innermost
    for level in range(depth):
        schema = wrap(level, schema)
    return schema
