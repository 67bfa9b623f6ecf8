"""Compiled search for safe characters: those that may follow a state of a text automaton again and again.

In the middle of a long text most characters lead on in one way, or stay within a few states that are never left.
Sub-trees of the trie that consist of safe characters are then taken whole (`text_walk_kernels.py`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel
from ..memory import (
    ENDLESS_STEPS,
    FLAGS,
    MARKS,
    MAX_REGION,
    MAX_REGION_STATES,
    MAX_SAFE_STEPS,
    NEVER,
    NUM_PLAIN_ROWS,
    PATH,
    PLAIN0,
    PLAIN1,
    PLAIN_WIDE,
    REGION,
    SAFE_WIDTH,
    T_ACCEPTS,
    T_CLASSES,
    T_COSTS,
    T_IS_WIDE,
    T_NUM_ASCII,
    T_PLAIN,
    T_STATES,
    T_TABLE,
    T_TEMPLATE,
    WIDE_SEPARATORS,
    i32,
    u8,
)

MAX_SWEEPS = 32  # over all states; where more are needed it does not pay


@inner_kernel
def num_bits(word: Any) -> Any:
    """Number of bits set."""
    total = np.int64(0)
    while word:
        word &= word - np.uint64(1)
        total += 1
    return total


@inner_kernel
def _find_chain(memory: Any, text: Any, state: Any, limit: Any, with_exits: Any, safe: Any, at: Any) -> None:
    """Safe characters that lead on in one way for many steps.

    A set of classes is found that all lead from the state to one and the same, all from there to one and the same,
    and so on. The chain ends at its length if all of them are refused from there, and before that if they part, or
    if the next state costs more than `limit` or, when the exits are wanted, accepts. Fills safe[at :] (`find_safe`).
    """
    table, accepts, costs = i32(text[T_TABLE]), u8(text[T_ACCEPTS]), i32(text[T_COSTS])
    num_ascii = i32(text[T_NUM_ASCII])
    num_classes = text[T_CLASSES]
    flags = i32(memory[PATH] + FLAGS * 4)
    # the target of most ASCII bytes: by a majority vote, or else that of the heaviest class
    majority, votes, heaviest = np.int64(0), 0, 0
    for class_id in range(1, num_classes):
        target = np.int64(table[state * num_classes + class_id])
        if target == majority:
            votes += num_ascii[class_id]
        elif num_ascii[class_id] > votes:
            majority, votes = target, num_ascii[class_id] - votes
        else:
            votes -= num_ascii[class_id]
    if majority == 0:
        for class_id in range(1, num_classes):
            target = np.int64(table[state * num_classes + class_id])
            if target and num_ascii[class_id] > heaviest:
                majority, heaviest = target, num_ascii[class_id]
    if majority == 0:
        return
    num_flags = 0
    for class_id in range(1, num_classes):
        if table[state * num_classes + class_id] == majority:
            flags[num_flags] = class_id
            num_flags += 1
    steps, worst, here, is_exact = 0, np.int64(0), np.int64(state), 0
    while steps < MAX_SAFE_STEPS:
        following = np.int64(table[here * num_classes + flags[0]])
        same = True
        for index in range(1, num_flags):
            if table[here * num_classes + flags[index]] != following:
                same = False
                break
        if not same:
            break
        if following == 0:
            is_exact = 1
            break
        cost = np.int64(costs[following]) + 3
        if cost > limit or (with_exits and accepts[following]):
            break
        worst = max(worst, cost)
        steps += 1
        if following == here:
            steps = ENDLESS_STEPS
            break
        here = following
    for index in range(num_flags):
        flags[num_classes + flags[index]] = at + 1
    _keep_safe(text, flags, at + 1, np.int64(steps), worst, np.int64(is_exact), safe, at)


@inner_kernel
def _find_region(memory: Any, text: Any, state: Any, limit: Any, with_exits: Any, safe: Any, at: Any) -> None:
    """Safe characters that never leave a few states, found greedily.

    Classes are struck out that lead to a refusal, to a forbidden state (see `_find_chain`) or beyond MAX_REGION
    states; what remains is closed. Fills safe[at :] (`find_safe`).
    """
    table, accepts, costs = i32(text[T_TABLE]), u8(text[T_ACCEPTS]), i32(text[T_COSTS])
    num_classes = text[T_CLASSES]
    flags = i32(memory[PATH] + FLAGS * 4)
    region, marks = i32(memory[PATH] + REGION * 4), i32(memory[PATH] + MARKS * 4)
    mark = at + 2
    for class_id in range(1, num_classes):
        flags[num_classes + class_id] = mark
    for index in range(text[T_STATES]):
        marks[index] = 0
    # the state itself is where the walk stands, but being led back to it counts
    may_return = costs[state] + 3 <= limit and not (with_exits and accepts[state])
    region[0] = state
    size, done, worst = 1, 0, np.int64(0)
    while done < size:
        here = np.int64(region[done])
        done += 1
        for class_id in range(1, num_classes):
            if flags[num_classes + class_id] != mark:
                continue
            target = np.int64(table[here * num_classes + class_id])
            if marks[target] or (may_return and target == state):
                continue
            if (
                target
                and target != state
                and size < MAX_REGION
                and costs[target] + 3 <= limit
                and not (with_exits and accepts[target])
            ):
                region[size] = target
                marks[target] = 1
                size += 1
            else:
                flags[num_classes + class_id] = 0
    for index in range(1, size):
        worst = max(worst, np.int64(costs[region[index]]) + 3)
    if may_return:
        worst = max(worst, np.int64(costs[state]) + 3)
    _keep_safe(text, flags, mark, np.int64(ENDLESS_STEPS), worst, np.int64(0), safe, at)


@inner_kernel
def _keep_safe(text: Any, flags: Any, mark: Any, steps: Any, worst: Any, is_exact: Any, safe: Any, at: Any) -> None:
    """Writes down the safe classes, those with flags[num_classes + class_id] == mark."""
    template, is_wide = i32(text[T_TEMPLATE]), u8(text[T_IS_WIDE])
    num_classes = text[T_CLASSES]
    safe[at : at + SAFE_WIDTH] = 0
    unsafe = 0
    for class_id in range(1, num_classes):
        if flags[num_classes + class_id] != mark:
            unsafe |= is_wide[class_id]
    for byte in range(128):
        spelt = template[byte]
        if spelt < 0 and flags[num_classes - spelt] == mark:
            safe[at + (byte >> 6)] |= np.uint64(1) << np.uint64(byte & 63)
    safe[at + 2] = unsafe
    safe[at + 3] = steps
    safe[at + 4] = worst
    safe[at + 5] = is_exact


@inner_kernel
def find_safe(memory: Any, text: Any, state: Any, limit: Any, with_exits: Any, safe: Any, at: Any) -> None:
    """Characters of which any text of at most `steps` may follow the state, without a place that is asked for.

    Fills safe[at : at + 6] (uint64): two words of ASCII bytes; the kinds of characters beyond ASCII (`wide_kinds`) that
    do not all belong to the set; steps; the greatest cost on the way; 1 if no text of more than `steps` of them may
    follow.
    """
    safe[at : at + SAFE_WIDTH] = 0
    if 2 * text[T_CLASSES] > REGION - FLAGS:
        return
    flags = i32(memory[PATH] + FLAGS * 4)
    for index in range(text[T_CLASSES]):
        flags[text[T_CLASSES] + index] = 0
    _find_chain(memory, text, state, limit, with_exits, safe, at)
    weight = num_bits(safe[at]) + num_bits(safe[at + 1])
    if safe[at + 3] == 0:
        weight = 0
    is_poor = weight < 90 or safe[at + 2] or (safe[at + 3] < MAX_SAFE_STEPS and safe[at + 5] == 0)
    if is_poor and text[T_STATES] <= MAX_REGION_STATES:
        kept0, kept1, kept2 = safe[at], safe[at + 1], safe[at + 2]
        kept3, kept4, kept5 = safe[at + 3], safe[at + 4], safe[at + 5]
        _find_region(memory, text, state, limit, with_exits, safe, at)
        if num_bits(safe[at]) + num_bits(safe[at + 1]) < weight:
            safe[at], safe[at + 1], safe[at + 2] = kept0, kept1, kept2
            safe[at + 3], safe[at + 4], safe[at + 5] = kept3, kept4, kept5
    if not is_plain(safe, at):
        plain = i32(text[T_PLAIN])
        if plain[0] == 0:
            find_plain(text)
        if plain[state] >> np.int32(with_exits) & 1 and plain[0] <= limit:
            safe[at], safe[at + 1], safe[at + 2] = PLAIN0, PLAIN1, WIDE_SEPARATORS
            safe[at + 3], safe[at + 4], safe[at + 5] = ENDLESS_STEPS, plain[0], 0


@inner_kernel
def is_plain(safe: Any, at: Any) -> Any:
    """Whether a plain row says which tokens of plain characters may follow."""
    return (
        (PLAIN0 & ~safe[at]) == 0
        and (PLAIN1 & ~safe[at + 1]) == 0
        and (safe[at + 2] & np.uint64(PLAIN_WIDE)) == 0
        and (safe[at + 3] >= NUM_PLAIN_ROWS or (safe[at + 3] != 0 and safe[at + 5] != 0))
    )


@inner_kernel
def find_plain(text: Any) -> None:
    """Marks the states from which any plain text may follow, however many states that leads through.

    Fills plain (int32[num_states]): plain[state] is 1 if such a text is never refused, plus 2 if it meets no accepting
    state either. plain[0] is 3 + the greatest cost of a marked state, at least 1.
    """
    table, template, plain = i32(text[T_TABLE]), i32(text[T_TEMPLATE]), i32(text[T_PLAIN])
    accepts, costs, is_wide = u8(text[T_ACCEPTS]), i32(text[T_COSTS]), u8(text[T_IS_WIDE])
    num_states, num_classes = text[T_STATES], text[T_CLASSES]
    plain[0] = 3
    classes = np.zeros(num_classes, np.bool_)
    for class_id in range(1, num_classes):
        classes[class_id] = (is_wide[class_id] & PLAIN_WIDE) != 0
    for byte in range(128):
        if ((PLAIN0 if byte < 64 else PLAIN1) >> np.uint64(byte & 63)) & np.uint64(1):
            if template[byte] >= 0:
                return
            classes[-template[byte]] = True
    for state in range(1, num_states):
        plain[state] = 0 if costs[state] >= NEVER else 1 if accepts[state] else 3
    changed, forwards, num_sweeps = True, False, 0
    while changed:
        changed = False
        num_sweeps += 1
        if num_sweeps > MAX_SWEEPS:
            for state in range(1, num_states):
                plain[state] = 0
            return
        for i in range(1, num_states):
            state = i if forwards else num_states - i
            marks = plain[state]
            for class_id in range(1, num_classes):
                if marks and classes[class_id]:
                    target = table[state * num_classes + class_id]
                    marks &= plain[target] if target else 0
            if marks != plain[state]:
                plain[state] = marks
                changed = True
        forwards = not forwards
    for state in range(1, num_states):
        if plain[state]:
            plain[0] = max(plain[0], costs[state] + 3)
