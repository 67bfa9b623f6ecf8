"""The KV tensors, block by block. Knows no tokens and no requests; a block is an index.

Per layer two tensors `[num_blocks, num_kv_heads, block_size, head_dim]`: one head's tokens of a block lie together, so
an attention tile of one block is one contiguous read. int8 and fp8 come with a scale per token and head. Models with
latent attention keep one tensor per layer, their latents. The layers of a part are views of one stack, so that a block
is copied in all of them at once.
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
        shape = (num_layers, num_blocks, num_kv_heads, block_size, head_dim)
        self.block_size = block_size
        self.num_blocks = num_blocks
        self._stacks = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(num_parts)]
        self.keys = list(self._stacks[0])
        self.values = list(self._stacks[1]) if num_parts > 1 else []
        self.key_scales: list[Tensor] | list[None] = [None] * num_layers
        self.value_scales: list[Tensor] | list[None] = [None] * num_layers
        if is_quantised(dtype):
            scales = [torch.zeros(shape[:4], dtype=torch.float32, device=device) for _ in range(2)]
            self.key_scales, self.value_scales = (list(stack) for stack in scales)
            self._stacks += scales

    def copy_block(self, source: int, target: int) -> None:
        """Copies one block in all layers, with a launch for each stack; ordered like all on the stream.

        Where a stack is larger than 2 GiB, torch takes a launch for every so many layers as lie within 2 GiB.
        """
        if source != target:
            for stack in self._stacks:
                stack[:, target].copy_(stack[:, source])

    @staticmethod
    def bytes_per_block(
        *, num_layers: int, num_kv_heads: int, block_size: int, head_dim: int, dtype: torch.dtype, num_parts: int = 2
    ) -> int:
        """Bytes of one block: parts · layers · kv_heads · block_size · bytes of a head, scale included."""
        return num_parts * num_layers * num_kv_heads * block_size * bytes_per_head(head_dim, dtype)
