"""Floats that nodes carry beside their tokens: one per token, for whoever has computed something about a prefix once.

A value at a position must depend on the tokens up to there only (a log-probability of the token does), because
everybody who matches the prefix reads it. Values are packed native float32, so a run and its values are equally many
bytes and are cut at the same places. A node has values for its whole run or none; single ones that nobody has given
are not-a-number. They go when the node goes, and are not in the events.

Cost: O(nodes on the path and bytes written). Nothing for trees that carry nothing.
"""

from __future__ import annotations

import struct

from .node import Node

UNKNOWN = struct.pack("=f", float("nan"))


def attach(node: Node, start: int, values: bytes) -> int:
    """See `RadixTree.attach`; `start` in bytes. Returns by how many bytes what the path carries has grown."""
    end = start + len(values)
    if node.is_evicted:
        raise ValueError("cannot attach to an evicted prefix: lease it before evicting")
    if start < 0 or len(values) % 4 or end > node.end << 2:
        raise ValueError(f"{len(values)} bytes of float32 from token {start >> 2} on do not fit {node.end} tokens")
    num_new = 0
    above: Node | None = node
    while above is not None and above.end << 2 > start:
        run_end = above.end << 2
        run_start = run_end - len(above.tokens)
        if run_start < end:
            held = above.attached
            if held is None:
                num_new += len(above.tokens)
                held = UNKNOWN * (len(above.tokens) >> 2)
            low, high = max(start, run_start), min(end, run_end)
            above.attached = held[: low - run_start] + values[low - start : high - start] + held[high - run_start :]
        above = above.parent
    return num_new


def path_attached(node: Node) -> bytes:
    """What the path from the root to the end of this run carries, unknown values filled in."""
    runs = []
    above: Node | None = node
    while above is not None:
        runs.append(UNKNOWN * (len(above.tokens) >> 2) if above.attached is None else above.attached)
        above = above.parent
    runs.reverse()
    return b"".join(runs)
