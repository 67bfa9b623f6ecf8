"""What the tree answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NewType

from .tokens import unpack_blocks

# The end of a prefix in the tree: to be leased, inserted behind, read. Splits and other insertions leave it what it is;
# eviction makes it stale, and whoever hands in a stale one is told so.
Node = NewType("Node", int)
# The end of the empty prefix of any namespace. It cannot be evicted, so leases on it are of no effect.
NOTHING = Node(0)


class Match:
    """The longest cached prefix of some tokens. Valid until the next `evict`, unless `node` is leased.

    Attributes:
        node: the end of the prefix, to be leased.
        num_tokens: its length, a multiple of the block size.
        partial_node: a node whose first block agrees furthest with the tokens behind the prefix; to be leased too, if
            it is to outlive an eviction. `NOTHING` if none agrees in a token.
        num_partial_tokens: how many tokens of that block agree, from its start: 0 to block_size - 1.
        partial_block: the block itself, a donor for copy-on-write; -1 if there is none.
    """

    __slots__ = ("_find_blocks", "node", "num_partial_tokens", "num_tokens", "partial_block", "partial_node")

    def __init__(
        self,
        find_blocks: Callable[[Node], bytes],
        num_tokens: int,
        node: Node,
        partial_node: Node,
        num_partial_tokens: int,
        partial_block: int,
    ) -> None:
        self._find_blocks = find_blocks
        self.num_tokens = num_tokens
        self.node = node
        self.partial_node = partial_node
        self.num_partial_tokens = num_partial_tokens
        self.partial_block = partial_block

    @property
    def blocks(self) -> list[int]:
        """Ids of the whole blocks, root to leaf; ValueError if they have been evicted."""
        return unpack_blocks(self.packed_blocks)

    @property
    def packed_blocks(self) -> bytes:
        """`blocks` as packed int32."""
        return self._find_blocks(self.node)


class Inserted:
    """What became of an insert.

    Attributes:
        node: the end of the inserted prefix.
        num_new_tokens: tokens the tree did not have yet; their blocks are the tree's now.
        duplicates: given ids for positions that the tree holds under other ids: still the caller's to free.
    """

    __slots__ = ("duplicates", "node", "num_new_tokens")

    def __init__(self, node: Node, num_new_tokens: int, duplicates: list[int]) -> None:
        self.node = node
        self.num_new_tokens = num_new_tokens
        self.duplicates = duplicates


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
