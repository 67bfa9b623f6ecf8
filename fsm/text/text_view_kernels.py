"""Compiled: the arrays of a text automaton read through the addresses in its fields; `text_view` is the only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import kernel
from ..memory import (
    T_ACCEPTS,
    T_CLASSES,
    T_COSTS,
    T_INNER,
    T_NODES,
    T_REACH,
    T_STATES,
    T_TABLE,
    T_TEMPLATE,
    T_WORDS,
    i32,
    u8,
    u64,
)


@kernel
def view_text(fields: Any) -> Any:
    """Copies of table int32[Q, G], accepting bool[Q], costs int32[Q], template int32[N, 256] and reach bool[N, G]."""
    num_states, num_classes = fields[T_STATES], fields[T_CLASSES]
    num_nodes, num_words = fields[T_NODES], fields[T_WORDS]
    table, accepting = np.empty((num_states, num_classes), np.int32), np.empty(num_states, np.bool_)
    costs, template = np.empty(num_states, np.int32), np.empty((num_nodes, 256), np.int32)
    reach = np.empty((num_nodes, num_classes), np.bool_)
    for state in range(num_states):
        accepting[state] = u8(fields[T_ACCEPTS])[state] != 0
        costs[state] = i32(fields[T_COSTS])[state]
        for class_id in range(num_classes):
            table[state, class_id] = i32(fields[T_TABLE])[state * num_classes + class_id]
    for node in range(num_nodes):
        spelt = i32(fields[T_INNER] if node else fields[T_TEMPLATE])
        for byte in range(256):
            template[node, byte] = spelt[node * 256 + byte]
        for class_id in range(num_classes):
            word = u64(fields[T_REACH])[node * num_words + (class_id >> 6)]
            reach[node, class_id] = (word >> np.uint64(class_id & 63)) & np.uint64(1) != 0
    return table, accepting, costs, template, reach
