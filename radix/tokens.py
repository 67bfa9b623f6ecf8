"""Token sequences as bytes: int32, four bytes per token, least significant first.

Bytes are hashed, sliced and compared at the speed of memory from plain Python, and handed to compiled code as they are.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from .._core import radix as core


def pack(token_ids: Iterable[int]) -> bytes:
    """Token ids as packed int32; OverflowError if one does not fit. Cheapest from `array('i')`."""
    return (
        token_ids if isinstance(token_ids, array) and token_ids.typecode == "i" else array("i", token_ids)
    ).tobytes()


def unpack(packed: bytes) -> list[int]:
    """The inverse of `pack`, for tokens and block ids."""
    return array("i", packed).tolist()


def common_prefix(one: bytes, other: bytes) -> int:
    """Bytes in which two packed sequences agree from their start, rounded down to whole tokens."""
    return core.common_prefix(one, other)
