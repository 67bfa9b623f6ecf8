"""What the tree answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, NewType

from .._core import radix as core
from .tokens import unpack

# The end of a prefix in the tree: to be leased, inserted after, read. Splits and other insertions leave it what it is;
# once evicted it is refused.
Node = NewType("Node", int)
# The end of the empty prefix of any namespace. It cannot be evicted, so leases on it are of no effect.
NOTHING = Node(0)


class Match(NamedTuple):
    """The longest cached prefix of some tokens. Valid until the next `evict`, unless `node` is leased.

    Attributes:
        num_tokens: its length, a multiple of the block size.
        node: its end, to be leased.
        partial_node: a node whose first block agrees furthest with the tokens after the prefix; to be leased too, if
            it is to outlive an eviction. `NOTHING` if none agrees in a token.
        num_partial_tokens: how many tokens of that block agree, from its start: 0 to block_size - 1.
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
    """What became of an insert.

    Attributes:
        num_new_tokens: tokens the tree did not have yet; their blocks are the tree's now.
        node: the end of the inserted prefix.
        duplicates: given ids for positions that the tree holds under other ids: still the caller's to free.
    """

    num_new_tokens: int
    node: Node
    duplicates: list[int]


class Event(NamedTuple):
    """Blocks came into the tree or left it; enough to keep a copy of the tree elsewhere.

    Attributes:
        tokens: packed tokens from the root to the end of the run concerned.
        num_prefix_tokens: where in `tokens` the run starts; what is before it is not concerned.
        blocks: the ids of the run, one per block.
    """

    kind: Literal["inserted", "evicted"]
    namespace: str
    tokens: bytes
    num_prefix_tokens: int
    blocks: list[int]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counts since the tree was made, and its size now.

    `num_asked_tokens` and `num_matched_tokens` are summed over matches; partial blocks are not in them.
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
