"""The KV tensors, block by block. Knows no tokens and no requests; a block is an index.

Per layer two tensors `[num_blocks, num_kv_heads, block_size, head_dim]`: one head's tokens of a block lie together, so
an attention tile of one block is one contiguous read. int8 and fp8 come with a scale per token and head. Models with
latent attention keep one tensor per layer, their latents.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...kernels import bytes_per_head, is_quantised


class KVCache:
    """Keys and values of all layers.

    Attributes:
        keys, values: one tensor per layer, `[num_blocks, num_kv_heads, block_size, head_dim]`; no values with one part.
        key_scales, value_scales: one tensor per layer, fp32 `[num_blocks, num_kv_heads, block_size]`; None where keys
            and values are stored as they are.
    """

    def __init__(
        self,
        *,
        num_layers: int,
        num_blocks: int,
        num_kv_heads: int,
        block_size: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device,
        num_parts: int = 2,
    ) -> None:
        """num_parts: tensors per layer: 2 for keys and values, 1 for latents."""
        shape = (num_blocks, num_kv_heads, block_size, head_dim)
        self.block_size = block_size
        self.num_blocks = num_blocks
        self.keys = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_layers * (num_parts - 1))]
        self.key_scales, self.value_scales = (self._scales(num_layers, shape[:3], dtype, device) for _ in range(2))

    @staticmethod
    def _scales(
        num_layers: int, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> list[Tensor] | list[None]:
        if not is_quantised(dtype):
            return [None] * num_layers
        return [torch.zeros(shape, dtype=torch.float32, device=device) for _ in range(num_layers)]

    def copy_block(self, source: int, target: int) -> None:
        """Copies one block in every layer; the copy is ordered before later kernels on the same stream."""
        if source == target:
            return
        for tensor in (*self.keys, *self.values, *self.key_scales, *self.value_scales):
            if tensor is not None:
                tensor[target].copy_(tensor[source])

    @staticmethod
    def bytes_per_block(
        *, num_layers: int, num_kv_heads: int, block_size: int, head_dim: int, dtype: torch.dtype, num_parts: int = 2
    ) -> int:
        """Bytes of one block: parts · layers · kv_heads · block_size · bytes of a head, scale included."""
        return num_parts * num_layers * num_kv_heads * block_size * bytes_per_head(head_dim, dtype)
