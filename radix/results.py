"""What the tree answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from .node import Node, unpack_blocks


class Match(NamedTuple):
    """The longest cached prefix of some tokens.

    Attributes:
        node: the end of the prefix, to be leased; a root if nothing matched.
        num_tokens: its length, a multiple of the block size.
        partial_node: the node whose first block agrees furthest with the tokens behind the prefix, or None.
        partial_block: that block, a donor for copy-on-write; -1 if there is none.
        num_partial_tokens: how many tokens of the donor agree, counted from its start: 0 to block_size - 1.

    The nodes are safe to use until the next `evict`; whoever needs them longer leases them.
    """

    node: Node
    num_tokens: int
    partial_node: Node | None
    partial_block: int
    num_partial_tokens: int

    @property
    def blocks(self) -> list[int]:
        """Ids of the whole blocks, root to leaf. Read off the tree at every access: ask before evicting."""
        return unpack_blocks(self.node.path_blocks())

    @property
    def packed_blocks(self) -> bytes:
        """`blocks` as packed int32, at memcpy speed: `numpy.frombuffer(match.packed_blocks, numpy.int32)`."""
        return self.node.path_blocks()


class Inserted(NamedTuple):
    """What became of an insert.

    Attributes:
        node: the end of the inserted prefix.
        num_new_tokens: tokens the tree did not have yet; their blocks are the tree's now.
        duplicates: given ids for positions that the tree holds under other ids: still the caller's to free.
    """

    node: Node
    num_new_tokens: int
    duplicates: list[int]


@dataclass(frozen=True, slots=True)
class Event:
    """Blocks came into the tree or left it; enough to keep a copy of the tree elsewhere.

    Attributes:
        kind: "inserted" or "evicted".
        namespace: where.
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
