"""A model with a window that tells the truth about it: what its windowed layer reads must be the last tokens.

A key that is not that of the token in its place, or that is missing, fails the step that reads it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from phloem.kernels import AttentionPlan
from phloem.runtime.execute.window_kv import WindowKV
from phloem.runtime.models.config import LayerConfig
from phloem.runtime.models.step import WindowStep

from .fakes import FakeDecoder, FakeModelConfig


@dataclass(frozen=True)
class WindowedFakeConfig(FakeModelConfig):
    num_layers: int = 2
    layers: tuple[LayerConfig, ...] = (LayerConfig(window=0, rope=0), LayerConfig(window=6, rope=0))


class WindowedFakeDecoder(FakeDecoder):
    """Writes each token into both layers, and answers from the first if the second agrees as far as it sees."""

    def __init__(self, window: int = 6) -> None:
        layers = (LayerConfig(window=0, rope=0), LayerConfig(window=window, rope=0))
        super().__init__(replace(WindowedFakeConfig(), layers=layers))
        self.window = window

    def forward(  # type: ignore[override]
        self,
        token_ids: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: WindowKV,
        plan: AttentionPlan,
        slots: torch.Tensor,
        logits_rows: torch.Tensor | None,
        *,
        windowed: WindowStep,
    ) -> torch.Tensor:
        pool, size = kv_cache.windowed, kv_cache.block_size
        assert len(set(windowed.slots.tolist())) == len(token_ids), "two tokens in one place"
        pool.keys[0].view(-1)[windowed.slots] = token_ids.to(self.dtype)
        pool.values[0].view(-1)[windowed.slots] = positions.to(self.dtype)
        logits = super().forward(token_ids, positions, kv_cache.pool, plan, slots, logits_rows)  # type: ignore[arg-type]
        for request, begin in enumerate(plan.query_starts[:-1].tolist()):
            first, end = int(positions[begin]), int(plan.context_lens[request])
            shift = end - int(windowed.plan.context_lens[request])
            assert shift % 256 == 0
            at = np.arange(max(0, first - self.window + 1), end)
            assert at[0] >= shift
            blocks = windowed.plan.block_tables[request][(at - shift) // size].astype(np.int64)
            assert (blocks > 0).all(), "a block within the window is not there"
            found = torch.from_numpy(blocks * size + (at - shift) % size)
            assert pool.values[0].view(-1)[found].tolist() == at.tolist(), "a key of another position"
            context = self._read(kv_cache.pool, plan, request, end)
            assert pool.keys[0].view(-1)[found].tolist() == [context[place] for place in at], "a key of another token"
        assert not pool.keys[0][0].any(), "the empty slot was written"
        assert not pool.values[0][0].any(), "the empty slot was written"
        return logits
