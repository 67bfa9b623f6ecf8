"""What the methods of the tree return, and the events that it reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, NewType

from .._core import radix as core
from .tokens import unpack

# The end of a prefix in the tree, to be leased, read, or inserted after. It stays valid through splits and other
# insertions; after its eviction it raises ValueError.
Node = NewType("Node", int)
# The end of the empty prefix of every namespace. It cannot be evicted, so leases on it have no effect.
NOTHING = Node(0)


class Match(NamedTuple):
    """The longest cached prefix of a token sequence. Valid until the next `evict`, or as long as `node` is leased.

    Attributes:
        num_tokens: its length, a multiple of the block size.
        node: the node where it ends, to be leased.
        partial_node: the node whose first block shares most leading tokens with what follows the prefix, to be leased
            too if an eviction comes before its use. `NOTHING` if no block shares any.
        num_partial_tokens: how many leading tokens that block shares: 0 to block_size - 1.
        partial_block: the block itself, a donor for copy-on-write; -1 if there is none.
    """

    num_tokens: int
    node: Node
    partial_node: Node
    num_partial_tokens: int
    partial_block: int
    tree: core.Tree

    @property
    def packed_blocks(self) -> bytes:
        """Ids of the whole blocks, root to leaf, as packed int32; ValueError if they have been evicted."""
        return self.tree.packed_blocks(self.node)

    @property
    def blocks(self) -> list[int]:
        """`packed_blocks` as a list."""
        return unpack(self.packed_blocks)


class Inserted(NamedTuple):
    """The result of an insertion.

    Attributes:
        num_new_tokens: tokens that the tree did not have before; their blocks belong to the tree now.
        node: the end of the inserted prefix.
        duplicates: given ids whose positions the tree holds in other blocks: the caller still owns them.
    """

    num_new_tokens: int
    node: Node
    duplicates: list[int]


COLUMN_NAMES = (
    "id",
    "parent",
    "num_tokens",
    "num_blocks",
    "age_ms",
    "hits",
    "namespace",
    "leases",
    "pinned",
    "rank",
)


class Columns(NamedTuple):
    """The nodes of a tree without its roots, parents first, as one column of int32 per name in `COLUMN_NAMES`.

    Attributes:
        num_left_out: how many nodes more there are.
        packed: the columns one after the other, little-endian, `num_nodes` numbers each. `id`: the lower 31 bits of the
            node's; `parent`: the same of its parent, -1 below a root; `num_tokens` and `num_blocks` of its own run;
            `age_ms` since its prefix was last used, `hits` on that, `leases` that are none of pins, and `pinned`, how
            often, with all nodes below it; `namespace`: its place in `namespaces`; `rank`: its place in the order of
            eviction, -1 if it cannot be evicted now, or has children. What does not fit is the largest int32.
        namespaces: names.
    """

    num_nodes: int
    num_left_out: int
    packed: bytes
    namespaces: list[str]


class Event(NamedTuple):
    """A run was inserted or evicted. The sequence of events is enough to keep a copy of the tree elsewhere.

    Attributes:
        tokens: packed tokens from the root to the end of the run.
        num_prefix_tokens: where in `tokens` the run starts.
        blocks: the ids of the run, one per block.
    """

    kind: Literal["inserted", "evicted"]
    namespace: str
    tokens: bytes
    num_prefix_tokens: int
    blocks: list[int]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since the tree was created, and its present size.

    `num_asked_tokens` and `num_matched_tokens` are sums over all matches, without partial blocks.
    """

    num_matches: int
    num_asked_tokens: int
    num_matched_tokens: int
    num_inserted_blocks: int
    num_duplicate_blocks: int
    num_evicted_blocks: int
    num_splits: int
    num_namespaces: int
    num_nodes: int
    num_cached_blocks: int
    num_leased_blocks: int
    num_pinned_blocks: int

    @property
    def hit_rate(self) -> float:
        """Matched tokens per asked token; 0 before the first match."""
        return self.num_matched_tokens / self.num_asked_tokens if self.num_asked_tokens else 0.0
