"""Byte automata (DFAs) in the memory of a device, so that a step of constrained decoding does not wait for the host.

::

    table    | automaton 0: rows of width 1 + classes | automaton 1: ... |     int32, a state is the offset of its row
              row: mask row, next state by class
    classes  [K, 256] uint8     the class of each byte, by automaton
    rows     [M, W] int32       the mask table for `sample`, the rows of all automata, concatenated
    tokens   bytes and offsets  the bytes of each token; one without bytes (an end token, a special one) ends the text

`sample` samples under the masks `rows[mask_rows]`; `advance_states` walks over the bytes of the sampled tokens and
writes the next `mask_rows`. Both only read and write tensors, so they can be queued on a stream, or captured in a CUDA
graph, and the host reads the tokens later. After a text has ended its mask allows nothing and its tokens are -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


class Tables(Protocol):
    """One automaton; state 0 is the end: it allows no token, and every step from it leads back to it."""

    @property
    def classes(self) -> npt.NDArray[np.uint8]: ...
    @property
    def table(self) -> npt.NDArray[np.int32]: ...
    @property
    def width(self) -> int: ...
    @property
    def rows(self) -> npt.NDArray[np.int32]: ...


@dataclass(frozen=True, slots=True)
class Automata:
    """See the module's docstring.

    Attributes:
        ends: `[K]` int32, the end state of each automaton; a state of an automaton's own tables is `ends[k]` further on
            here.
    """

    classes: Tensor
    table: Tensor
    ends: Tensor
    rows: Tensor
    token_bytes: Tensor
    token_offsets: Tensor


def lay_out_automata(
    automata: Sequence[Tables],
    token_bytes: npt.NDArray[np.uint8],
    token_offsets: npt.NDArray[np.int32],
    device: torch.device | str,
) -> Automata:
    """Concatenates the tables of one or more automata on a device.

    Args:
        token_bytes: uint8, the bytes of all tokens, concatenated.
        token_offsets: int32[V + 1], where each token begins.
    """
    tables: list[npt.NDArray[np.int32]] = []
    ends: list[int] = []
    num_numbers = num_rows = 0
    for each in automata:
        moved = each.table.reshape(-1, each.width) + np.int32(num_numbers)
        moved[:, 0] += num_rows - num_numbers
        tables.append(moved.ravel())
        ends.append(num_numbers)
        num_numbers += moved.size
        num_rows += len(each.rows)
    arrays = (
        np.stack([each.classes for each in automata]),
        np.concatenate(tables),
        np.array(ends, np.int32),
        np.concatenate([each.rows for each in automata]),
        token_bytes,
        token_offsets,
    )
    return Automata(*(torch.tensor(array, device=device) for array in arrays))
