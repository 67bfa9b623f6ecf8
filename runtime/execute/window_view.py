"""A step as layers with a window see it: their slots in place of blocks, and nothing that lies before the windows.

A request's table begins with the first block that a row of the step may see, rounded down to the grid of keys on which
attention sums (`GRID`), so that no sum depends on where it begins::

    table of blocks    [ 3 ][ 8 ][ 5 ] … [ 7 ][ 1 ][ 6 ]         context_len = all tokens
    table of slots               │ 0 ][ 0 ][ 9 ][ 4 ][ 2 ]       context_len = tokens from there on
                                 └ grid       └─ window ─┘       0: not there, and not to be seen

Knows a batch's arrays; no requests and no tensors. Cost: O(blocks within windows), in numpy.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ...kernels import SPLIT_SIZE
from .batch import NOWHERE, Batch

GRID = SPLIT_SIZE  # a multiple of the tiles on every device
EMPTY = 0  # a slot of zeros, which no block has


def see_windows(
    batch: Batch, slot_of: npt.NDArray[np.int32], window: int, block_size: int, *, in_chunks: bool = False
) -> Batch:
    """The batch with its `windowed`.

    Args:
        slot_of: int32 `[num_blocks]`, at least 1, or negative where a block has none.
        window: tokens that a row sees, its own among them.
        in_chunks: it sees those of its chunk of `window` tokens instead, and tables begin with a chunk.
    """
    lens, tables = batch.context_lens.astype(np.int64), batch.block_tables
    starts = lens - np.diff(batch.query_starts)
    grid = math.lcm(GRID, block_size, window if in_chunks else 1)
    oldest = starts if in_chunks else np.maximum(starts - window + 1, 0)
    first = oldest // grid * (grid // block_size)
    num_blocks = -(-lens // block_size) - first
    index = first[:, None] + np.arange(num_blocks.max())
    is_there = index < (first + num_blocks)[:, None]
    blocks = np.take_along_axis(tables, np.minimum(index, tables.shape[1] - 1), 1)
    own = slot_of[batch.slots // block_size].astype(np.int64)
    is_written = batch.slots != NOWHERE
    assert (own[is_written] > EMPTY).all(), "a token whose block has no slot"
    windowed = replace(
        batch,
        in_windows=True,
        slots=np.where(is_written, own * block_size + batch.slots % block_size, NOWHERE),
        context_lens=(lens - first * block_size).astype(np.int32),
        block_tables=np.where(is_there, np.maximum(slot_of[blocks], EMPTY), EMPTY).astype(np.int32),
    )
    return replace(batch, windowed=windowed)
