"""Endless texts: which languages have no end of texts, and which beginnings can go on without end.

It looks at finished tables, where nothing can be entered from which no end can be reached. A walk over the characters
of a table for as many rounds as there are states, or 64.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import columns as k
from .text_table import TextTable

AS_GOOD_AS_ENDLESS = 1 << 20
MAX_LENGTH = 64  # up to which texts are counted


def has_no_end(table: TextTable) -> bool:
    """Whether a language has no end of texts, or more than a million."""
    if not table.arrays:
        return True  # any string but some
    following, start = table.arrays[0], table.core.start // table.num_nodes
    counted = table.counted
    if goes_on(table)[start] and (counted is None or counted.maximum is None or counted.minimum > MAX_LENGTH):
        return True
    least, most = (0, None) if counted is None else (counted.minimum, counted.maximum)
    num_characters = np.maximum(table.arrays[8][: following.shape[1]], 1).astype(np.float64)
    num_characters[0] = 0.0
    ways, found = np.zeros(len(following)), 0.0  # by state, how many texts of one length lead there
    ways[start] = 1.0
    for length in range(MAX_LENGTH + 1 if most is None else min(most, MAX_LENGTH) + 1):
        if length >= least:
            found += float(ways[table.arrays[1] != 0].sum())
        if found >= AS_GOOD_AS_ENDLESS:
            return True
        after = np.zeros(len(following))
        for index in np.flatnonzero(num_characters).tolist():
            np.add.at(after, following[:, index], ways * num_characters[index])
        after[0] = 0.0
        ways = after
    return False


def goes_on(table: TextTable) -> npt.NDArray[np.bool_]:
    """By state of a table with arrays, whether what has begun can go on without end, lengths not counted."""
    following = table.arrays[0]
    alive: npt.NDArray[np.bool_] = table.arrays[5] < k.NEVER
    alive[0] = False
    while True:
        after = alive & alive[following[:, 1:]].any(axis=1)
        if np.array_equal(after, alive):
            return alive
        alive = after
