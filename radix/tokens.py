"""Token sequences packed as bytes: little-endian int32, four bytes per token.

Plain Python hashes, slices and compares bytes at the speed of memory, and passes them to compiled code without a copy.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from .._core import radix as core


def pack(token_ids: Iterable[int]) -> bytes:
    """Token ids as packed int32; OverflowError if one does not fit. Fastest from `array('i')`."""
    return (
        token_ids if isinstance(token_ids, array) and token_ids.typecode == "i" else array("i", token_ids)
    ).tobytes()


def unpack(packed: bytes) -> list[int]:
    """The inverse of `pack`, for tokens and block ids."""
    return array("i", packed).tolist()


def common_prefix(one: bytes, other: bytes) -> int:
    """Length in bytes of the longest common prefix of two packed sequences, in whole tokens."""
    return core.common_prefix(one, other)
