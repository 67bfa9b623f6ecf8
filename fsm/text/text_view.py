"""TextView: the arrays of a text automaton, for walks in Python, whatever its table was made from."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..._core import fsm as core
from .text_table import TextTable

Sizes = npt.NDArray[np.int64]


class TextView:
    """One text automaton; the names and shapes of its arrays are those of `TextTable`."""

    def __init__(self, text: TextTable) -> None:
        self.table, _, _, self.template, self.reach = core.copies_of(text.core)

    def needed_bytes(self, missing: int, *, least: int) -> int:
        """Those of some bytes that can begin a character of a class with fewer than `least` others, in as few bytes.

        Within a character all that may come next are. Bit b stands for byte b.
        """
        is_used = np.any(self.table > 0, axis=0)
        is_missing = np.array([missing >> byte & 1 for byte in range(256)], np.bool_)
        sizes: dict[int, Sizes] = {0: np.zeros(len(is_used), np.int64)}
        known = np.zeros(len(is_used), np.int64)
        needed = 0
        for first, end in ((0, 0x80), (0x80, 0xE0), (0xE0, 0xF0), (0xF0, 0x100)):  # one byte, two, three, four
            lost: dict[int, Sizes] = {}
            for byte in range(first, end):
                follows = int(self.template[0, byte])
                if follows < 0:
                    ending = np.bincount([-follows], minlength=len(is_used))
                else:
                    ending = self._class_sizes(follows, sizes)
                if is_missing[byte]:
                    lost[byte] = ending
                elif follows < 0 or byte >= 0x80:  # an escape takes more bytes than one
                    known += ending
            for byte, ending in lost.items():
                if np.any(is_used & (ending > 0) & (known < least)):
                    needed |= 1 << byte
        reaches = np.any(self.reach & is_used, axis=1)
        inside = self.template[1:]
        leads_on = (inside < 0) & is_used[-np.minimum(inside, 0)] | (inside > 0) & reaches[np.maximum(inside, 0)]
        return needed | mask_of(np.flatnonzero(leads_on.any(axis=0) & is_missing))

    def _class_sizes(self, node: int, sizes: dict[int, Sizes]) -> Sizes:
        """int64[num_classes]: how many characters of each class end after a node of the template.

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
