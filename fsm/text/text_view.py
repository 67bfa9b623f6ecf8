"""TextView: the arrays of a text automaton, for who walks through it in Python, whatever its table was made from."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from .alphabet import Bools, Ints
from .counted import Counted
from .text_table import TextTable

Sizes = npt.NDArray[np.int64]


class TextView:
    """One text automaton; the names and shapes of its arrays are those of `TextTable`."""

    def __init__(self, text: TextTable) -> None:
        self.counted: Counted | None = text.counted
        self.widest = text.widest
        self.num_nodes = text.num_nodes
        self.start = text.core.start // text.num_nodes
        self.table: Ints
        self.accepting: Bools
        self.costs: Ints
        self.template: Ints
        self.reach: Bools
        self.table, self.accepting, self.costs, self.template, self.reach = core.copies_of(text.core)

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

    def may_lack(self, lacking: int, *, least: int) -> bool:
        """Whether each class of characters that a byte of `lacking` begins has `least` others, in as few bytes.

        Within a character no byte may be lacking.
        """
        if not lacking & self.bytes_read:
            return True
        is_used = np.any(self.table > 0, axis=0)
        is_lacking = np.array([lacking >> byte & 1 for byte in range(256)], np.bool_)
        sizes: dict[int, Sizes] = {0: np.zeros(len(is_used), np.int64)}
        known = np.zeros(len(is_used), np.int64)
        for first, end in ((0, 0x80), (0x80, 0xE0), (0xE0, 0xF0), (0xF0, 0x100)):  # one byte, two, three, four
            lost = np.zeros(len(is_used), np.int64)
            for byte in range(first, end):
                follows = int(self.template[0, byte])
                found = lost if is_lacking[byte] else known
                if follows < 0:
                    found[-follows] += 1
                else:
                    behind = self._class_sizes(follows, sizes)
                    if byte >= 0x80 or is_lacking[byte]:  # an escape takes more bytes than one
                        found += behind
            if np.any(is_used & (lost > 0) & (known < least)):
                return False
        inside = self.template[[node for node in sizes if node and sizes[node][is_used].any()]][:, is_lacking]
        return not inside.any()

    def _class_sizes(self, node: int, sizes: dict[int, Sizes]) -> Sizes:
        """int64[num_classes]: how many characters of each class end behind a node of the template.

        `sizes`: those that are known, and receives more.
        """
        if node not in sizes:
            spelt = self.template[node]
            found = np.bincount(-spelt[spelt < 0], minlength=self.table.shape[1])
            for follows in spelt[spelt > 0].tolist():
                found = found + self._class_sizes(follows, sizes)
            sizes[node] = found
        return sizes[node]


def mask_of(values: npt.NDArray[np.integer]) -> int:
    """Some bytes as a mask."""
    return sum(1 << byte for byte in values.tolist())
