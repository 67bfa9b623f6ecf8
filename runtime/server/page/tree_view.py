"""The prefix tree for a picture: columns of numbers, and one node with its sentence.

::

    step thread   columns of all nodes, in compiled code; an object per request    4 ms with 20,000 nodes
    worker        the header, JSON; ids, parents and pins of one node; its text

A snapshot serves again until it is `SHARE` times as old as it took to make, so that however many look at the tree, the
step thread spends at most one part in `SHARE` on them. Namespaces are named "default", "salt 1", "adapter sql": what
they are made of is never sent. Text is sent with `--enable-admin` only.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from ....radix import COLUMN_NAMES, Columns, Node
from ...engine.tree_state import RequestPlace, TreeState
from ...models.adapter import parted
from ..errors import ApiError, dump_json
from ..service import Service

MAX_NODES = 20_000
SHOWN_BITS = 2**31 - 1  # of the id of a node
MAX_CHARS = 4000  # of the text of a node
MAX_TEXT_TOKENS = MAX_CHARS  # looked at for that: a token is rarely less than a character
MAX_NAMES = 100_000  # namespaces whose names are kept
SHARE = 50
_PLACE = tuple(one.name for one in fields(RequestPlace))


class TreeView:
    """The tree of one engine."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = asyncio.Lock()
        self._names: dict[str, str] = {}
        self._num_named = 0
        self._mark: tuple[int, ...] = ()
        self._generation = secrets.randbits(30)  # not that of a server that was here before
        self._state: tuple[TreeState, int] | None = None
        self._sent = b""  # that state as it is sent; empty: not yet
        self._good_until = 0.0

    def generation(self) -> int:
        """Another number than before if the tree or a request may have changed since; ages are no change."""
        mark = self._service.engine.core.monitor.change_mark()
        if mark != self._mark:
            self._mark = mark
            self._generation += 1
        return self._generation

    async def snapshot(self) -> tuple[bytes, int]:
        """The answer of `GET /page/tree`, and its generation."""
        async with self._lock:
            state, generation = await self._seen()
            if not self._sent:
                self._sent = await self._service.on_worker(self._packed, state, generation)
            return self._sent, generation

    async def node(self, shown_id: int) -> dict[str, Any]:
        """The answer of `GET /page/tree/{id}`.

        Raises:
            ApiError: 404, there is no such node.
        """
        async with self._lock:
            state, _ = await self._seen()
            path = await self._path(shown_id) if self._service.settings.admin else None
            found = await self._service.on_worker(self._described, state, shown_id, path, time.monotonic())
        if found is None:
            text = f"There is no node {shown_id} in the prefix tree now: it was evicted, or never there."
            raise ApiError(404, text, param="id", code="no_such_node")
        return found

    async def _seen(self) -> tuple[TreeState, int]:
        """The tree now or a little before, and its generation."""
        if self._state is None or time.monotonic() > self._good_until:
            generation = self.generation()  # before the tree is read, so that no change is overlooked
            state, seconds = await asyncio.wrap_future(self._service.async_engine.call(self._read))
            self._state, self._sent = (state, generation), b""
            self._good_until = time.monotonic() + SHARE * seconds
        return self._state

    def _read(self) -> tuple[TreeState, float]:
        """The tree, and for how many seconds of work that held the step thread."""
        begin = time.thread_time()
        state = self._service.engine.core.monitor.tree_state(MAX_NODES)
        return state, time.thread_time() - begin

    async def _path(self, shown_id: int) -> bytes | None:
        """The tokens from the root to the end of a node, packed; None if it is gone."""
        tree = self._service.engine.prefix_cache.tree
        try:
            return await asyncio.wrap_future(self._service.async_engine.call(lambda: tree.path_tokens(Node(shown_id))))
        except ValueError:
            return None

    def _packed(self, state: TreeState, generation: int) -> bytes:
        columns = state.columns
        table = table_of(columns)
        known = set(table["id"].tolist())
        config = self._service.engine.config
        head = {
            "generation": generation,
            "num_nodes": columns.num_nodes,
            "columns": COLUMN_NAMES,
            "namespaces": self._labels(columns.namespaces),
            "requests": [_request(one, known) for one in state.requests],
            "num_blocks": self._service.async_engine.statistics().num_blocks,
            "block_size": config.block_size,
            "num_nodes_left_out": columns.num_left_out,
        }
        text = dump_json(head)
        text += b" " * (-len(text) % 4)
        return len(text).to_bytes(4, "little") + text + columns.packed

    def _described(self, state: TreeState, shown_id: int, path: bytes | None, now: float) -> dict[str, Any] | None:
        table = table_of(state.columns)
        places = np.flatnonzero(table["id"] == shown_id)
        if not len(places):
            return None
        row = {name: int(table[name][places[0]]) for name in COLUMN_NAMES}
        below = _subtree(table, shown_id)
        held_by = [one.request_id for one in state.requests if one.node is not None and shown(one.node) in below]
        ends = [expires_at for node, expires_at in state.pins if shown(node) in below]
        rank = row["rank"] if row["rank"] >= 0 else None
        num_children = int((table["parent"] == shown_id).sum())
        num_run = row["num_blocks"] * self._service.engine.config.block_size
        text = None if path is None else self._text(path, num_run)
        return {
            "id": shown_id,
            "num_tokens": row["num_tokens"],
            "num_blocks": row["num_blocks"],
            "age_seconds": row["age_ms"] / 1000,
            "hits": row["hits"],
            "namespace": self._labels(state.columns.namespaces)[row["namespace"]],
            "children": num_children,
            "held_by": list(dict.fromkeys(held_by)),
            "pinned_seconds": round(max(0.0, max(ends) - now), 3) if ends else None,
            "rank": rank,
            "sentence": sentence(rank, num_children, len(set(held_by)), len(ends)),
            "text": text,
        }

    def _text(self, path: bytes, num_run: int) -> str:
        """The beginning of the last `num_run` tokens of a path."""
        run = np.frombuffer(path, "<i4")[-num_run:][:MAX_TEXT_TOKENS]
        return self._service.engine.tokenizer.show(run[run >= 0].tolist())[:MAX_CHARS]

    def _labels(self, namespaces: Sequence[str]) -> list[str]:
        """Names that say nothing of salt or key, the same for a namespace each time."""
        if len(self._names) > MAX_NAMES:
            self._names = {name: label for name, label in self._names.items() if name in set(namespaces)}
        return [self._names.get(one) or self._names.setdefault(one, self._label(one)) for one in namespaces]

    def _label(self, namespace: str) -> str:
        fingerprint, own = parted(namespace)
        parts = [] if fingerprint is None else [f"adapter {self._adapter(fingerprint)}"]
        if own:
            self._num_named += 1
            parts.append(f"salt {self._num_named}")
        if namespace != "" and not parts:
            parts.append("default, long")
        return ", ".join(parts) or "default"

    def _adapter(self, fingerprint: str) -> str:
        return self._service.engine.adapters.name_of(fingerprint) or fingerprint[:8]


