"""phloem's radix tree under the protocol of `radixbench.py` (a yardstick for prefix caches).

    python radixbench.py check --targets project --project-path bench --project radixbench_adapter:cache

The yardstick counts tokens and hands over one KV index per token; the tree stores one id per block. A block's id here
is the index of its last token (indices within a block are consecutive); `indices` expands ids to tokens. A handle is a
node. All conversion except that of the token container is inside the timed calls. What is compiled is called directly:
the objects that `RadixTree` makes of its answers are for people. What is inserted begins with what was
matched last and is locked, as the protocol has it.
"""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from phloem.radix import NOTHING, Node, RadixTree

Indices = npt.NDArray[np.int32]


class Cache:
    """One tree, one namespace, counting in tokens."""

    tokens_as = "bytes32"
    indices_as = "int32"

    def __init__(self, capacity_tokens: int, page_size: int) -> None:
        self.tree = tree = RadixTree(page_size)
        self.lock, self.unlock = tree.lease, tree.release
        self._page_size = page_size
        self._places = np.zeros(0, np.int32)
        self._matched = (0, NOTHING)
        self._freed: list[bytes] = []

    def match(self, tokens: bytes) -> tuple[int, Node]:
        num_tokens, node, _, _, _ = self.tree._match(tokens, "bench", time.monotonic())
        self._matched = (num_tokens, node)
        return self._matched

    def insert(self, tokens: bytes, indices: Indices) -> int:
        page_size, (num_matched, after) = self._page_size, self._matched
        blocks = indices[num_matched + page_size - 1 :: page_size].tobytes()
        return self.tree._insert(tokens[4 * num_matched :], blocks, "bench", after, 0, time.monotonic(), None, None)[0]

    def evict(self, num_tokens: int) -> int:
        blocks = self.tree._evict(1 + (num_tokens - 1) // self._page_size, time.monotonic(), None, None)
        self._freed.append(blocks)
        return len(blocks) * self._page_size // 4

    def indices(self, node: Node) -> Indices:
        return self._expand(self.tree.packed_blocks(node))

    def pop_freed(self) -> list[Indices]:
        freed, self._freed = self._freed, []
        return [self._expand(blocks) for blocks in freed]

    def cached_tokens(self) -> int:
        return self.tree.num_cached_blocks * self._page_size

    def _expand(self, blocks: bytes) -> Indices:
        """From packed ids of blocks to the indices of their tokens, which end with them."""
        indices = np.frombuffer(blocks, np.int32).repeat(self._page_size)
        if len(indices) > len(self._places):
            self._places = np.tile(np.arange(1 - self._page_size, 1, dtype=np.int32), len(blocks) // 2)
        indices += self._places[: len(indices)]
        return indices


def cache(capacity_tokens: int, page_size: int) -> Cache:
    """The yardstick's entry point. The capacity is where the driver evicts; the tree would go on."""
    return Cache(capacity_tokens, page_size)
