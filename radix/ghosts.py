"""A short memory of what was evicted, so that a miss can be explained.

A ghost is (where it hung, its first block) → when it went. It hangs on the node that survived it, which is where
a later walk for the same tokens ends; for children of a root, which may be dropped, on the namespace's name. So
nothing needs to be hashed along the path, and recording costs O(1) per evicted run. The oldest are forgotten.
"""

from __future__ import annotations

from collections import OrderedDict

from .node import Node


class GhostRecord:
    """At most `max_ghosts` evicted runs, oldest forgotten first."""

    __slots__ = ("_evicted_at", "max_ghosts")

    def __init__(self, max_ghosts: int) -> None:
        self.max_ghosts = max_ghosts
        self._evicted_at: OrderedDict[tuple[Node | str, bytes], float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._evicted_at)

    def add(self, above: Node, first_block: bytes, now: float) -> None:
        """The run below `above` that began with `first_block` has gone."""
        ghosts = self._evicted_at
        key = (above if above.blocks else above.namespace, first_block)
        ghosts[key] = now
        ghosts.move_to_end(key)
        if len(ghosts) > self.max_ghosts:
            ghosts.popitem(last=False)

    def evicted_at(self, above: Node, first_block: bytes) -> float | None:
        """When it went, or None."""
        return self._evicted_at.get((above if above.blocks else above.namespace, first_block))
