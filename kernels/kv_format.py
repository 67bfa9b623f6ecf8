"""How keys and values are stored: as they are, or in one byte each with a scale per token and head.

    stored = round(x * limit / largest |x|)        scale = largest |x| / limit        x ≈ stored * scale

A token's head is scaled by itself, so writing a token never touches another, and what a key becomes depends on the key
alone. int8 spreads its 255 levels evenly; fp8 (e4m3) has 3 bits of mantissa at every size, subnormals from 2^-6 down.
Scales are fp32 `[num_blocks, num_kv_heads, block_size]`, one tensor for keys and one for values. Knows no kernels.
"""

from __future__ import annotations

import torch

FP8 = torch.float8_e4m3fn
KV_LIMITS = {torch.int8: 127.0, FP8: 448.0}  # the largest number of each type


def is_quantised(dtype: torch.dtype) -> bool:
    """Whether a cache of this type needs scales."""
    return dtype in KV_LIMITS


def bytes_per_head(head_dim: int, dtype: torch.dtype) -> int:
    """Bytes of one head of one token's keys or values, the scale included."""
    return head_dim * dtype.itemsize + (4 if is_quantised(dtype) else 0)
