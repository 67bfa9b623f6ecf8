"""A batch's index arrays → logits. The one place where numpy becomes tensors on the device.

Knows the decoder, the KV tensors and the kernels' plan; it knows no requests beyond the batch's arrays.
"""

from __future__ import annotations

from typing import Protocol

import torch

from ..kernels import AttentionPlan, plan_attention
from .batch import Batch
from .kv_cache import KVCache
from .models import ModelConfig


class DecoderLike(Protocol):
    """What the runner needs of a model."""

    config: ModelConfig

    def forward(
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: KVCache,
        plan: AttentionPlan,
        slots: torch.Tensor,
        logits_rows: torch.Tensor | None,
    ) -> torch.Tensor: ...


class ModelRunner:
    """Runs one ragged forward per step.

    Attributes:
        device_type: "cpu", "cuda" …
        num_forwards: forwards run so far.
        num_computed_tokens: tokens computed so far, drafts included.
    """

    def __init__(self, decoder: DecoderLike, kv_cache: KVCache, device: torch.device) -> None:
        self._decoder = decoder
        self._kv_cache = kv_cache
        self._device = device
        self.device_type: str = device.type
        self.num_forwards = 0
        self.num_computed_tokens = 0

    @torch.inference_mode()
    def forward(self, batch: Batch) -> torch.Tensor:
        """Writes the batch's KV and returns logits `[R, vocab_size]` (float32) of `batch.logits_rows`."""
        config = self._decoder.config
        plan = plan_attention(
            batch.query_starts,
            batch.context_lens,
            batch.block_tables,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            block_size=self._kv_cache.block_size,
            device=self._device,
        )
        logits = self._decoder.forward(
            self._to_device(batch.token_ids),
            self._to_device(batch.positions),
            self._kv_cache,
            plan,
            self._to_device(batch.slots),
            self._to_device(batch.logits_rows),
        )
        self.num_forwards += 1
        self.num_computed_tokens += len(batch.token_ids)
        return logits

    def _to_device(self, array: object) -> torch.Tensor:
        return torch.as_tensor(array).to(self._device, non_blocking=True)
