"""Token sequences as bytes: little-endian int32, four bytes per token.

Bytes are hashed, sliced and compared at memcpy speed from plain Python, so a run of tokens is a dictionary key,
and an edge is compared by one `startswith`. Only the one edge on a path that differs pays for a search of the
first difference.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable

# The token (-1) that fills up a block which is not whole: no real one is negative, so nothing agrees with it.
PADDING = b"\xff\xff\xff\xff"
# Above this many bytes a window is halved by memcmp, below it one xor of two big integers finds the place.
XOR_BYTES = 64


def pack(token_ids: Iterable[int]) -> bytes:
    """Token ids as little-endian int32 bytes; OverflowError if one does not fit. Cheapest from `array('i')`."""
    ids = token_ids if isinstance(token_ids, array) and token_ids.typecode == "i" else array("i", token_ids)
    if sys.byteorder == "big":
        ids = ids[:]
        ids.byteswap()
    return ids.tobytes()


def unpack(tokens: bytes) -> list[int]:
    """The inverse of `pack`."""
    ids = array("i")
    ids.frombytes(tokens)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids.tolist()


def without_padding(tokens: bytes) -> bytes:
    """The tokens of a path that ends in a tail, less what fills its block up."""
    end = len(tokens)
    while tokens.endswith(PADDING, 0, end):
        end -= 4
    return tokens[:end]


def common_prefix(key: bytes, tokens: bytes) -> int:
    """Bytes in which `key` and `tokens` agree from their start, rounded down to whole tokens.

    Grows a window until it differs, halves it until it is small, then reads the first difference off an xor.
    O(agreeing bytes) in memcmp, O(log) Python steps; copies no more than a small multiple of what agrees.
    """
    limit = min(len(key), len(tokens))
    low, size = 0, XOR_BYTES
    while True:
        high = min(low + size, limit)
        if not tokens.startswith(key[low:high], low):
            break
        low = high
        if low == limit:
            return limit & ~3
        size *= 4
    while high - low > XOR_BYTES:
        middle = (low + high) >> 1
        if tokens.startswith(key[low:middle], low):
            low = middle
        else:
            high = middle
    difference = int.from_bytes(key[low:high], "little") ^ int.from_bytes(tokens[low:high], "little")
    return (low + (((difference & -difference).bit_length() - 1) >> 3)) & ~3


def unpack_blocks(blocks: bytes) -> list[int]:
    """Packed native int32, as block ids are, as a list."""
    return array("i", blocks).tolist()
