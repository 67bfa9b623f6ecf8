"""The name of a block's KV, wherever it lies.

The KV of a block depends on every token before it, so a key is the digest of a chain and stands for a whole prefix::

    root = H(fingerprint, namespace)      first = H(root, tokens of block 0)      second = H(first, tokens of block 1) …

Two blocks have the same key only if model, namespace and all tokens up to their ends are the same (BLAKE2b, 256 bits:
a collision would be one tenant's text in another's answer, so keys are not made shorter). There is no key without a
namespace, since there is no root without one. Knows token ids, no tree and no tier. Cost: a microsecond for a key; only
blocks that are new to the tree get one, of about 100 bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

DIGEST_BYTES = 32
NO_PARENT = bytes(DIGEST_BYTES)


class BlockKey(NamedTuple):
    """A block's key.

    Attributes:
        digest: 32 bytes that stand for all tokens up to the end of the block.
        parent: the digest of the block before it; zeros for the first of a prefix.
    """

    digest: bytes
    parent: bytes


def root_of(fingerprint: bytes, namespace: str) -> bytes:
    """What the keys of a namespace begin with. fingerprint: of the model, at most 64 bytes."""
    data = namespace.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, key=fingerprint, digest_size=DIGEST_BYTES, person=b"phloem root").digest()


def extend_keys(before: bytes, is_first: bool, tokens: bytes, block_bytes: int) -> list[BlockKey]:
    """The keys of the whole blocks of `tokens` (packed), which follow `before`.

    Args:
        before: the digest of the block before, or `is_first` and the root.
        block_bytes: bytes of a block's packed tokens.
    """
    keys = []
    parent = NO_PARENT if is_first else before
    for start in range(0, len(tokens) - block_bytes + 1, block_bytes):
        before = hashlib.blake2b(tokens[start : start + block_bytes], key=before, digest_size=DIGEST_BYTES).digest()
        keys.append(BlockKey(before, parent))
        parent = before
    return keys


def part_keys(key: BlockKey, number: int) -> list[BlockKey]:
    """The keys of the rows of a block's part (`parts`), which follow the block and each other."""
    keys, parent = [], key.digest
    for index in range(number):
        digest = hashlib.blake2b(
            index.to_bytes(4, "little"), key=key.digest, digest_size=DIGEST_BYTES, person=b"phloem part"
        ).digest()
        keys.append(BlockKey(digest, parent))
        parent = digest
    return keys


class BlockKeys:
    """The keys of the blocks that are in the tree, for those that follow it. Belongs to the step's thread.

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
