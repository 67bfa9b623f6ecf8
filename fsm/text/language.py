"""Language: what the rest of the package needs to know of a text automaton, and its rows by byte.

An automaton over characters, spelt in bytes, has pairs (table state, node of the alphabet's template) as states::

    state = table_state * num_nodes + node         node 0: at a character boundary
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .alphabet import Ints, Spelling


class Language(Protocol):
    """A regular language as a byte automaton with dead state 0; compared and hashed by identity."""

    def __hash__(self) -> int: ...

    @property
    def start(self) -> int: ...

    def row(self, state: int) -> Ints:
        """int32[256]: the state after each byte, 0 where the byte is refused."""

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end here."""


def byte_row(spelling: Spelling, table: Ints, state: int) -> Ints:
    """int32[256]: the byte states that follow `table_state * num_nodes + node`; 0 where nothing can."""
    num_nodes = len(spelling.template)
    table_state, node = divmod(state, num_nodes)
    spelt, targets = spelling.template[node], table[table_state]
    row: Ints = (targets[-np.minimum(spelt, 0)] * num_nodes).astype(np.int32)
    inner = spelt > 0
    alive = (spelling.reach & (targets > 0)).any(axis=1)
    row[inner] = np.where(alive[spelt[inner]], table_state * num_nodes + spelt[inner], 0)
    return row
