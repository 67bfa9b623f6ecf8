"""What the tree answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .node import Node, unpack_blocks
from .walk import closest_child


class Match:
    """The longest cached prefix of some tokens.

    What is not known from the walk is looked up when it is first asked for. Valid until the next `evict`, unless
    `node` is leased; ask for the partial block before evicting, and lease `partial_node` to keep it.

    Attributes:
        node: the end of the prefix, to be leased; a root if nothing matched.
        num_tokens: its length, a multiple of the block size.
    """

    __slots__ = ("_block_bytes", "_partial", "_tokens", "node", "num_tokens")

    def __init__(self, node: Node, tokens: bytes, block_bytes: int) -> None:
        self.node = node
        self.num_tokens = node.end
        self._tokens = tokens
        self._block_bytes = block_bytes
        self._partial: tuple[Node | None, int] | None = None

    @property
    def blocks(self) -> list[int]:
        """Ids of the whole blocks, root to leaf; ValueError if they have been evicted."""
        return unpack_blocks(self.node.path_blocks())

    @property
    def packed_blocks(self) -> bytes:
        """`blocks` as packed int32, at memcpy speed: `numpy.frombuffer(match.packed_blocks, numpy.int32)`."""
        return self.node.path_blocks()

    @property
    def partial_node(self) -> Node | None:
        """The node whose first block agrees furthest with the tokens behind the prefix, or None."""
        return self._find_partial()[0]

    @property
    def partial_block(self) -> int:
        """That block, a donor for copy-on-write; -1 if there is none."""
        donor = self._find_partial()[0]
        return -1 if donor is None else unpack_blocks(donor.blocks[:4])[0]

    @property
    def num_partial_tokens(self) -> int:
        """How many tokens of the donor agree, from its start: 0 to block_size - 1."""
        return self._find_partial()[1] >> 2

    def _find_partial(self) -> tuple[Node | None, int]:
        if self._partial is None:
            self._partial = closest_child(self.node, self._tokens, self.num_tokens << 2, self._block_bytes)
        return self._partial


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
