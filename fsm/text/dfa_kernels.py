"""Compiled loops over transition tables; `Dfa` is their only user. They know integers and nothing else.

Compiled by numba on first use (about a second each) and kept in numba's on-disk cache from then on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_kernels import grown_rows
from ..compiled import inner_kernel, kernel, unlocked_kernel

BOTH, EITHER, FIRST = 0, 1, 2  # which of a pair must be alive for the pair to be alive


@unlocked_kernel
def product(left: Any, right: Any, left_class: Any, right_class: Any, starts: Any, alive: Any, max_states: Any) -> Any:
    """Reachable part of the product of two tables.

    Args:
        left, right: int32[num_states, num_classes] with state 0 dead.
        left_class, right_class: int32[num_common], the class in each table of a common class.
        starts: int32[2], the pair to start from.
        alive: BOTH, EITHER or FIRST; other pairs collapse into state 0.
        max_states: bound on the number of pairs.

    Returns:
        table int32[n, num_common], pairs int32[n, 2] with row 0 the dead pair and row 1 the start;
        empty arrays if the bound was passed.
    """
    num_common = left_class.shape[0]
    capacity = 64
    pairs = np.zeros((capacity, 2), np.int32)
    table = np.zeros((capacity, num_common), np.int32)
    slots = np.zeros(4 * capacity, np.int32)
    pairs[1, 0], pairs[1, 1] = starts[0], starts[1]
    num_states = 2
    slots[_slot(pairs, slots, starts[0], starts[1])] = 1
    state = 1
    while state < num_states:
        left_state, right_state = pairs[state, 0], pairs[state, 1]
        for common in range(num_common):
            a = left[left_state, left_class[common]]
            b = right[right_state, right_class[common]]
            if alive == BOTH:
                dead = a == 0 or b == 0
            elif alive == EITHER:
                dead = a == 0 and b == 0
            else:
                dead = a == 0
            if dead:
                continue
            slot = _slot(pairs, slots, a, b)
            target = slots[slot]
            if target == 0:
                if num_states == max_states:
                    return table[:0], pairs[:0]
                if num_states == capacity:
                    capacity *= 2
                    pairs = grown_rows(pairs, capacity)
                    table = grown_rows(table, capacity)
                    slots = np.zeros(4 * capacity, np.int32)
                    for known in range(1, num_states):
                        slots[_slot(pairs, slots, pairs[known, 0], pairs[known, 1])] = known
                    slot = _slot(pairs, slots, a, b)
                target = num_states
                pairs[target, 0], pairs[target, 1] = a, b
                slots[slot] = target
                num_states += 1
            table[state, common] = target
        state += 1
    return table[:num_states], pairs[:num_states]


@unlocked_kernel
def meet(
    left: Any,
    left_accepts: Any,
    right: Any,
    right_accepts: Any,
    left_class: Any,
    right_class: Any,
    start: Any,
    max_pairs: Any,
) -> Any:
    """Whether two automata accept a text in common: 1, 0, or -1 if more than `max_pairs` pairs would be looked at.

    Args:
        left, right, left_class, right_class: as of `product`; left_accepts, right_accepts: bool[num_states].
        start: int32[2], the pair to start from.
    """
    pairs, slots = np.zeros((64, 2), np.int32), np.zeros(256, np.int32)
    pairs[1, 0], pairs[1, 1] = start[0], start[1]
    slots[_slot(pairs, slots, start[0], start[1])] = 1
    num_pairs, at = 2, 1
    while at < num_pairs:
        left_state, right_state = pairs[at, 0], pairs[at, 1]
        at += 1
        if left_accepts[left_state] and right_accepts[right_state]:
            return 1
        for common in range(left_class.shape[0]):
            a, b = left[left_state, left_class[common]], right[right_state, right_class[common]]
            if a == 0 or b == 0:
                continue
            slot = _slot(pairs, slots, a, b)
            if slots[slot]:
                continue
            if num_pairs == max_pairs:
                return -1
            if num_pairs == pairs.shape[0]:
                pairs = grown_rows(pairs, num_pairs + 1)
                slots = np.zeros(4 * pairs.shape[0], np.int32)
                for known in range(1, num_pairs):
                    slots[_slot(pairs, slots, pairs[known, 0], pairs[known, 1])] = known
                slot = _slot(pairs, slots, a, b)
            pairs[num_pairs, 0], pairs[num_pairs, 1] = a, b
            slots[slot] = num_pairs
            num_pairs += 1
    return 0


@kernel
def takes(starts: Any, classes: Any, table: Any, accepting: Any, start: Any, points: Any, lens: Any) -> Any:
    """bool[num_texts]: which texts an automaton accepts.

    Args:
        starts, classes: those of its alphabet.
        start: its first state.
        points, lens: the code points of all texts, one text after the other, and how many each of them has.
    """
    found = np.zeros(lens.shape[0], np.bool_)
    begin = 0
    for index in range(lens.shape[0]):
        state = np.int64(start)
        for at in range(begin, begin + lens[index]):
            low, high = 0, starts.shape[0]
            while high - low > 1:
                middle = (low + high) >> 1
                if starts[middle] <= points[at]:
                    low = middle
                else:
                    high = middle
            state = np.int64(table[state, classes[low]])
            if state == 0:
                break
        found[index] = accepting[state]
        begin += lens[index]
    return found


@inner_kernel
def _slot(pairs: Any, slots: Any, a: Any, b: Any) -> Any:
    """The slot of the pair (a, b) in the open-addressing table: its own, or the free one where it belongs."""
    mask = slots.shape[0] - 1
    slot = (a * 0x9E3779B1 + b * 0x85EBCA77) & mask
    while slots[slot] != 0 and (pairs[slots[slot], 0] != a or pairs[slots[slot], 1] != b):
        slot = (slot + 1) & mask
    return int(slot)


@kernel
def trimmed(table: Any, accepting: Any, start: Any) -> Any:
    """A table without the states that cannot be reached or cannot end; the others keep their order.

    Returns:
        table, accepting, distance (as `distances`) and the first state; a table of the dead state if nothing is left.
    """
    steps = _distances(table, accepting)
    seen = _reachable(table, steps, start)
    num_states, num_classes = table.shape
    numbers = np.zeros(num_states, np.int32)
    count = 1
    for state in range(1, num_states):
        if seen[state]:
            numbers[state] = count
            count += 1
    found = np.zeros((count, num_classes), np.int32)
    ends, distance = np.zeros(count, np.bool_), np.full(count, -1, np.int32)
    for state in range(1, num_states):
        if seen[state]:
            row = numbers[state]
            ends[row], distance[row] = accepting[state], steps[state]
            for class_id in range(num_classes):
                found[row, class_id] = numbers[table[state, class_id]]
    return found, ends, distance, numbers[start]


@kernel
def joined_classes(table: Any) -> Any:
    """Classes with equal columns as one.

    Returns:
        int32[num_classes], the new number of each class, in the order of their first ones, class 0 for itself; and
        int32[num_states, num_new], the table of the new classes.
    """
    num_states, num_classes = table.shape
    hashes = np.zeros(num_classes, np.uint64)
    for state in range(num_states):
        for class_id in range(num_classes):
            value = (hashes[class_id] ^ np.uint64(table[state, class_id])) * np.uint64(0x9E3779B97F4A7C15)
            hashes[class_id] = value ^ (value >> np.uint64(29))
    num_slots = 16
    while num_slots < 2 * num_classes:
        num_slots *= 2
    slots = np.full(num_slots, -1, np.int32)
    numbers, kept = np.zeros(num_classes, np.int32), np.zeros(num_classes, np.int32)
    count = 1
    for class_id in range(1, num_classes):
        slot = np.int64(hashes[class_id] & np.uint64(num_slots - 1))
        while slots[slot] >= 0 and not _is_same_column(table, hashes, slots[slot], class_id):
            slot = (slot + 1) & (num_slots - 1)
        if slots[slot] < 0:
            slots[slot], numbers[class_id], kept[count] = class_id, count, class_id
            count += 1
        else:
            numbers[class_id] = numbers[slots[slot]]
    found = np.empty((num_states, count), np.int32)
    for state in range(num_states):
        for number in range(count):
            found[state, number] = table[state, kept[number]]
    return numbers, found


@inner_kernel
def _is_same_column(table: Any, hashes: Any, one: Any, other: Any) -> Any:
    same = hashes[one] == hashes[other]
    state = 0
    while same and state < table.shape[0]:
        same = table[state, one] == table[state, other]
        state += 1
    return same


@kernel
def distances(table: Any, accepting: Any) -> Any:
    """int32[num_states]: least number of steps to an accepting state, -1 if there is no way."""
    return _distances(table, accepting)


@inner_kernel
def _distances(table: Any, accepting: Any) -> Any:
    num_states, num_classes = table.shape
    counts = np.zeros(num_states + 1, np.int64)
    for state in range(num_states):
        previous = 0
        for class_id in range(num_classes):
            target = table[state, class_id]
            if target != previous and target != 0:
                counts[target] += 1
                previous = target
    offsets = np.zeros(num_states + 2, np.int64)
    for state in range(num_states):
        offsets[state + 1] = offsets[state] + counts[state]
    sources = np.empty(offsets[num_states], np.int32)
    fill = offsets.copy()
    for state in range(num_states):
        previous = 0
        for class_id in range(num_classes):
            target = table[state, class_id]
            if target != previous and target != 0:
                sources[fill[target]] = state
                fill[target] += 1
                previous = target
    steps = np.full(num_states, -1, np.int32)
    queue = np.empty(num_states, np.int32)
    head, tail = 0, 0
    for state in range(1, num_states):
        if accepting[state]:
            steps[state] = 0
            queue[tail] = state
            tail += 1
    while head < tail:
        state = queue[head]
        head += 1
        for edge in range(offsets[state], offsets[state + 1]):
            source = sources[edge]
            if steps[source] < 0:
                steps[source] = steps[state] + 1
                queue[tail] = source
                tail += 1
    return steps


@inner_kernel
def _reachable(table: Any, steps: Any, start: Any) -> Any:
    """bool[num_states]: the states that can be reached from `start` and can end (`steps` >= 0); never the dead one."""
    num_states, num_classes = table.shape
    seen = np.zeros(num_states, np.bool_)
    pending = np.empty(num_states, np.int32)
    num_pending = 0
    if start != 0 and steps[start] >= 0:
        seen[start], pending[0], num_pending = True, start, 1
    while num_pending:
        num_pending -= 1
        state = pending[num_pending]
        for class_id in range(num_classes):
            target = table[state, class_id]
            if target != 0 and steps[target] >= 0 and not seen[target]:
                seen[target], pending[num_pending] = True, target
                num_pending += 1
    return seen
