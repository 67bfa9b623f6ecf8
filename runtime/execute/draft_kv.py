"""Keys and values of a draft model, in the blocks of the model's pool, and how much of each block they fill.

Block b of the pool holds the KV of both models for the same tokens, so leases, forks, copies, evictions and rollbacks
need no books of their own. What the draft model has not computed, be it that it did not draft then or that the block
came from a tier below the pool, is *missing*, and computed when it next drafts there::

    tokens of a request   │ block 7 │ block 3 │ block 9 │
    model                  ████████  ████████  █████░░░
    draft model            ████████  ███░░░░░  ░░░░░░░░     count: one block and three tokens

Layers for multi-token prediction (`models/mtp.py`) take the model's hidden states, so these are kept here as well, by
slot; the model's forward writes them, and drafting those of tokens that are only drafted. A block that came from a tier
*lacks* them.

Invariant: the first `filled[b]` places of block b hold the draft model's KV of the tokens that the block's owner has
there, if it does so of all blocks before. Only known tokens are counted, never drafted ones that are not verified.
Knows blocks, no requests and no model. Cost of hidden states: hidden_size numbers for each token of the pool.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import torch

from .kv_cache import KVCache, zeros
from .window_kv import WindowKV

NUM_MORE_ROWS = 2  # of hidden states: zeros, for what is before the first token, and one for tokens without a slot (-1)


class DraftKV:
    """kv_cache: tensors of the draft model, with as many blocks of the same size as the pool has."""

    def __init__(self, kv_cache: KVCache) -> None:
        self.kv_cache = kv_cache
        self._filled = np.zeros(kv_cache.num_blocks, np.int32)
        self._lacks = np.zeros(kv_cache.num_blocks, bool)

    def keep_hidden(self, model_kv: KVCache | WindowKV, hidden_size: int, dtype: torch.dtype) -> None:
        """From now on the hidden states of tokens are kept by slot, for both models."""
        cache = self.kv_cache
        shape = (cache.num_blocks * cache.block_size + NUM_MORE_ROWS, hidden_size)
        cache.hidden = model_kv.hidden = zeros(shape, dtype, cache.keys[0].device)

    def share_beside(self, model_kv: KVCache | WindowKV) -> float:
        """Which part these are of what both models keep of tokens."""
        hidden = self.kv_cache.hidden
        own = self.kv_cache.num_bytes + (0 if hidden is None else hidden.nbytes)
        return own / (own + model_kv.num_bytes)

    @property
    def keeps_hidden(self) -> bool:
        """Whether the draft model is an MTP layer."""
        return self.kv_cache.hidden is not None

    def forget(self, blocks: Sequence[int]) -> None:
        """These blocks will hold other tokens."""
        self._filled[blocks] = 0
        self._lacks[blocks] = False

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """`target` gets the first `num_tokens` tokens of a block, as far as they are there."""
        cache, size = self.kv_cache, self.kv_cache.block_size
        cache.copy_block(source, target)
        if cache.hidden is not None and source != target:
            cache.hidden[target * size :][:size] = cache.hidden[source * size :][:size]
            self._lacks[target] = self._lacks[source]
        self._filled[target] = min(int(self._filled[source]), num_tokens)

    def lose(self, blocks: Sequence[int]) -> None:
        """These blocks got their tokens without a forward of the model."""
        self._lacks[blocks] = True

    def has_hidden(self, blocks: array[int]) -> bool:
        """Whether hidden states are there of all tokens in `blocks` (int32) that the model has computed."""
        return not self._lacks[np.frombuffer(blocks, np.int32)].any()

    def count(self, blocks: array[int]) -> int:
        """How many of the first tokens in `blocks` (int32) the draft model has computed."""
        filled = self._filled[np.frombuffer(blocks, np.int32)]
        short = np.flatnonzero(filled < self.kv_cache.block_size)
        if not len(short):
            return len(blocks) * self.kv_cache.block_size
        return int(short[0] * self.kv_cache.block_size + filled[short[0]])

    def record(self, blocks: array[int], start: int, end: int) -> None:
        """Tokens [start, end) in `blocks` are computed, after all before them."""
        size = self.kv_cache.block_size
        for index in range(start // size, -(-end // size)):
            block = blocks[index]
            self._filled[block] = max(int(self._filled[block]), min(size, end - index * size))
