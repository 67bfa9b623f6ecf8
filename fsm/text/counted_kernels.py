"""Compiled loops over counted texts (`counted.py`): lengths that are left, one step."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel
from ..memory import (
    NEVER,
    T_CLASSES,
    T_INNER,
    T_LEAST,
    T_MAX,
    T_MIN,
    T_NODE_COSTS,
    T_NODES,
    T_PERIOD,
    T_REACH,
    T_TABLE,
    T_TAIL,
    T_TEMPLATE,
    T_WIDEST,
    T_WORDS,
    i32,
    u64,
)
from .text_kernels import text_cost, text_step


@inner_kernel
def least_length(text: Any, state: Any, minimum: Any) -> Any:
    """The least length >= minimum of a text from the state to its end; NEVER if there is none."""
    tail, period = text[T_TAIL], text[T_PERIOD]
    minimum = max(minimum, np.int64(0))
    shift = max(minimum - tail, np.int64(0)) // period * period
    found = np.int64(i32(text[T_LEAST])[state * (tail + period) + minimum - shift])
    return found + shift if found < NEVER else np.int64(NEVER)


@inner_kernel
def fits_after(text: Any, state: Any, count: Any) -> Any:
    """Whether an end within the bounds can be reached from a state after `count` characters."""
    return state != 0 and least_length(text, state, text[T_MIN] - count) <= min(text[T_MAX] - count, NEVER - 1)


@inner_kernel
def counted_alive(text: Any, state: Any, node: Any, count: Any) -> Any:
    """Whether a character begun (template node) can be completed into a state that fits."""
    table, reach = i32(text[T_TABLE]), u64(text[T_REACH])
    num_classes, num_words = text[T_CLASSES], text[T_WORDS]
    for class_id in range(1, num_classes):
        can_follow = (reach[node * num_words + (class_id >> 6)] >> np.uint64(class_id & 63)) & np.uint64(1)
        if can_follow and fits_after(text, np.int64(table[state * num_classes + class_id]), count + 1):
            return True
    return False


@inner_kernel
def next_count(text: Any, count: Any) -> Any:
    """The count after one more character: without an upper bound all counts from the minimum on are alike."""
    return count + 1 if text[T_MAX] < NEVER else min(count + 1, text[T_MIN])


@inner_kernel
def counted_step(text: Any, sub: Any, byte: Any, count: Any) -> Any:
    """The byte state after one more byte; 0: refused. `count` characters have been read, a begun one not counted.

    For texts that are not counted, `text_kernels.text_step`.
    """
    if text[T_MAX] < 0:
        return text_step(text, sub, byte)
    num_nodes = text[T_NODES]
    state, node = sub // num_nodes, sub % num_nodes
    spelt = np.int64(i32(text[T_INNER] if node else text[T_TEMPLATE])[node * 256 + byte])
    if spelt == 0:
        return 0
    if spelt < 0:
        target = np.int64(i32(text[T_TABLE])[state * text[T_CLASSES] - spelt])
        return target * num_nodes if fits_after(text, target, count + 1) else 0
    return state * num_nodes + spelt if counted_alive(text, state, spelt, count) else 0


@inner_kernel
def counted_cost(text: Any, sub: Any, count: Any) -> Any:
    """A number of bytes that suffices to reach an end within the bounds; for texts that are not counted the least.

    Every character is taken for the widest one, so that the way with the fewest characters suffices.
    """
    if text[T_MAX] < 0:
        return np.int64(text_cost(text, sub))
    num_nodes, num_classes, widest = text[T_NODES], text[T_CLASSES], text[T_WIDEST]
    state, node = sub // num_nodes, sub % num_nodes
    if node == 0:
        return min(widest * least_length(text, state, text[T_MIN] - count), np.int64(NEVER))
    table, node_costs = i32(text[T_TABLE]), i32(text[T_NODE_COSTS])
    best = np.int64(NEVER)
    for class_id in range(1, num_classes):
        target = np.int64(table[state * num_classes + class_id])
        if node_costs[node * num_classes + class_id] < 9 and fits_after(text, target, count + 1):
            left = widest * least_length(text, target, text[T_MIN] - count - 1)
            best = min(best, left + node_costs[node * num_classes + class_id])
    return best