def table_of(columns: Columns) -> dict[str, npt.NDArray[np.int32]]:
    """The columns by name, as views of what was packed."""
    numbers = np.frombuffer(columns.packed, "<i4").reshape(len(COLUMN_NAMES), columns.num_nodes)
    return dict(zip(COLUMN_NAMES, numbers, strict=True))


def shown(node: int) -> int:
    """The id that columns show of a node."""
    return node & SHOWN_BITS


def sentence(rank: int | None, num_children: int, num_requests: int, num_pins: int) -> str:
    """Why a node would be evicted next, or not."""
    if num_requests:
        held = "1 request holds" if num_requests == 1 else f"{num_requests} requests hold"
        return f"{held} it, so it stays."
    if num_pins:
        return "It is pinned, so it stays until its time is over or a request could not run otherwise."
    if rank is None and num_children:
        children = "the node" if num_children == 1 else f"the {num_children} nodes"
        return f"No request holds it; it may go once {children} below it are gone."
    if rank is None:
        return "It cannot be evicted now."
    if not rank:
        return "No request holds it, and it would be evicted next."
    leaves = "1 leaf goes" if rank == 1 else f"{rank} leaves go"
    return f"No request holds it, and {leaves} before it."


def _subtree(table: dict[str, npt.NDArray[np.int32]], top: int) -> set[int]:
    """The ids of a node and of all below it; parents come first in the columns."""
    found = {top}
    for node, parent in zip(table["id"].tolist(), table["parent"].tolist(), strict=True):
        if parent in found:
            found.add(node)
    return found


def _request(one: RequestPlace, known: set[int]) -> dict[str, Any]:
    node = -1 if one.node is None else shown(one.node)
    found = {name: getattr(one, name) for name in _PLACE}  # `asdict` would copy deeply
    return {**found, "node": node if node in known else -1}
