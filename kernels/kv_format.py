"""How keys and values are stored: as they are, or in a byte or four bits each with a scale per token and head.

::

    int8, fp8    stored = round(x * limit / largest |x|)       x ≈ stored * scale           scale = largest |x| / limit
    int4         number = round((x - middle) / scale)          x ≈ number * scale + middle
                 scale = (largest x - least x) / 15            middle = least x + 8 * scale

A token's head is scaled by itself, so writing a token never touches another, and what a key becomes depends on the key
alone. int8 spreads its 255 levels evenly; fp8 (e4m3) has 3 bits of mantissa at every size, subnormals from 2^-6 down.
Scales are fp32 `[num_blocks, num_kv_heads, block_size]`, one tensor for keys and one for values.

int4 has -8 … 7, and a byte holds two neighbours as 0 … 15, the first in its low half, so the last axis is half as long.
Scale and middle are rounded to bf16 before they are used, and are the high and the low half of one int32 in the place
of the fp32 scale. Such a cache is of uint8. No two formats have one dtype: by it a cache is known. Knows no kernels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch

FP8 = torch.float8_e4m3fn
INT4 = torch.uint8  # two numbers each


@dataclass(frozen=True, slots=True)
class KVFormat:
    """What keys and values are rounded to.

    Attributes:
        dtype: of the cache.
        in_loops: what the loops of the core call it (`Stored` of `core/loops.h`); 0 is fp32, which is not rounded.
        limit: the largest number; 0: numbers are counted from a middle.
        scale_dtype: of the scales, four bytes each.
        num_per_element: numbers in an element of the cache.
        least_capability: of a GPU.
    """

    dtype: torch.dtype
    in_loops: int
    limit: float = 0.0
    scale_dtype: torch.dtype = torch.float32
    num_per_element: int = 1
    least_capability: tuple[int, int] = (0, 0)


KV_FORMATS: Mapping[str, KVFormat] = MappingProxyType(
    {
        "int8": KVFormat(torch.int8, 1, limit=127.0),
        "fp8": KVFormat(FP8, 2, limit=448.0, least_capability=(8, 9)),
        "int4": KVFormat(INT4, 3, scale_dtype=torch.int32, num_per_element=2),
    }
)


def by_dtype(formats: Mapping[str, KVFormat]) -> dict[torch.dtype, KVFormat]:
    """The formats by the types of their caches: kernels and the core's loops get tensors alone, and know them by that.

    Raises:
        ValueError: two have one type.
    """
    found = {one.dtype: one for one in formats.values()}
    if len(found) < len(formats):
        raise ValueError(f"each format of keys and values needs a dtype of its own: {', '.join(formats)}")
    return found


_OF_DTYPE = by_dtype(KV_FORMATS)


def kv_format(dtype: torch.dtype) -> KVFormat | None:
    """Of a cache of this type; None: it is not rounded."""
    return _OF_DTYPE.get(dtype)


def is_quantised(dtype: torch.dtype) -> bool:
    """Whether a cache of this type needs scales."""
    return dtype in _OF_DTYPE


def scale_type(dtype: torch.dtype) -> torch.dtype:
    """Of the scales of a rounded cache of this type."""
    return _OF_DTYPE[dtype].scale_dtype


def stored_dim(head_dim: int, dtype: torch.dtype) -> int:
    """The last axis of a cache."""
    return head_dim // _OF_DTYPE[dtype].num_per_element if dtype in _OF_DTYPE else head_dim


def bytes_per_head(head_dim: int, dtype: torch.dtype) -> int:
    """Bytes of one head of one token's keys or values, the scale included."""
    return stored_dim(head_dim, dtype) * dtype.itemsize + (scale_type(dtype).itemsize if is_quantised(dtype) else 0)
