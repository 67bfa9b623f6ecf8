"""A tree as plain Python objects, for audits, pictures and lists. O(tree)."""

from __future__ import annotations

from dataclasses import dataclass

from .._core import radix as core


@dataclass(slots=True)
class NodeRecord:
    """What a node holds; see `core/node.h`.

    Attributes:
        parent: its id; 0 for the root of its namespace.
        tokens: packed.
        children: ids, by first block.
        rank: what the policy thinks of it now.
        is_candidate: whether the queue of candidates for eviction is said to have it.
    """

    id: int
    parent: int
    namespace: str
    tokens: bytes
    blocks: list[int]
    children: list[int]
    end: int
    num_leases: int
    num_holds: int
    priority: int
    last_used: float
    rank: float
    is_candidate: bool


@dataclass(slots=True)
class Snapshot:
    """A tree at one moment.

    Attributes:
        roots: the children and the holds of the root of each namespace.
        candidates: (rank, last use, node): a heap, the first that goes at its top.
        counts: as the tree has counted; see `Statistics`.
    """

    block_size: int
    nodes: list[NodeRecord]
    roots: dict[str, tuple[list[int], int]]
    candidates: list[tuple[float, float, int]]
    counts: dict[str, int]


def take_snapshot(tree: core.Tree, block_size: int) -> Snapshot:
    """A copy of everything in a tree."""
    nodes = [NodeRecord(*fields) for fields in tree.nodes()]
    return Snapshot(block_size, nodes, tree.roots(), tree.candidates(), tree.counts())
