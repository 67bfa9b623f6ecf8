"""Which rows of a step read and write which states of recurrent layers.

A *state* lies in a slot of a pool, `[num_slots, ...]` fp32, as blocks of KV do. The rounds of a step say which rows
follow one another, from which slot their state comes, and where the state after them goes::

    round 0   rows 0 to 31    slot 5 → slot 9      a prompt up to a checkpoint, which others may read later
              row 40          slot 2 → slot 3      a request that decodes
    round 1   rows 32 to 39   slot 9 → slot 6      the rest of that prompt

A state is read and written in different slots, so a step that is computed again has the same outcome. Knows no
requests, and not whose slots they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .transfer import send

ZEROS = -1  # the slot that is read where nothing came before


@dataclass(frozen=True, slots=True)
class StateRounds:
    """The segments of a step: one tensor per round, `[S, 4]` int64: first row, row after the last, slots read, written.

    A round reads what earlier rounds have written. Attributes: longest: rows of the longest segment.
    """

    rounds: tuple[Tensor, ...]
    longest: int


def plan_states(rounds: Sequence[npt.NDArray[np.int64]], device: torch.device) -> StateRounds:
    """rounds: the segments of each, `[S, 4]`; none is empty."""
    longest = max((int((rows[:, 1] - rows[:, 0]).max()) for rows in rounds), default=0)
    return StateRounds(tuple(send(np.ascontiguousarray(rows), device) for rows in rounds), longest)
