"""The states of recurrent layers of rank 0, which are copied and filled along with those of the other ranks.

Slots have the same numbers on every rank; each rank's tensors hold its own heads or channels. Outside of its slot a
state is the rows of all ranks, one after another. Cost: a message for each call, and the rows' way to rank 0 or back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from ..parallel.message import Message
from ..parallel.rank_processes import RankProcesses
from .leading_kv import of_all_ranks, of_each_rank
from .recurrent_states import RecurrentStates

STATES = "states"  # their name, where tensors of keys have others


class LeadingStates(RecurrentStates):
    """As `RecurrentStates`, for all ranks; the others have made theirs when the first call comes."""

    def __init__(self, processes: RankProcesses, *sizes: Any) -> None:
        super().__init__(*sizes)
        self._processes = processes

    @property
    def block_bytes(self) -> int:
        """Bytes of a state outside of its slot, of all ranks."""
        return super().block_bytes * self._processes.size

    def read_blocks(self, slots: Sequence[int]) -> Tensor:
        with self._processes.together(_message("read_blocks", slots)):
            return of_all_ranks(self._processes.ranks, super().read_blocks(slots))

    def write_blocks(self, slots: Sequence[int], rows: Tensor) -> None:
        with self._processes.together(_message("write_blocks", slots)):
            super().write_blocks(slots, of_each_rank(self._processes.ranks, rows))


def _message(kind: str, slots: Sequence[int]) -> Message:
    return Message(kind, {"name": STATES, "dropped": []}, {"blocks": np.asarray(slots, np.int64)})
