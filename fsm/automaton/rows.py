"""Rows: the memory in which an automaton remembers its steps, 256 targets for each state that was left again.

Rows lie in segments, which are added and given back and never move: compiled loops find them through a list of
addresses. What is in a row is known to `automaton_kernels`. There may be no more of them than states and stacks leave
room for; giving rows back forgets steps, no states.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import memory as k
from ..text.alphabet import Ints
from .automaton_kernels import keep_rows

FIRST_SEGMENTS = 16  # that the list has room for at the beginning
SEGMENT_BYTES = 4 * k.ROW_WIDTH * k.SEGMENT_ROWS
MOST_NEW_ROWS = 64  # at once


class Rows:
    """The rows of one automaton.

    Attributes:
        addresses: int64, of the segments; first: the segment that there is at the beginning. Both are for
            `opening_kernels.open_memory` to put into the memory.
    """

    __slots__ = ("_added", "addresses", "first")

    def __init__(self) -> None:
        self.addresses: npt.NDArray[np.int64] = np.empty(FIRST_SEGMENTS, np.int64)
        self.first: Ints = np.empty(k.SEGMENT_ROWS * k.ROW_WIDTH, np.int32)
        self._added: list[Ints] = []  # one or more segments each

    def fit(self, memory: npt.NDArray[np.int64], most: int) -> None:
        """Makes room for more rows where there may be more, and gives back what is beyond `most`."""
        memory[k.MAX_ROWS] = most
        held = int(memory[k.CAP_ROWS])
        if held > most:
            self._drop(memory, most)
            return
        count = min(held, MOST_NEW_ROWS, most - held)
        if held - memory[k.NUM_ROWS] < count:
            self._add(memory, count)

    def _add(self, memory: npt.NDArray[np.int64], count: int) -> None:
        """Makes room for `count` more rows, in whole segments; nothing is moved but the list of their addresses."""
        if int(memory[k.CAP_ROWS]) + count > k.SEGMENT_ROWS * len(self.addresses):
            longer = np.concatenate((self.addresses, np.empty(len(self.addresses), np.int64)))
            k.place(memory, k.ROWS, longer)  # from here on nobody reads the old one
            self.addresses = longer
        rows = np.empty(count * k.ROW_WIDTH, np.int32)
        self._added.append(rows)
        k.place_rows(memory, rows)

    def _drop(self, memory: npt.NDArray[np.int64], most: int) -> None:
        """Gives back what is beyond `most` rows, if not the first segment."""
        count, kept = k.SEGMENT_ROWS, 0
        while count + len(self._added[kept]) // k.ROW_WIDTH <= most:
            count += len(self._added[kept]) // k.ROW_WIDTH
            kept += 1
        keep_rows(memory, count)
        del self._added[kept:]


def max_rows(max_bytes: int, lasting_bytes: int) -> int:
    """How many rows there may be beside so many bytes that last, in whole segments; at least one segment."""
    room = max(max_bytes - lasting_bytes, max_bytes // 16)
    return max(room // SEGMENT_BYTES, 1) * k.SEGMENT_ROWS
