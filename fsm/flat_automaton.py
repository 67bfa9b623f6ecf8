"""FlatAutomaton: a constraint of few states written out as tables, for a device that takes its steps by itself.

::

    state = offset of a row of `table`      row: | mask row | next state by class 1 | by class 2 | ...
    step by a token:    for byte in token:  state = table[state + classes[byte]]
    then:               mask row = rows[table[state]]

A table of states and tokens would have a column for each of 128,000 tokens; by classes of bytes it has a few dozen, a
token takes as many steps as it has bytes. State 0 is the end: nothing is allowed there, every step stays. It is where
an end token leads, and whatever is not allowed.

Only constraints whose states can be counted out have such tables: regexes, choices, schemas without recursion and
without keys that they do not name. Which tokens the budget still allows is not in them; while more than `worst` tokens
are left, it forbids none.

It knows arrays only. Cost: a step of the automaton for each state and live byte, a mask row for each state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .arguments import check_at_least, check_type
from .constraint import Constraint
from .text.alphabet import Ints

MAX_STATES = 4096
MAX_ROW_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, eq=False)
class FlatAutomaton:
    """See the module's docstring.

    Attributes:
        classes: uint8[256], the class of each byte, from 1 on.
        table: int32[num_states * width].
        width: 1 + number of classes.
        rows: int32[num_rows, num_words], distinct mask rows; the first allows nothing.
        start: the state at the beginning.
        states: int32[num_states], the automaton's state of each row of the table (0: the end), so that a host that
            follows can tell where the device stands.
        worst: with more tokens left than this, the budget allows what the rows allow.
    """

    classes: npt.NDArray[np.uint8]
    table: Ints
    width: int
    rows: Ints
    start: int
    states: Ints
    worst: int

    @property
    def num_states(self) -> int:
        return len(self.states)


def flatten(
    constraint: Constraint, max_states: int = MAX_STATES, max_row_bytes: int = MAX_ROW_BYTES
) -> FlatAutomaton | None:
    """The constraint's tables; None if it has more states, its rows take more memory, or keys have to be remembered."""
    check_type("constraint", constraint, Constraint, "a compiled Constraint")
    check_at_least("max_states", max_states, 1, "a number of states")
    check_at_least("max_row_bytes", max_row_bytes, 0, "a number of bytes")
    if constraint.caches.repeats is not None:
        return None
    found = _transitions(constraint, max_states)
    if found is None:
        return None
    states, targets = found
    masks = _rows(constraint, states, max_row_bytes)
    if masks is None:
        return None
    rows, row_of, worst = masks
    columns, class_of = np.unique(targets, axis=1, return_inverse=True)
    width = 1 + columns.shape[1]
    if width > 256:
        return None  # a text in UTF-8 never has that many classes of bytes
    table = np.concatenate((row_of[:, None], columns * width), axis=1).astype(np.int32)
    classes = (class_of.reshape(-1) + 1).astype(np.uint8)
    return FlatAutomaton(classes, table.ravel(), width, rows, width, np.array(states, np.int32), worst)


def _transitions(constraint: Constraint, max_states: int) -> tuple[list[int], Ints] | None:
    """All states that bytes lead to, the dead one first and the start second, and int32[num_states, 256]: by index."""
    automaton = constraint.automaton
    states = [0, automaton.start]
    index_of = {0: 0, automaton.start: 1}
    rows = [np.zeros(256, np.int32)]
    while len(rows) < len(states):
        state, row = states[len(rows)], np.zeros(256, np.int32)
        for byte in np.flatnonzero(automaton.live_bytes(state)).tolist():
            target = automaton.advance_bytes(state, bytes((byte,)))
            index = index_of.get(target)
            if index is None:
                if len(states) >= max_states:
                    return None
                index = index_of[target] = len(states)
                states.append(target)
            row[byte] = index
        rows.append(row)
    return states, np.stack(rows)


def _rows(constraint: Constraint, states: list[int], max_row_bytes: int) -> tuple[Ints, Ints, int] | None:
    """The distinct mask rows, the row of each state, and the most tokens that any may need; None beyond the bound."""
    num_words = constraint.vocabulary.num_words
    rows = [np.zeros(num_words, np.int32)]
    index_of: dict[bytes, int] = {rows[0].tobytes(): 0}
    row_of, worst = [0], 0
    for state in states[1:]:
        found = constraint.caches.masks.row(state)
        worst = max(worst, found.worst)
        index = index_of.setdefault(found.bits.tobytes(), len(rows))
        if index == len(rows):
            rows.append(found.bits)
            if len(rows) * num_words * 4 > max_row_bytes:
                return None
        row_of.append(index)
    return np.stack(rows), np.array(row_of, np.int32), worst
