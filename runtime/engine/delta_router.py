"""Brings each delta to the call that waits for it, where several calls step one engine in turn.

A step brings deltas for all requests, and the call that made the step wants those of its own requests only. The others
are queued here until their callers ask for them: a stream that is not read while something else is generated, or
threads that share an engine::

    step ─► deltas ─┬─► queue of the caller of r1, r2
                    ├─► queue of the caller of r3
                    └─► unclaimed: of requests that were added for `step`

Knows no engine. The caller holds the engine's lock. Cost: a look-up per delta.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..request import Delta

DeltaQueue = list[Delta]


class DeltaRouter:
    """Queues by request id; one queue may take the deltas of several requests."""

    def __init__(self) -> None:
        self._queues: dict[str, DeltaQueue] = {}
        self._unclaimed: DeltaQueue = []

    def register(self, request_id: str, queue: DeltaQueue) -> None:
        """From now on the deltas of this request go into `queue`."""
        self._queues[request_id] = queue

    def unregister(self, request_id: str) -> None:
        """No call waits for this request any more; its unclaimed deltas are dropped."""
        self._queues.pop(request_id, None)
        if self._unclaimed:
            self._unclaimed = [delta for delta in self._unclaimed if delta.request_id != request_id]

    def route(self, deltas: Iterable[Delta]) -> None:
        """Appends the deltas of a step to their queues, in order."""
        for delta in deltas:
            self._queues.get(delta.request_id, self._unclaimed).append(delta)

    def take_unclaimed(self) -> DeltaQueue:
        """The deltas of requests that have no queue; they are removed."""
        found, self._unclaimed = self._unclaimed, []
        return found

    @property
    def has_queued(self) -> bool:
        """Whether a queue is not empty."""
        return any(self._queues.values())
