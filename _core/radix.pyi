"""The radix tree of `radix/`, compiled (`radix/core`): token prefixes → KV block ids.

Tokens and block ids are packed int32 (`radix.pack`); a node is what `radix.Node` says.
"""

from collections.abc import Callable

from ..radix.results import Node

POLICIES: tuple[str, ...]

def common_prefix(one: bytes, other: bytes) -> int:
    """Bytes in which two packed sequences agree from their start, rounded down to whole tokens."""

class Tree:
    """What `radix.RadixTree` is made of.

    One operation at a time: what a callback, or another thread while a callback runs, calls meanwhile raises
    RuntimeError. Only `counts` and the two properties can be read at any time. Packed tokens and ids whose bytes are
    no multiple of 4 raise ValueError.
    """

    def __init__(self, block_size: int, policy: str, max_ghosts: int, /) -> None:
        """ValueError: there is no such policy, or `block_size` is less than 1."""

    @property
    def num_cached_blocks(self) -> int:
        """All blocks in the tree."""

    @property
    def num_leased_blocks(self) -> int:
        """Blocks that a lease or a pin protects."""

    def find(self, tokens: bytes, namespace: str, now: float, /) -> tuple[int, Node, Node, int, int]:
        """`RadixTree.match` as a tuple: number of tokens, node, partial node, number of partial tokens, partial block.

        now: seconds.
        """

    def look(self, tokens: bytes, namespace: str, /) -> tuple[int, int]:
        """How many tokens a match would find: (of whole blocks, of the donor). Changes and counts nothing."""

    def continuation(self, tokens: bytes, namespace: str, count: int) -> bytes:
        """At most `count` tokens that follow `tokens` in the tree, as far as they can be followed in one way only.

        Changes and counts nothing.
        """

    def put(
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

        block_cost: asked once for each position that a prefix reaches, in tokens; for the policy "cost".
        tell: gets the fields of `radix.Event`; what it raises is reported by `sys.unraisablehook`.
        """

    def use(self, node: Node, now: float, /) -> None:
        """Count a use of the prefix that ends at `node`, and a hit; nothing if it was evicted."""

    def lease(self, node: Node) -> None:
        """Protect the prefix that ends at `node`, until as many releases; ValueError if it was evicted."""

    def release(self, node: Node) -> None:
        """Undo one `lease`; ValueError if there is none."""

    def num_sole_blocks(self, node: Node) -> int:
        """How many blocks only the lease on `node` protects: what releasing it would make evictable. O(depth)."""

    def packed_blocks(self, node: Node) -> bytes:
        """The packed ids from the root to the end of a node; ValueError if it was evicted. O(depth)."""

    def path_tokens(self, node: Node) -> bytes:
        """The packed tokens from the root to the end of a node; ValueError if it was evicted. O(depth)."""

    def is_tail(self, node: Node) -> bool:
        """Whether a prefix ends in a block that is not full; ValueError if it was evicted."""

    def take(
        self,
        num_blocks: int,
        now: float,
        spare: Callable[[str, bytes], int] | None,
        tell: Callable[[str, str, bytes, int, list[int]], object] | None,
        /,
    ) -> bytes:
        """`RadixTree.evict` as far as leaves go without pins being given up; the packed ids.

        tell: as for `put`, once for each run that was taken.
        """

    def evicted_at(self, tokens: bytes, namespace: str, /) -> float | None:
        """When what follows the cached prefix of `tokens` was evicted last; None if it was not, or is forgotten."""

    def counts(self) -> dict[str, int]:
        """What `radix.Statistics` has but pins."""

    def namespaces(self) -> list[str]:
        """Those that have a prefix."""

    def nodes(
        self,
    ) -> list[tuple[int, int, str, bytes, list[int], list[int], int, int, int, int, float, float, bool]]:
        """The fields of `radix.snapshot.NodeRecord` of all nodes, those of the roots first."""

    def candidates(self) -> list[tuple[float, float, int]]:
        """The heap of candidates for eviction: (rank, last use, node)."""
