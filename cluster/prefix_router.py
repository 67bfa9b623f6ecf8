"""Ray Serve's `RequestRouter` around `RoutingPolicy`: calls of `Replica.generate` go where they are computed soonest.

A call is `generate(tokens, namespace, call)`. Serve shows the router only what the caller has passed, and a class of
ours is another class there: so tokens are plain bytes and the namespace is plain text. What a replica has to say comes
with its routing statistics, about once a second: the addresses of its KV events, what the keys of its blocks begin
with, how much is queued, and its engine's statistics for `/metrics`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from ..runtime.events.ledger import hash_of
from ..runtime.offload.block_key import extend_keys, root_of
from .event_feed import EventFeed, Source
from .prefix_index import PrefixIndex
from .routing_policy import Choice, RoutingPolicy

Way = tuple[Choice, Sequence[int]]
MOST_RANKED = 4096  # requests that are being routed at a time


class PrefixRouter(RequestRouter):
    """Routes by prefix and load."""

    def initialize_state(self, block_size: int = 16, is_for_prefill: bool = False) -> None:
        """Called by Serve with `request_router_kwargs`; block_size: tokens per block of the replicas; is_for_prefill:
        whether they only compute prompts."""
        self.is_for_prefill = is_for_prefill
        self._lock = threading.Lock()
        self._block_size = block_size
        index = PrefixIndex()
        self._routing = RoutingPolicy(index, block_size)
        self._feed = EventFeed(index, self._lock)
        self._ids: dict[str, ReplicaID] = {}
        self._root_key = b""
        self._sources: dict[str, Source] = {}
        self._reports: dict[str, dict[str, Any]] = {}
        self._under_way: dict[str, Way] = {}  # by Serve's id of the request
        self._ranked: dict[str, dict[str, Way]] = {}
        from . import known_routers  # here, or the copy of this class would have a copy of it

        known_routers.ROUTERS.add(self)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """One replica after the other, the best first: of several in one group Serve would take the least busy."""
        if pending_request is not None:
            pending_request.routing_context.should_backoff = True  # all are looked at each time
        by_name = {replica.replica_id.unique_id: replica for replica in candidate_replicas}
        tokens, namespace = _asked(pending_request)
        with self._lock:
            for name in by_name:
                self._routing.add(name)
            chain = self._chain(tokens, namespace)
            gone = [name for name in self._routing.index.numbers if name not in by_name]
            ranked = self._routing.rank(chain, len(tokens) // 4, gone)
            if pending_request is not None:
                request_id = pending_request.metadata.internal_request_id
                self._ranked[request_id] = {choice.replica: (choice, chain) for choice in ranked}
                if len(self._ranked) > MOST_RANKED:  # of one that was cancelled meanwhile nothing more is reported
                    del self._ranked[next(iter(self._ranked))]
        first = [[by_name[choice.replica]] for choice in ranked]
        known = {choice.replica for choice in ranked}
        return first + [[replica] for name, replica in by_name.items() if name not in known]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:
        request_id = pending_request.metadata.internal_request_id
        with self._lock:
            way = self._ranked.pop(request_id, {}).get(replica_id.unique_id)
            if way is not None:
                self._under_way[request_id] = way
                self._routing.sent(*way)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:
        with self._lock:
            self._ranked.pop(internal_request_id, None)
            way = self._under_way.pop(internal_request_id, None)
            if way is not None:
                self._routing.answered(*way)

    def on_replica_actor_died(self, replica_id: ReplicaID) -> None:
        super().on_replica_actor_died(replica_id)
        self._forget(replica_id.unique_id)

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        super().update_replicas(replicas)
        names = {replica.replica_id.unique_id for replica in replicas}
        for name in [name for name in self._routing.index.numbers if name not in names]:
            self._forget(name)
        for replica in replicas:
            name, stats = replica.replica_id.unique_id, replica.routing_stats
            with self._lock:
                self._routing.add(name)
                if stats and stats != self._reports.get(name):
                    self._reports[name] = stats
                    self._routing.report(name, int(stats["queued_tokens"]))
                    self._root_key = bytes.fromhex(stats["root_key"])
            if stats and name not in self._sources:
                self._sources[name] = Source(name, stats["endpoint"], stats["replay_endpoint"])
                self._feed.follow(self._sources[name])

    @property
    def has_replicas(self) -> bool:
        """Whether any is known."""
        with self._lock:
            return bool(self._routing.index.numbers)

    def num_missing(self, tokens: bytes, namespace: str) -> int:
        """How many tokens of a prompt are to be computed at the replica that it would go to now."""
        with self._lock:
            ranked = self._routing.rank(self._chain(tokens, namespace), len(tokens) // 4)
        return ranked[0].num_missing if ranked else len(tokens) // 4

    def reports(self) -> dict[str, dict[str, Any]]:
        """By replica, what each has said last."""
        with self._lock:
            return dict(self._reports)

    def _forget(self, name: str) -> None:
        with self._lock:
            self._routing.forget(name)
            self._reports.pop(name, None)
        if self._sources.pop(name, None) is not None:
            self._feed.leave(name)

    def _chain(self, tokens: bytes, namespace: str) -> list[int]:
        """The hashes of the whole blocks of packed tokens, as events name them; empty before any replica was heard."""
        if not self._root_key:
            return []
        keys = extend_keys(root_of(self._root_key, namespace), True, tokens, 4 * self._block_size)
        return [hash_of(key.digest) for key in keys]


def _asked(request: PendingRequest | None) -> tuple[bytes, str]:
    """Packed tokens and namespace of a call; nothing for another call."""
    match list(request.args) if request is not None else []:
        case [bytes() as tokens, str() as namespace, *_]:
            return tokens, namespace
    return b"", ""
