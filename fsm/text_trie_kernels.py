"""The automaton of all texts except some, compiled; `json_schema/key_trie.py` is the only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import kernel


@kernel
def trie_except(symbols: Any, lens: Any, num_classes: Any) -> Any:
    """table, accepting, distance of a `Dfa` from state 1 that takes all texts but the given ones.

    Args:
        symbols: int64, the characters of the sorted, distinct texts one after the other, each as its class - 1.
        lens: int64[num_texts].
        num_classes: classes of the alphabet; class 0 is never written, the last one is that of no symbol.
    """
    num_states = 2
    begin, before = 0, 0
    for index in range(lens.shape[0]):
        shared, limit = 0, min(lens[index], lens[index - 1]) if index else 0
        while shared < limit and symbols[begin + shared] == symbols[before + shared]:
            shared += 1
        num_states += lens[index] - shared
        before = begin
        begin += lens[index]
    anything = num_states
    table = np.full((num_states + 1, num_classes), anything, np.int32)
    table[0, :] = 0
    table[:, 0] = 0
    accepting = np.ones(num_states + 1, np.bool_)
    distance = np.zeros(num_states + 1, np.int32)
    accepting[0], distance[0] = False, -1
    num_states, at = 2, 0
    for index in range(lens.shape[0]):
        state = 1
        for _ in range(lens[index]):
            class_id = symbols[at] + 1
            at += 1
            if table[state, class_id] == anything:
                table[state, class_id] = num_states
                num_states += 1
            state = table[state, class_id]
        accepting[state], distance[state] = False, 1
    return table, accepting, distance
