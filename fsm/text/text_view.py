"""TextView: the arrays of a text automaton, for who walks through it in Python, whatever its table was made from."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..memory import T_START
from .alphabet import Bools, Ints
from .counted import Counted
from .text_table import TextTable
from .text_view_kernels import view_text


class TextView:
    """One text automaton; the names and shapes of its arrays are those of `TextTable`."""

    def __init__(self, text: TextTable) -> None:
        self.counted: Counted | None = text.counted
        self.widest = text.widest
        self.num_nodes = text.num_nodes
        self.start = int(text.fields[T_START]) // text.num_nodes
        self.table: Ints
        self.accepting: Bools
        self.costs: Ints
        self.template: Ints
        self.reach: Bools
        self.table, self.accepting, self.costs, self.template, self.reach = view_text(text.fields)

    @cached_property
    def bytes_read(self) -> int:
        """The bytes that a text may hold, bit b for byte b."""
        is_used = np.any(self.table > 0, axis=0)
        reaches = np.any(self.reach & is_used, axis=1)
        found = 0
        for node in np.flatnonzero(reaches).tolist():
            spelt = self.template[node]
            may_end = is_used[-np.minimum(spelt, 0)] & (spelt < 0)
            found |= mask_of(np.flatnonzero(may_end | reaches[np.maximum(spelt, 0)] & (spelt > 0)))
        return found


def mask_of(values: npt.NDArray[np.integer]) -> int:
    """Some bytes as a mask."""
    return sum(1 << byte for byte in values.tolist())
