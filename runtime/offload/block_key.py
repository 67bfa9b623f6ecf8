"""The name of a block's KV, wherever it lies.

The KV of a block depends on every token before it, so a key is the digest of a chain and stands for a whole prefix::

    root = H(fingerprint, namespace)      first = H(root, tokens of block 0)      second = H(first, tokens of block 1) …

Two blocks have the same key only if model, namespace and all tokens up to their ends are the same (BLAKE2b, 256 bits:
a collision would be one tenant's text in another's answer, so keys are not made shorter). There is no key without a
namespace, since there is no root without one. Knows no tier. Cost: one hash per block.
"""

from __future__ import annotations

import hashlib
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
