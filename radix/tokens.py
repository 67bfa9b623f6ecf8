"""Token sequences as bytes: little-endian int32, four bytes per token.

Bytes are hashed, sliced and compared at the speed of memory from plain Python, and handed to compiled code as they are.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable

from .._core import radix as core


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


def common_prefix(one: bytes, other: bytes) -> int:
    """Bytes in which two packed sequences agree from their start, rounded down to whole tokens."""
    return core.common_prefix(one, other)


def unpack_blocks(blocks: bytes) -> list[int]:
    """Packed native int32, as block ids are, as a list."""
    return array("i", blocks).tolist()
