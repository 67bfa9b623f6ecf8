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
of the fp32 scale. Such a cache is of uint8, as no other is. Knows no kernels.
"""

from __future__ import annotations

import torch

FP8 = torch.float8_e4m3fn
INT4 = torch.uint8  # two numbers each
KV_LIMITS = {torch.int8: 127.0, FP8: 448.0}  # the largest number of each type


def is_quantised(dtype: torch.dtype) -> bool:
    """Whether a cache of this type needs scales."""
    return dtype == INT4 or dtype in KV_LIMITS


def scale_type(dtype: torch.dtype) -> torch.dtype:
    """Of the scales of a cache of this type."""
    return torch.int32 if dtype == INT4 else torch.float32


def stored_dim(head_dim: int, dtype: torch.dtype) -> int:
    """The last axis of a cache."""
    return head_dim // 2 if dtype == INT4 else head_dim


def bytes_per_head(head_dim: int, dtype: torch.dtype) -> int:
    """Bytes of one head of one token's keys or values, the scale included."""
    return stored_dim(head_dim, dtype) * dtype.itemsize + (4 if is_quantised(dtype) else 0)
