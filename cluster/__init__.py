"""Several engines behind one address, on Ray Serve (`pip install phloem[ray]`); see `docs/scaling.md`.

    client ── HTTP ──► front: routes, templates, constraints ── PrefixRouter ──► replica: an engine each
                              ▲ deltas                              ▲ KV events, queued tokens │
                              └─────────────────────────────────────┴──────────────────────────┘

    front            the server's routes over `remote_engine`, in a process without weights
    remote_engine    an engine that is elsewhere; a request goes on at another replica if its own dies
    prefill_first    prompts at some replicas, answers at others
    prefix_router    which replica: Serve's `RequestRouter` around `routing_policy`
    routing_policy   tokens to compute + tokens queued, and which replica is asked
    prefix_index     which replica has which blocks
    event_feed       KV events of the replicas, as they come
    replica          an engine as a deployment
    application      the Serve application: `serve run phloem.cluster:build model=nano replicas=2`
    local            the same on this machine alone: `phloem serve nano --replicas 2`
    autoscaling      how many replicas, by tokens in their queues

Imports Ray only where it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .application import build as build

__all__ = ["build"]


def __getattr__(name: str) -> Any:
    if name == "build":
        from .application import build

        return build
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
