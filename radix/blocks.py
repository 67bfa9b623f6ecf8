"""The pool of KV block ids: ints in `[0, num_blocks)`.

Every block has one owner at a time: this pool (free), a request (allocated), or the tree (allocated, then given to
`RadixTree.insert`). The pool does not distinguish the last two: what is evicted or dropped is freed here, once.

Cost: `allocate(n)` and `free(n ids)` are O(n), whatever the size of the pool.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import PhloemError


class OutOfBlocks(PhloemError):
    """More blocks were requested than are free; nothing was allocated. Evict or preempt, then try again."""


class BlockPool:
    """Allocates block ids, the last freed first (their memory is most likely still in the processor's cache).

    Args:
        num_blocks: size of the pool.
        block_size: tokens per block; not used by the pool itself.
    """

    __slots__ = ("_free", "_is_free", "block_size", "num_blocks")

    def __init__(self, num_blocks: int, block_size: int) -> None:
        if num_blocks < 0 or block_size < 1:
            raise ValueError(f"a pool of {num_blocks} blocks of {block_size} tokens cannot exist")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.free_all_but(())

    @property
    def num_free(self) -> int:
        """Blocks that can be allocated now."""
        return len(self._free)

    def allocate(self, num_blocks: int) -> list[int]:
        """Take `num_blocks` ids out of the pool, or raise `OutOfBlocks` and take none."""
        if num_blocks < 0:
            raise ValueError(f"cannot allocate {num_blocks} blocks")
        num_left = len(self._free) - num_blocks
        if num_left < 0:
            raise OutOfBlocks(f"{num_blocks} KV blocks requested, {self.num_free} of {self.num_blocks} are free")
        blocks = self._free[num_left:][::-1]
        del self._free[num_left:]
        for block in blocks:
            self._is_free[block] = 0
        return blocks

    def free(self, blocks: Iterable[int]) -> None:
        """Return ids to the pool.

        Raises:
            ValueError: an id is free already, or not in the pool's range; the ids before it have been freed.
        """
        for block in blocks:
            if not 0 <= block < self.num_blocks:
                raise ValueError(f"block {block} is not of this pool of {self.num_blocks}")
            if self._is_free[block]:
                raise ValueError(f"block {block} is free already")
            self._is_free[block] = 1
            self._free.append(block)

    def free_all_but(self, blocks: Iterable[int]) -> None:
        """Make these ids the only ones in use, whatever was in use before. O(pool)."""
        self._is_free = bytearray(b"\x01" * self.num_blocks)
        for block in blocks:
            self._is_free[block] = 0
        self._free = [block for block in range(self.num_blocks - 1, -1, -1) if self._is_free[block]]

    def is_free(self, block: int) -> bool:
        """Whether `block` is in the pool now."""
        return bool(self._is_free[block])

    def audit(self) -> None:
        """Raise AssertionError if the free list and the free flags disagree."""
        assert len(set(self._free)) == len(self._free), "a block is on the free list twice"
        flagged = {block for block, is_free in enumerate(self._is_free) if is_free}
        assert flagged == set(self._free), f"flags and free list differ in {flagged ^ set(self._free)}"
