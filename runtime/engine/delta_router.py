"""Whose deltas are whose, where several callers step one engine by turns.

A step brings deltas for all requests, and its caller wants those of its own. The others' wait here until their callers
look for them: a stream that is left lying while something else is generated, threads that share an engine::

    step ─► deltas ─┬─► box of the caller of r1, r2
                    ├─► box of the caller of r3
                    └─► others: of requests that were added for `step`

Knows no engine. Whoever calls holds the engine's lock.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..request import Delta

Box = list[Delta]


class DeltaRouter:
    """Boxes by request id; one box may take the deltas of many requests."""

    def __init__(self) -> None:
        self._boxes: dict[str, Box] = {}
        self._others: Box = []

    def open(self, request_id: str, box: Box) -> None:
        """From now on the deltas of this request go into `box`."""
        self._boxes[request_id] = box

    def close(self, request_id: str) -> None:
        """Nobody waits for this request any more."""
        self._boxes.pop(request_id, None)
        if self._others:
            self._others = [delta for delta in self._others if delta.request_id != request_id]

    def sort(self, deltas: Iterable[Delta]) -> None:
        """Puts the deltas of a step where they belong, in their order."""
        for delta in deltas:
            self._boxes.get(delta.request_id, self._others).append(delta)

    def take_others(self) -> Box:
        """The deltas that belong into no box."""
        found, self._others = self._others, []
        return found

    @property
    def is_anything_left(self) -> bool:
        """Whether a box is not empty."""
        return any(self._boxes.values())
