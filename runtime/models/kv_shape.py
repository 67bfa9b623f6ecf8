"""What a layer keeps of a token in the cache, as numbers. Knows no tensors and no configuration."""

from __future__ import annotations

from typing import NamedTuple


class KVShape(NamedTuple):
    """A layer's KV heads, the elements of one, and its parts: 2, keys and values, or 1, latents."""

    num_heads: int
    head_dim: int
    num_parts: int = 2
