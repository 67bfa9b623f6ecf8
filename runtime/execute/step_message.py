"""A step as a message to other ranks: the batch's arrays, without its requests, and back.

Adapters go by their fingerprints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ..models import Adapter
from ..parallel.message import Array
from .batch import AdapterRows, Batch

OWN = ("token_ids", "positions", "slots", "query_starts", "context_lens", "block_tables", "logits_rows", "hidden_rows")
WINDOWED = ("slots", "context_lens", "block_tables")  # what differs for layers with a window


def arrays_of(batch: Batch) -> dict[str, Array]:
    """What the kernels need of a step, by name."""
    arrays: dict[str, Array] = {name: getattr(batch, name) for name in OWN}
    if batch.unread is not None:
        arrays["unread"] = batch.unread
    if batch.windowed is not None:
        arrays |= {f"windowed.{name}": getattr(batch.windowed, name) for name in WINDOWED}
    arrays |= {f"state_round.{index}": found for index, found in enumerate(batch.state_rounds)}
    return arrays


def adapters_of(batch: Batch) -> list[tuple[int, int, str]]:
    """First row, row after the last, and fingerprint of each adapter."""
    return [(one.begin, one.end, one.adapter.fingerprint) for one in batch.adapters]


def batch_of(arrays: Mapping[str, Any], adapters: list[tuple[int, int, str]], known: Mapping[str, Adapter]) -> Batch:
    """The step again, of no requests; known: adapters by fingerprint."""
    num_rounds = sum(name.startswith("state_round.") for name in arrays)
    batch = Batch(
        [],
        **{name: arrays[name] for name in OWN},
        num_logits=[],
        unread=arrays.get("unread"),
        adapters=tuple(AdapterRows(begin, end, known[fingerprint]) for begin, end, fingerprint in adapters),
        state_rounds=tuple(np.asarray(arrays[f"state_round.{index}"], np.int64) for index in range(num_rounds)),
    )
    if "windowed.slots" not in arrays:
        return batch
    windowed: dict[str, Any] = {name: arrays[f"windowed.{name}"] for name in WINDOWED}
    return replace(batch, windowed=replace(batch, **windowed))
