"""Which block of the pool has which key (`block_key`), for those that follow what the tree holds.

Knows token ids and keys, no tree and no tier. Belongs to the step's thread. About 100 bytes for each block of the tree;
a key costs a microsecond, and only blocks that are new to the tree get one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .block_key import BlockKey, extend_keys, root_of


class BlockKeys:
    """The keys of the blocks that are in the tree.

    Args:
        fingerprint: 32 bytes, of the model; keys begin with it.
        block_size: tokens per block.
        num_blocks: size of the pool.
    """

    def __init__(self, fingerprint: bytes, block_size: int, num_blocks: int) -> None:
        self.fingerprint = fingerprint
        self._token_bytes = 4 * block_size
        self._keys: list[BlockKey | None] = [None] * num_blocks

    def enter(self, blocks: Sequence[int], tokens: bytes, namespace: str, before: int | None) -> list[BlockKey]:
        """Names blocks that hold packed `tokens`, after block `before` of the tree (None: at its root).

        Returns the keys of the whole blocks. A last block that is not full gets none, nor does any after a block
        without a key.
        """
        if before is None:
            keys = self.of_prefix(tokens, namespace)
        else:
            parent = self._keys[before]
            keys = [] if parent is None else extend_keys(parent.digest, False, tokens, self._token_bytes)
        for index, block in enumerate(blocks):
            self._keys[block] = keys[index] if index < len(keys) else None
        return keys

    def of_prefix(self, tokens: bytes, namespace: str) -> list[BlockKey]:
        """The keys of the whole blocks of packed `tokens`, from the root on; changes nothing."""
        return extend_keys(root_of(self.fingerprint, namespace), True, tokens, self._token_bytes)

    def of(self, blocks: Iterable[int]) -> list[tuple[BlockKey, int]]:
        """Those of the blocks that have a key, each with it."""
        return [(key, block) for block in blocks if (key := self._keys[block]) is not None]

    def forget(self, blocks: Iterable[int]) -> None:
        """These blocks will hold other tokens."""
        for block in blocks:
            self._keys[block] = None
