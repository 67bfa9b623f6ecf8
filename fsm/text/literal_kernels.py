"""The smallest automaton of a list of texts, compiled; `literals.py` is the only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_kernels import grown, grown_rows
from ..compiled import unlocked_kernel


@unlocked_kernel
def minimal_acyclic(symbols: Any, offsets: Any, num_classes: Any, max_cells: Any) -> Any:
    """The minimal automaton of sorted, distinct texts (Daciuk and others 2000): equal ends are one state at once.

    Args:
        symbols: int32, the classes of the characters of all texts, one text after the other.
        offsets: int64[num_texts + 1], where each begins; sorted as sequences of symbols.
        num_classes: symbols are below this; class 0 is never one.
        max_cells: bound on the number of entries of the table.

    Returns:
        (table int32[num_states, num_classes], accepting bool[num_states], start); state 0 is dead. An empty table
        if the bound was passed.
    """
    num_texts = offsets.shape[0] - 1
    longest = 0
    for index in range(num_texts):
        longest = max(longest, offsets[index + 1] - offsets[index])
    table = np.zeros((64, num_classes), np.int32)
    accepting = np.zeros(64, np.bool_)
    if (longest + 1) * num_classes > max_cells:
        return table[:0], accepting[:0], 0
    # the states along the text in hand are still open: row and acceptance by depth
    open_rows = np.zeros((longest + 1, num_classes), np.int32)
    open_ends = np.zeros(longest + 1, np.bool_)
    hashes = np.zeros(64, np.uint64)
    slots = np.zeros(256, np.int32)
    num_states, state = 1, 0
    begin, length = 0, 0
    for index in range(num_texts + 1):
        shared = -1  # behind the last text the root is closed, too
        if index < num_texts:
            following, limit = offsets[index], offsets[index + 1] - offsets[index]
            shared = 0
            while shared < min(length, limit) and symbols[begin + shared] == symbols[following + shared]:
                shared += 1
        for depth in range(length, shared, -1):
            value = np.uint64(open_ends[depth])
            for class_id in range(1, num_classes):
                if open_rows[depth, class_id]:
                    value = (value ^ np.uint64(open_rows[depth, class_id] * num_classes + class_id)) * np.uint64(
                        0x9E3779B97F4A7C15
                    )
                    value ^= value >> np.uint64(29)
            slot = np.int64(value & np.uint64(slots.shape[0] - 1))
            state = 0
            while slots[slot] != 0:
                candidate = slots[slot]
                if hashes[candidate] == value and accepting[candidate] == open_ends[depth]:
                    same = True
                    for class_id in range(1, num_classes):
                        if table[candidate, class_id] != open_rows[depth, class_id]:
                            same = False
                            break
                    if same:
                        state = candidate
                        break
                slot = (slot + 1) & (slots.shape[0] - 1)
            if state == 0:
                state = num_states
                num_states += 1
                if num_states * num_classes > max_cells:
                    return table[:0], accepting[:0], 0
                if num_states > table.shape[0]:
                    table = grown_rows(table, num_states)
                    accepting, hashes = grown(accepting, num_states), grown(hashes, num_states)
                for class_id in range(1, num_classes):
                    table[state, class_id] = open_rows[depth, class_id]
                accepting[state], hashes[state] = open_ends[depth], value
                slots[slot] = state
                if 2 * num_states > slots.shape[0]:
                    slots = np.zeros(4 * slots.shape[0], np.int32)
                    for known in range(1, num_states):
                        slot = np.int64(hashes[known] & np.uint64(slots.shape[0] - 1))
                        while slots[slot] != 0:
                            slot = (slot + 1) & (slots.shape[0] - 1)
                        slots[slot] = known
            for class_id in range(1, num_classes):
                open_rows[depth, class_id] = 0
            open_ends[depth] = False
            if depth:
                open_rows[depth - 1, symbols[begin + depth - 1]] = state
        if index < num_texts:
            begin, length = offsets[index], offsets[index + 1] - offsets[index]
            open_ends[length] = True
    return table[:num_states], accepting[:num_states], state
