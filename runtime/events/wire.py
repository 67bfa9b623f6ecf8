"""The wire form of KV events: vLLM's, msgpack.

::

    batch           [seconds since 1970, [event, …], data-parallel rank]
    event, "map"    {"type": "BlockStored", "block_hashes": […], …}      vLLM since PR 42892, SGLang since 0.5.23
    event, "array"  ["BlockStored", block_hashes, …]                     older: fields by position

Of a message's frames this is the third; see `publisher`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from ...radix import unpack
from ..event_settings import Format
from .ledger import AllBlocksCleared, BlockRemoved, BlockStored, Event

RANK = 0  # of this engine among data-parallel ones: each is a server of its own


def encode(seconds: float, events: Sequence[Event], block_size: int, form: Format) -> bytes:
    """A batch as msgpack; seconds: since 1970."""
    shape = _as_map if form == "map" else _as_array
    packed: bytes = msgpack.packb([seconds, [shape(event, block_size) for event in events], RANK])
    return packed


def _as_map(event: Event, block_size: int) -> dict[str, Any]:
    if isinstance(event, AllBlocksCleared):
        return {"type": "AllBlocksCleared"}
    if isinstance(event, BlockRemoved):
        return {"type": "BlockRemoved", "block_hashes": event.hashes, "medium": event.medium}
    stored = {
        "type": "BlockStored",
        "block_hashes": event.hashes,
        "parent_block_hash": event.parent,
        "token_ids": unpack(b"".join(event.tokens)),
        "block_size": block_size,
        "lora_id": event.scope.lora_id,
        "medium": event.medium,
        "lora_name": event.scope.lora_name,
        "extra_keys": _extra_keys(event),
    }
    if event.scope.salt is not None:
        stored["cache_salt"] = event.scope.salt  # SGLang's name for it; consumers of vLLM's find it in `extra_keys`
    return stored


def _as_array(event: Event, block_size: int) -> list[Any]:
    if isinstance(event, BlockStored):
        named = _as_map(event, block_size)
        named.pop("cache_salt", None)
        return list(named.values())
    return list(_as_map(event, block_size).values())


def _extra_keys(event: BlockStored) -> list[list[str] | None] | None:
    """What besides tokens is in each block's hash, as vLLM has it: the adapter, and with the first block the salt."""
    name, salt = event.scope.lora_name, event.scope.salt
    if name is None and salt is None:
        return None
    keys = [[] if name is None else [name] for _ in event.hashes]
    if salt is not None and event.parent is None:
        keys[0].append(salt)
    return [found or None for found in keys]
