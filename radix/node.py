"""One node of the radix tree: a run of whole blocks below its parent.

`tokens` and `blocks` are both packed int32, so `len(tokens) == len(blocks) * block_size`. The node stands for
the prefix that ends with its run. A root has an empty run and is the only node without a parent; a node that
has been evicted has lost its parent and tokens but keeps its blocks, which is how the two are told apart.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from .siblings import Siblings
from .tokens import PADDING, unpack


class Node:
    """A mutable record; only the tree and its parts write to it.

    Attributes:
        namespace: the namespace of the root above.
        parent: None for a root and for a node no longer in the tree.
        children: by the bytes of their first block; None for a node that never had any.
        siblings: the keys of `children` in order, built when there are many and somebody asked; else None.
        key: the bytes of the run's first block, under which the parent files this node.
        tokens, blocks: the run, packed int32; one block id per whole block of tokens.
        num_leases: leases and pins that end here.
        num_holds: 1 if `num_leases`, plus the number of children with `num_holds`, plus 1 for a root; the run is
            protected while it is not zero.
        last_used: when a match or insert last *ended* here or at an evicted descendant: seconds of the tree's
            clock, made strictly increasing.
        end: number of tokens from the root to the end of the run.
        era: what the eviction policy calls the time of the last use, handed up like `last_used`; see `eviction`.
        num_hits: matches that ended here or at an evicted descendant.
        priority: the highest given to an insert that ended here or at an evicted descendant.
        queued_under: the key under which the eviction queue has this node; None if it has not.
        skip: (tokens, blocks, descendant): a shortcut over many short edges, with all of their runs.
        skipped_by: the ancestor whose `skip` leads here.

    Usage is written at the end of a path only, and handed to the parent when a leaf goes. A node becomes a leaf
    only after all its descendants have handed theirs up, so at every leaf the figures are what marking whole
    paths would have given, for O(1) instead of O(depth) per match.
    """

    __slots__ = (
        "blocks",
        "children",
        "end",
        "era",
        "key",
        "last_used",
        "namespace",
        "num_hits",
        "num_holds",
        "num_leases",
        "parent",
        "priority",
        "queued_under",
        "siblings",
        "skip",
        "skipped_by",
        "tokens",
    )

    def __init__(
        self, namespace: str, parent: Node | None = None, key: bytes = b"", tokens: bytes = b"", blocks: bytes = b""
    ) -> None:
        self.namespace = namespace
        self.parent = parent
        self.children: dict[bytes, Node] | None = None
        self.siblings: Siblings | None = None
        self.key = key
        self.tokens = tokens
        self.blocks = blocks
        self.num_leases = 0
        self.num_holds = 1 if parent is None else 0
        self.last_used = 0.0
        self.end: int = len(tokens) >> 2 if parent is None else parent.end + (len(tokens) >> 2)
        self.era = 0.0
        self.num_hits = 0
        self.priority = 0
        self.queued_under: Any = None
        self.skip: tuple[bytes, bytes, Node] | None = None
        self.skipped_by: Node | None = None

    def __lt__(self, other: Node) -> bool:
        """Ties in the eviction queue go to the one used longer ago."""
        return self.last_used < other.last_used

    @property
    def num_blocks(self) -> int:
        """Blocks of this run (not of the whole prefix)."""
        return len(self.blocks) >> 2

    @property
    def is_evicted(self) -> bool:
        """Whether the node has left the tree."""
        return self.parent is None and bool(self.blocks)

    @property
    def is_tail(self) -> bool:
        """Whether the run ends in a block that is filled up with padding."""
        return self.tokens.endswith(PADDING)

    @property
    def name(self) -> str:
        """For messages: namespace, depth and first tokens. Safe on a corrupt tree."""
        depth, above = 0, self.parent
        seen = {self}
        while above is not None and above not in seen:
            seen.add(above)
            depth += 1
            above = above.parent
        return f"node {unpack(self.tokens[:16])} at depth {depth} of {self.namespace!r}"

    def path_blocks(self) -> bytes:
        """Packed block ids from the root to the end of this run; ValueError if the node was evicted. O(depth)."""
        runs = []
        node = self
        parent = node.parent
        while parent is not None:
            start = node.skipped_by
            if start is not None and start.skip is not None:
                runs.append(start.skip[1])
                node = start
            else:
                runs.append(node.blocks)
                node = parent
            parent = node.parent
        if node.blocks:
            raise ValueError("the prefix has been evicted since it was matched: lease it before evicting")
        if len(runs) == 1:
            return runs[0]
        runs.reverse()
        return b"".join(runs)

    def path_tokens(self) -> bytes:
        """Packed tokens from the root to the end of this run. O(depth)."""
        runs = []
        above: Node | None = self
        while above is not None:
            runs.append(above.tokens)
            above = above.parent
        runs.reverse()
        return b"".join(runs)


def pack_blocks(blocks: Sequence[int]) -> bytes:
    """Block ids as packed native int32; bytes are taken to be packed already."""
    if isinstance(blocks, bytes):
        return blocks
    return (blocks if isinstance(blocks, array) and blocks.typecode == "i" else array("i", blocks)).tobytes()


def unpack_blocks(blocks: bytes) -> list[int]:
    """Packed block ids as a list."""
    return array("i", blocks).tolist()


def count_tail_bytes(tokens: bytes, num_blocks: int, block_size: int) -> int:
    """Length of the part that does not fill a block, if `num_blocks` has one for it; ValueError if not."""
    num_whole, num_bytes = divmod(len(tokens), 4 * block_size)
    if num_bytes and num_blocks == num_whole + 1:
        return num_bytes
    raise ValueError(
        f"{num_blocks} block ids for {len(tokens) >> 2} tokens, which are {num_whole} whole blocks"
        f" of {block_size}{' and a tail' if num_bytes else ''}"
    )
