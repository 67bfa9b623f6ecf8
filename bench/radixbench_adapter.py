"""phloem's radix tree behind the protocol of `radixbench.py` (a yardstick for prefix caches).

    python radixbench.py check --targets project --project-path bench --project radixbench_adapter:cache

The yardstick counts tokens and hands over one KV index per token; the tree stores one id per block. A block's id here
is the index of its last token (indices within a block are consecutive); `indices` expands ids to tokens. A handle is a
node. All conversion except that of the token container is inside the timed calls.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from phloem.radix import Node, RadixTree

Indices = npt.NDArray[np.int32]


class Cache:
    """One tree, one namespace, counting in tokens."""

    tokens_as = "bytes32"
    indices_as = "int32"

    def __init__(self, page_size: int) -> None:
        self.tree = RadixTree(page_size)
        self.lock = self.tree.lease
        self.unlock = self.tree.release
        self._page_size = page_size
        self._within_block = np.empty(0, dtype=np.int32)
        self._matched: tuple[Node, int] | None = None
        self._freed: list[bytes] = []

    def match(self, tokens: bytes) -> tuple[int, Node]:
        match = self.tree.match(tokens, "bench")
        self._matched = match.node, match.num_tokens
        return match.num_tokens, match.node

    def insert(self, tokens: bytes, indices: Indices) -> int:
        blocks = indices[self._page_size - 1 :: self._page_size].tobytes()
        after, self._matched = self._matched, None
        if after is not None and not after[0].num_leases:
            after = None
        return self.tree.insert(tokens, blocks, "bench", after=after).num_new_tokens

    def evict(self, num_tokens: int) -> int:
        blocks = self.tree.evict_packed(-(-num_tokens // self._page_size))
        self._freed.append(blocks)
        return (len(blocks) >> 2) * self._page_size

    def indices(self, node: Node) -> Indices:
        return self._expand(np.frombuffer(node.path_blocks(), dtype=np.int32))

    def pop_freed(self) -> list[Indices]:
        freed, self._freed = self._freed, []
        return [self._expand(np.frombuffer(blocks, dtype=np.int32)) for blocks in freed]

    def cached_tokens(self) -> int:
        return self.tree.num_cached_blocks * self._page_size

    def _expand(self, blocks: Indices) -> Indices:
        if self._page_size == 1:
            return blocks
        indices = blocks.repeat(self._page_size)
        if len(indices) > len(self._within_block):
            self._within_block = np.tile(np.arange(1 - self._page_size, 1, dtype=np.int32), 2 * len(blocks))
        indices += self._within_block[: len(indices)]
        return indices


def cache(capacity_tokens: int, page_size: int) -> Cache:
    """The yardstick's entry point. The tree needs no capacity: the driver evicts."""
    return Cache(page_size)
