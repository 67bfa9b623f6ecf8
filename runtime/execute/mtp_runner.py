"""The runner of an MTP layer, which is told where the hidden state before each token lies (`DraftKV`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from torch import Tensor

from ...kernels import send
from .batch import Batch, IntArray
from .model_runner import ModelRunner, Watch


class MtpRunner(ModelRunner):
    """As `ModelRunner`, without a recorder; of batches whose requests have dropped nothing."""

    def _launch(
        self, batch: Batch, decided: Tensor | None, watch: Watch | None, compute: Callable[..., Tensor]
    ) -> Tensor:
        cache = self._kv_cache
        slots = slots_before(batch, cache.block_size, nowhere=cache.num_blocks * cache.block_size)
        return super()._launch(batch, decided, watch, partial(compute, before=send(slots, self._device)))


def slots_before(batch: Batch, block_size: int, *, nowhere: int) -> IntArray:
    """`[T]` int64: the slot of the position before that of each token; `nowhere` for the first of a sequence."""
    owner = np.repeat(np.arange(len(batch.context_lens)), np.diff(batch.query_starts))
    places = batch.positions - 1
    slots = batch.block_tables[owner, places // block_size].astype(np.int64) * block_size + places % block_size
    return np.where(places < 0, nowhere, slots)
