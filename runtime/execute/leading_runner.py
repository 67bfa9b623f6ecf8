"""The runner of rank 0, with which the other ranks run the same steps.

A step is told in one message before rank 0 begins with it. Tokens that only the device knows (steps that run ahead) are
shared from rank 0's device, after what computes them. Knows batches; it knows no requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..models import Adapter
from ..parallel.message import Array, Message
from ..parallel.rank_processes import RankProcesses
from .batch import Batch
from .model_runner import ModelRunner
from .step_message import adapters_of, arrays_of
from .warmup_batches import WarmupBatches


class LeadingRunner(ModelRunner):
    """As `ModelRunner`, for all ranks.

    Args:
        processes: the other ranks.
        num_heads: KV heads of the whole model.
    """

    def __init__(self, processes: RankProcesses, num_heads: int, *of_runner: Any, **options: Any) -> None:
        super().__init__(*of_runner, **options)
        self._processes = processes
        self._num_heads = num_heads

    def forward(self, batch: Batch, decided: Tensor | None = None) -> Tensor:
        with self._step("forward", batch, decided):
            return super().forward(batch, decided)

    def forward_hidden(self, batch: Batch, decided: Tensor | None = None) -> tuple[Tensor, Tensor]:
        with self._step("forward_hidden", batch, decided):
            return super().forward_hidden(batch, decided)

    def run_warmup_batches(self, batches: WarmupBatches) -> None:
        with self._processes.together(Message("run_warmup_batches", asdict(batches))):
            super().run_warmup_batches(batches)

    def score_keys(
        self, token_ids: Sequence[int], end: int, blocks: Sequence[int], num_keys: int, adapter: Adapter | None
    ) -> Tensor:
        values = {"end": end, "num_keys": num_keys, "adapter": None if adapter is None else adapter.fingerprint}
        arrays: dict[str, Array] = {"token_ids": np.array(token_ids, np.int64), "blocks": np.array(blocks, np.int32)}
        with self._processes.together(Message("score_keys", values, arrays)):
            scores = super().score_keys(token_ids, end, blocks, num_keys, adapter)
            parts = self._processes.ranks.collect(scores)
        # heads that are on several ranks have on each the attention of other queries
        copies = len(parts) * scores.shape[1] // self._num_heads
        return torch.cat([sum_of(parts[begin : begin + copies]) for begin in range(0, len(parts), copies)], 1)

    @contextmanager
    def _step(self, kind: str, batch: Batch, decided: Tensor | None) -> Iterator[None]:
        values = {"adapters": adapters_of(batch), "num_decided": None if decided is None else len(decided)}
        with self._processes.together(Message(kind, values, arrays_of(batch))):
            if decided is not None:
                self._processes.ranks.share(decided)
            yield


def sum_of(parts: Sequence[Tensor]) -> Tensor:
    """In their order."""
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total
