"""Warm-up batches: steps of every kind that an engine may meet, to be run before a request waits for one.

On a GPU the first step of its kind is slow: kernels are compiled (seconds, once on a machine, then loaded), libraries
choose theirs, buffers grow, and a graph is captured. Which kernels a step takes is decided by how its contexts are
spread and shared, so a warm-up walks through these cases, for every size of graph and every length of chunk::

    full    ▬▬▬▬▬▬ ▬▬▬▬▬▬     the pool is full
    even    ▬▬▬ ▬▬▬ ▬▬▬       all read several splits of the grid of keys
    short   ▪ ▪ ▪ ▪           none reads more than one
    one     ▬▬▬▬▬▬▬▬▬ ▪ ▪     one reads much more than the others, be they short or even
    shared  ════▪ ════▪       all read one prefix, and little of their own
    forked  ════▬▬▬ ════▬▬▬   or more of it

The largest come first: buffers take their size once, and the memory of large graphs serves the smaller ones as well.

A warm-up batch belongs to no request. It computes on token 0, its keys are whatever the pool holds, and nothing is
written. With windows a step is of two kinds at once, and half of the pairs that occur or more are reached; others are
captured when they come for the second time.

Knows no tensors and no kernels; how much of what real steps launch is reached is for the tests to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ...kernels import SPLIT_SIZE
from .batch import NOWHERE, Batch
from .cuda_graphs import SIZES
from .window_view import see_windows

SEVERAL = 4 * SPLIT_SIZE
DRAFT_LENS = (4, 8)  # tokens of a request in steps that verify drafts


@dataclass(frozen=True, slots=True)
class WarmupBatches:
    """What steps an engine may meet.

    Attributes:
        max_requests, max_tokens: of a step.
        max_len: tokens of a sequence.
        num_blocks, block_size: of the pool.
        window, num_slots: of layers with a window, and the slots for their blocks; 0: all read blocks of the pool.
    """

    max_requests: int
    max_tokens: int
    max_len: int
    num_blocks: int
    block_size: int
    window: int = 0
    num_slots: int = 0

    def decodes(self) -> Iterator[Batch]:
        """Steps that graphs are captured of, drafts among them; several are of one kind."""
        limit = min(self.max_requests, self.max_tokens)
        for below, size in reversed(list(pairwise((0, *SIZES)))):
            if below < limit:
                yield from self._regimes([1] * min(size, limit))
            # drafts spread requests over tile classes in many more ways than are worth a graph each
            for draft_len in DRAFT_LENS if size & (size - 1) == 0 else ():
                num_drafts = size // draft_len - 1
                if num_drafts > 0 and num_drafts + draft_len <= self.max_requests and draft_len <= self.max_len:
                    yield from self._regimes([draft_len] * num_drafts + [1] * draft_len)

    def prefills(self) -> Iterator[Batch]:
        """Chunks of all lengths, alone and with requests that decode; only their last tokens' logits are wanted."""
        length = min(self.max_tokens, self.max_len)
        while length > 1:
            yield from self._regimes([length], wants_all=False)
            others = min(self.max_requests - 1, length // 2)
            if others:
                yield from self._regimes([length - others] + [1] * others, wants_all=False)
            length //= 2

    def _regimes(self, q_lens: list[int], *, wants_all: bool = True) -> Iterator[Batch]:
        count, pool_len = len(q_lens), self.num_blocks * self.block_size
        for lens in (pool_len // count, SEVERAL, SPLIT_SIZE):
            yield self._batch(q_lens, [lens] * count, 0, wants_all=wants_all)
        for lens in (2 * SPLIT_SIZE, SPLIT_SIZE) if count > 1 else ():
            yield self._batch(q_lens, [pool_len // 2] + [lens] * (count - 1), 0, wants_all=wants_all)
        prefix = min(pool_len, self.max_len) // 2
        for own in (SPLIT_SIZE // 2, SEVERAL) if count > 1 else ():
            yield self._batch(q_lens, [prefix + own] * count, prefix, wants_all=wants_all)

    def _batch(self, q_lens: list[int], lens: list[int], shared: int, *, wants_all: bool) -> Batch:
        """shared: tokens of a common prefix, in block 0; of its own a request has one block, over and over."""
        count, num_tokens = len(q_lens), sum(q_lens)
        lens = [min(max(length, q_len), self.max_len) for q_len, length in zip(q_lens, lens, strict=True)]
        tables = np.zeros((count, -(-max(lens) // self.block_size)), np.int32)
        tables[:, shared // self.block_size :] = 1 + np.arange(count)[:, None] % max(1, self.num_blocks - 1)
        starts = np.cumsum([0, *q_lens]).astype(np.int32)
        positions = np.concatenate([np.arange(end - q_len, end) for q_len, end in zip(q_lens, lens, strict=True)])
        rows = np.arange(num_tokens) if wants_all else starts[1:].astype(np.int64) - 1
        batch = Batch(
            [],
            np.zeros(num_tokens, np.int64),
            positions.astype(np.int64),
            np.full(num_tokens, NOWHERE, np.int64),
            starts,
            np.array(lens, np.int32),
            tables % self.num_blocks,
            [],
            rows,
        )
        if self.num_slots:
            slot_of = np.arange(self.num_blocks, dtype=np.int32) % (self.num_slots - 1) + 1
            batch = see_windows(batch, slot_of, self.window, self.block_size)
        return batch
