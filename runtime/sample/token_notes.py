"""How the tokens of an output came about, one note for each: made only for requests that ask for it.

A token that was drafted and accepted is *forced* if it lies within text that the constraint forces where it stands,
however it was found (as forced text, by habit, in the request's own text); else it is *foreseen*. Knows cursors and
rows of masks; it knows no tensors. Cost: for each decided row a count of its bits, and for each drafted token a look-up
or two.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ...fsm import Cursor
from ...fsm.foresight import forced_bytes
from ..request import TokenNote

Decision = tuple[int, bool]
"""Of a decided row: how many tokens its mask allows, and whether the token drafted there is forced text."""


def decisions(cursor: Cursor, draft: Sequence[int], rows: Sequence[npt.NDArray[np.int32]]) -> list[Decision]:
    """What is known of decided rows: that at the cursor, then one after each drafted token."""
    found: list[Decision] = []
    ahead = cursor.fork()
    tokens = cursor.caches.vocabulary.tokens
    for index, row in enumerate(rows):
        num_allowed = int.from_bytes(row.tobytes(), "little").bit_count()
        is_forced = False
        if index < len(rows) - 1:  # then the token drafted here is allowed
            token = tokens[draft[index]]
            is_forced = bool(token) and forced_bytes(ahead).startswith(token)
            ahead.advance(draft[index])
        found.append((num_allowed, is_forced))
    return found


def notes_of(decided: Sequence[Decision], num_new: int) -> list[TokenNote]:
    """Notes for the tokens of one step: all but the last were drafted. decided: of its first rows; what is not known of
    others is said so."""
    notes: list[TokenNote] = []
    for index in range(num_new):
        num_allowed, is_forced = decided[index] if index < len(decided) else (None, False)
        is_last = index == num_new - 1
        notes.append(TokenNote("sampled" if is_last else "forced" if is_forced else "foreseen", num_allowed))
    return notes
