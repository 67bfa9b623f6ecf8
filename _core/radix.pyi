"""The compiled radix tree (`radix/core`): token prefixes → KV block ids.

Tokens and block ids are packed int32 (`radix.pack`); for nodes see `radix.Node`.
"""

from collections.abc import Callable

from ..radix.results import Node

POLICIES: tuple[str, ...]

def common_prefix(one: bytes, other: bytes) -> int:
    """Length in bytes of the longest common prefix of two packed sequences, in whole tokens."""

class Tree:
    """The base class of `radix.RadixTree`.

    One operation at a time: while a callback runs, every other call, from the callback or from another thread, raises
    RuntimeError. Only `_counts` and the two properties can be read at any time. Packed tokens and ids whose number of
    bytes is no multiple of 4 raise ValueError.
    """

    def __init__(self, block_size: int, policy: str, max_ghosts: int, /) -> None:
        """ValueError: the policy is unknown, or `block_size` is less than 1."""

    @property
    def num_cached_blocks(self) -> int:
        """All blocks in the tree."""

    @property
    def num_leased_blocks(self) -> int:
        """Blocks that a lease or a pin protects."""

    def _match(self, tokens: bytes, namespace: str, now: float, /) -> tuple[int, Node, Node, int, int]:
        """`RadixTree.match` as a tuple: number of tokens, node, partial node, number of partial tokens, partial block.

        now: seconds.
        """

    def _peek(self, tokens: bytes, namespace: str, /) -> tuple[int, int]:
        """How many tokens a match would find: (in whole blocks, in the donor). Changes and counts nothing."""

    def continuation(self, tokens: bytes, namespace: str, count: int) -> bytes:
        """At most `count` tokens that follow `tokens` in the tree, up to the first branch.

        Changes and counts nothing.
        """

    def _insert(
        self,
        tokens: bytes,
        blocks: bytes,
        namespace: str,
        after: Node,
        priority: int,
        now: float,
        block_cost: Callable[[int], float] | None,
        tell: Callable[[str, str, bytes, int, list[int]], object] | None,
        /,
    ) -> tuple[int, Node, bytes]:
        """`RadixTree.insert` as a tuple: number of new tokens, node, packed duplicates.

        block_cost: for the policy "cost"; called once for each position (in tokens) that a prefix reaches.
        tell: called with the fields of `radix.Event`; an exception is reported by `sys.unraisablehook`.
        """

    def _touch(self, node: Node, now: float, /) -> None:
        """Count a use of the prefix that ends at `node`, and a hit; no effect if it was evicted."""

    def lease(self, node: Node) -> None:
        """Protect the prefix that ends at `node` until it is released as often; ValueError if it was evicted."""

    def release(self, node: Node) -> None:
        """Undo one `lease`; ValueError if there is none."""

    def num_sole_blocks(self, node: Node) -> int:
        """How many blocks the lease on `node` alone protects: its release would make them evictable. O(depth)."""

    def packed_blocks(self, node: Node) -> bytes:
        """The packed ids from the root to the end of a node; ValueError if it was evicted. O(depth)."""

    def path_tokens(self, node: Node) -> bytes:
        """The packed tokens from the root to the end of a node; ValueError if it was evicted. O(depth)."""

    def is_tail(self, node: Node) -> bool:
        """Whether the last block of a prefix is not full; ValueError if it was evicted."""

    def _evict(
        self,
        num_blocks: int,
        now: float,
        spare: Callable[[str, bytes], int] | None,
        tell: Callable[[str, str, bytes, int, list[int]], object] | None,
        /,
    ) -> bytes:
        """`RadixTree.evict` without ending any pins; the packed ids.

        tell: as for `_insert`, called once for each evicted run.
        """

    def _evicted_at(self, tokens: bytes, namespace: str, /) -> float | None:
        """When the block after the cached prefix of `tokens` was last evicted; None: never, or it is forgotten."""

    def _counts(self) -> dict[str, int]:
        """The fields of `radix.Statistics`, except for pins."""

    def _namespaces(self) -> list[str]:
        """Namespaces with a cached prefix."""

    def _nodes(
        self,
    ) -> list[tuple[int, int, str, bytes, list[int], list[int], int, int, int, int, float, float, bool]]:
        """The fields of `radix.snapshot.NodeRecord` of all nodes, those of the roots first."""

    def _columns(self, now: float, most: int, pins: list[int], /) -> tuple[int, int, bytes, list[str]]:
        """`RadixTree.columns` as a tuple; pins: the nodes that pins lease."""

    def _candidates(self) -> list[tuple[float, float, int]]:
        """The eviction heap: (rank, last use, node)."""
