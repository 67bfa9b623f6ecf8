"""The likeliest tokens at each place of a prompt, with their log-probabilities, kept with the blocks that hold its KV.

Like `prompt_scores`, which owns this, but wide: a block has a row of up to 20 ids and numbers for each token, so only
as many blocks have one as fit a bound, and those that were written first go first. What is kept is what was computed,
to the bit: where k are kept, the first k' of them are what asking for k' would have brought.

Knows block ids and offsets; it knows no tree. Cost: a few array operations per block.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MAX_BYTES = 16 << 20  # about 100,000 tokens with 20 alternatives

Top = tuple[tuple[int, float], ...]  # token ids and log-probabilities, likeliest first
_Rows = tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]  # each [block_size, k]; NaN: not known


class PromptAlternatives:
    """A row per token of some blocks of the pool."""

    def __init__(self, block_size: int, max_bytes: int = MAX_BYTES) -> None:
        self._block_size = block_size
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._kept: OrderedDict[int, _Rows] = OrderedDict()

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept; at most the bound."""
        return self._num_bytes

    def forget(self, blocks: Sequence[int]) -> None:
        """These blocks will hold other tokens."""
        for block in blocks if self._kept else ():
            rows = self._kept.pop(block, None)
            if rows is not None:
                self._num_bytes -= _size(rows)

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """The first tokens of both blocks are alike; of the rest of `target` nothing is known."""
        self.forget([target])
        self.merge(source, target, num_tokens)

    def merge(self, source: int, target: int, num_tokens: int) -> None:
        """The first tokens of both blocks are alike: `target` learns what it does not have."""
        if source not in self._kept:
            return
        its_ids, its_values = self._kept[source]
        ids, values = self._rows(target, its_ids.shape[1])
        width = its_ids.shape[1]
        known = np.sum(~np.isnan(values[:num_tokens]), 1) >= np.sum(~np.isnan(its_values[:num_tokens]), 1)
        lacks = np.flatnonzero(~known)
        ids[lacks, :width], values[lacks, :width] = its_ids[lacks], its_values[lacks]
        self._shrink()

    def write(self, blocks: Sequence[int], start: int, tops: Sequence[Top]) -> None:
        """Keeps the alternatives to the tokens from position `start` on of the sequence that `blocks` hold."""
        for position, top in enumerate(tops, start):
            block, row = divmod(position, self._block_size)
            ids, values = self._rows(blocks[block], len(top))
            if np.count_nonzero(~np.isnan(values[row])) < len(top):
                ids[row, : len(top)], values[row, : len(top)] = zip(*top, strict=True)
        self._shrink()

    def read(self, blocks: Sequence[int], start: int, end: int, num_top: int) -> list[Top]:
        """`num_top` alternatives from position `start` on, up to `end` or the first that has fewer."""
        found: list[Top] = []
        for position in range(start, end):
            block, row = divmod(position, self._block_size)
            rows = self._kept.get(blocks[block])
            if rows is None or rows[0].shape[1] < num_top or np.isnan(rows[1][row, num_top - 1]):
                break
            found.append(tuple(zip(rows[0][row, :num_top].tolist(), rows[1][row, :num_top].tolist(), strict=True)))
        return found

    def _rows(self, block: int, width: int) -> _Rows:
        """The block's rows, which are at least so wide from now on."""
        old = self._kept.get(block)
        if old is not None and old[0].shape[1] >= width:
            return old
        shape = self._block_size, width
        rows = np.zeros(shape, np.int32), np.full(shape, np.nan, np.float32)
        if old is not None:
            self._num_bytes -= _size(old)
            for mine, its in zip(rows, old, strict=True):
                mine[:, : its.shape[1]] = its
        self._kept[block] = rows
        self._num_bytes += _size(rows)
        return rows

    def _shrink(self) -> None:
        while self._num_bytes > self._max_bytes:
            self._num_bytes -= _size(self._kept.popitem(last=False)[1])


def _size(rows: _Rows) -> int:
    return sum(array.nbytes for array in rows)
