"""What is read of a request instead of an output: a vector out of its hidden states, or the logits of some tokens.

Rows come in the order of their positions, in chunks of any length. Sums are taken row by row in float64, so a vector
has the same bits however the prompt was cut. Knows one request's rows; it knows no tensors and no scheduler.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

Pooling = Literal["last", "mean", "cls"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
Rows = npt.NDArray[np.float32]


class Readout:
    """The vector of one request, while its prompt is computed.

    Attributes:
        token_ids: whose logits after the last token are read; empty: hidden states are.
    """

    def __init__(self, num_tokens: int, pooling: Pooling = "last", token_ids: tuple[int, ...] = ()) -> None:
        """
        Args:
            num_tokens: of the prompt.
            pooling: what becomes of the hidden states: those of the last token, the mean of all, those of the first.
                Logits are always those after the last token.
        """
        self.token_ids = token_ids
        self._num_tokens = num_tokens
        self._pooling = pooling
        self._num_read = 0
        self._sum: npt.NDArray[np.float64] | None = None

    @property
    def reads_hidden(self) -> bool:
        """Whether its rows are hidden states, or else logits."""
        return not self.token_ids

    @property
    def first_wanted(self) -> int:
        """The first position whose row is still wanted, and has to be computed for that: of what is before it, keys
        and values are enough."""
        if self._pooling == "mean" or (self._pooling == "cls" and self._sum is None):
            return min(self._num_read, self._num_tokens - 1)
        return self._num_tokens - 1

    def push(self, start: int, rows: Rows) -> None:
        """Takes rows `[n, size]` of the positions from `start` on; those that were read before count once."""
        rows = rows[max(0, self._num_read - start) :] if self._pooling == "mean" else rows
        if self._pooling == "mean" and len(rows):
            before = [] if self._sum is None else [self._sum]
            self._sum = np.add.reduce(np.vstack([*before, rows.astype(np.float64)]), axis=0)
            self._num_read += len(rows)
        elif self._pooling == "last":
            self._sum = rows[-1].astype(np.float64)
        elif self._sum is None:
            self._sum = rows[0].astype(np.float64)

    @property
    def vector(self) -> Rows | None:
        """What was read, `[size]` in float32; whole once the last row was, None before the first."""
        if self._sum is None:
            return None
        return (self._sum / (self._num_tokens if self._pooling == "mean" else 1)).astype(np.float32)
