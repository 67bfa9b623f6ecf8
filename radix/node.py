"""One node of the radix tree: a run of whole blocks below its parent.

`tokens` and `blocks` are both packed int32, so `len(tokens) == len(blocks) * block_size`. The node stands for the
prefix that ends with its run. A root has an empty run and is the only node without a parent; a node that has
been evicted has lost its parent but keeps its run, which is how the two are told apart.
"""

from __future__ import annotations

from array import array
from typing import Any


class Node:
    """A mutable record; only the tree and its parts write to it.

    Attributes:
        namespace: the namespace of the root above.
        parent: None for a root and for a node no longer in the tree.
        children: by the bytes of their first block.
        tokens, blocks: the run, packed int32; one block id per whole block of tokens.
        num_leases: leases and pins that end here.
        num_holds: 1 if `num_leases`, plus the number of children with `num_holds`; the run is protected while it
            is not zero.
        last_used: tick of the last match or insert that *ended* here or at an evicted descendant.
        used_at: the same in seconds of the tree's clock.
        num_hits: matches that ended here or at an evicted descendant.
        priority: the highest given to an insert that ended here or at an evicted descendant.
        is_queued: whether the eviction queue has an entry for this node.

    Usage is written at the end of a path only, and handed to the parent when a leaf goes. A node becomes a leaf
    only after all its descendants have handed theirs up, so at every leaf the figures are what marking whole
    paths would have given, for O(1) instead of O(depth) per match.
    """

    __slots__ = (
        "blocks",
        "children",
        "is_queued",
        "last_used",
        "namespace",
        "num_hits",
        "num_holds",
        "num_leases",
        "parent",
        "priority",
        "tokens",
        "used_at",
    )

    def __init__(self, namespace: str, parent: Node | None, tokens: bytes, blocks: bytes) -> None:
        self.namespace = namespace
        self.parent = parent
        self.children: dict[bytes, Node] = {}
        self.tokens = tokens
        self.blocks = blocks
        self.num_leases = 0
        self.num_holds = 0
        self.last_used = 0
        self.used_at = 0.0
        self.num_hits = 0
        self.priority = 0
        self.is_queued = False

    def __lt__(self, other: Any) -> bool:
        """Ties in the eviction queue go to the one used longer ago."""
        return bool(self.last_used < other.last_used)

    @property
    def num_blocks(self) -> int:
        """Blocks of this run (not of the whole prefix)."""
        return len(self.blocks) >> 2

    @property
    def is_evicted(self) -> bool:
        """Whether the node has left the tree."""
        return self.parent is None and bool(self.blocks)

    def path_blocks(self) -> bytes:
        """Packed block ids from the root to the end of this run. O(depth) joins."""
        runs = []
        node = self
        while node.parent is not None:
            runs.append(node.blocks)
            node = node.parent
        if node.blocks:
            raise ValueError("the prefix has been evicted since it was matched: lease it before evicting")
        if len(runs) == 1:
            return runs[0]
        runs.reverse()
        return b"".join(runs)

    def path_tokens(self) -> bytes:
        """Packed tokens from the root to the end of this run."""
        runs = []
        node = self
        while node.parent is not None:
            runs.append(node.tokens)
            node = node.parent
        runs.reverse()
        return b"".join(runs)


def unpack_blocks(blocks: bytes) -> list[int]:
    """Packed block ids as a list."""
    ids = array("i")
    ids.frombytes(blocks)
    return ids.tolist()
