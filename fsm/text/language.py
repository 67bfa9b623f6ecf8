"""Language: what text automata have in common: a table over classes of characters, spelt in bytes.

An automaton over characters, spelt in bytes, has pairs (table state, node of the alphabet's template) as states::

    state = table_state * num_nodes + node         node 0: at a character boundary
"""

from __future__ import annotations

import numpy as np

from .alphabet import Bools, Ints, Spelling


class Language:
    """A regular language as a byte automaton with dead state 0; compared and hashed by identity.

    Attributes:
        table: int32[num_states, num_classes]; row 0 and column 0 are 0.
        accepting: bool[num_states]; False for state 0.
        start_state: the first table state (0: the empty language).
    """

    __slots__ = ("__dict__", "accepting", "start_state", "table")
    table: Ints
    accepting: Bools
    start_state: int

    @property
    def spelling(self) -> Spelling:
        """How the characters are written."""
        raise NotImplementedError

    @property
    def start(self) -> int:
        """The first byte state."""
        return self.start_state * len(self.spelling.template)

    def row(self, state: int) -> Ints:
        """int32[256]: the byte state after each byte, 0 where no text of the language goes on so."""
        template = self.spelling.template
        table_state, node = divmod(state, len(template))
        spelt, targets = template[node], self.table[table_state]
        row: Ints = (targets[-np.minimum(spelt, 0)] * len(template)).astype(np.int32)
        inner = spelt > 0
        alive = (self.spelling.reach & (targets > 0)).any(axis=1)
        row[inner] = np.where(alive[spelt[inner]], table_state * len(template) + spelt[inner], 0)
        return row

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end in this byte state."""
        table_state, node = divmod(state, len(self.spelling.template))
        return node == 0 and bool(self.accepting[table_state])
