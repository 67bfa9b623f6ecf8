"""Compiled loops over counted texts (`counted.py`): lengths that are left, one step, tokens that stay inside."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import inner_kernel, kernel
from .memory import (
    COUNT_PATH,
    FIND_SAFE_FROM,
    INNER_PATH,
    NEVER,
    NUM_PLAIN_ROWS,
    NUM_WORDS,
    PATH,
    PLAIN0,
    PLAIN1,
    PLAIN_ROWS,
    REST,
    SAFE_SLOTS,
    SAFE_WIDTH,
    SUMMARIES,
    SUMMARY_OF,
    T_ACCEPTS,
    T_CLASSES,
    T_IS_WIDE,
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
    T_WAY,
    T_WIDEST,
    T_WORDS,
    TRIE_BYTES,
    TRIE_DEPTHS,
    TRIE_ENDS,
    TRIE_SIZE,
    TRIE_TOKENS,
    WHOLE,
    i32,
    u8,
    u64,
)
from .safe_kernels import find_safe
from .text_kernels import set_tokens, text_cost, text_step


@kernel
def least_lengths(table: Any, accepting: Any, limit: Any) -> Any:
    """The lengths of texts from every state to acceptance, as in `counted.Lengths`.

    Args:
        table: int32[num_states, num_classes]; accepting: bool[num_states]; limit: most columns.

    Returns:
        (least int32[num_states, tail + period], tail); no rows if there would be more columns than `limit`.
    """
    num_states, num_classes = table.shape
    ends = np.zeros((limit + 1, num_states), np.bool_)  # [n, q]: a text of n characters leads from q to an end
    hashes = np.zeros(limit + 1, np.uint64)
    columns, tail = 0, -1
    while columns <= limit and tail < 0:
        value = np.uint64(0)
        for state in range(1, num_states):
            is_end = accepting[state]
            if columns:
                is_end = False
                for class_id in range(1, num_classes):
                    if ends[columns - 1, table[state, class_id]]:
                        is_end = True
                        break
            ends[columns, state] = is_end
            value = (value ^ np.uint64(state * 2 + is_end)) * np.uint64(0x9E3779B97F4A7C15)
            value ^= value >> np.uint64(29)
        hashes[columns] = value
        for earlier in range(columns - 1, -1, -1):
            if hashes[earlier] != value:
                continue
            same = True
            for state in range(num_states):
                if ends[earlier, state] != ends[columns, state]:
                    same = False
                    break
            if same:
                tail = earlier
                break
        columns += 1
    columns -= 1  # the last one repeats column `tail`
    if tail < 0:
        return np.zeros((0, 1), np.int32), 0
    least = np.full((num_states, columns), NEVER, np.int32)
    period = columns - tail
    for state in range(1, num_states):
        following = NEVER
        for column in range(columns + period - 1, -1, -1):
            here = column if column < columns else column - period
            if ends[here, state]:
                following = column
            if column < columns:
                least[state, column] = following
    return least, tail


@inner_kernel
def _least_length(text: Any, state: Any, minimum: Any) -> Any:
    """The least length >= minimum of a text from the state to its end; NEVER if there is none."""
    tail, period = text[T_TAIL], text[T_PERIOD]
    minimum = max(minimum, np.int64(0))
    shift = max(minimum - tail, np.int64(0)) // period * period
    found = np.int64(i32(text[T_LEAST])[state * (tail + period) + minimum - shift])
    return found + shift if found < NEVER else np.int64(NEVER)


@inner_kernel
def _fits(text: Any, state: Any, count: Any) -> Any:
    """Whether an end within the bounds can be reached from a state after `count` characters."""
    return state != 0 and _least_length(text, state, text[T_MIN] - count) <= min(text[T_MAX] - count, NEVER - 1)


@inner_kernel
def counted_alive(text: Any, state: Any, node: Any, count: Any) -> Any:
    """Whether a character begun (template node) can be completed into a state that fits."""
    table, reach = i32(text[T_TABLE]), u64(text[T_REACH])
    num_classes, num_words = text[T_CLASSES], text[T_WORDS]
    for class_id in range(1, num_classes):
        can_follow = (reach[node * num_words + (class_id >> 6)] >> np.uint64(class_id & 63)) & np.uint64(1)
        if can_follow and _fits(text, np.int64(table[state * num_classes + class_id]), count + 1):
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
    spelt = np.int64(i32(text[T_TEMPLATE])[node * 256 + byte])
    if spelt == 0:
        return 0
    if spelt < 0:
        target = np.int64(i32(text[T_TABLE])[state * text[T_CLASSES] - spelt])
        return target * num_nodes if _fits(text, target, count + 1) else 0
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
        return min(widest * _least_length(text, state, text[T_MIN] - count), np.int64(NEVER))
    table, node_costs = i32(text[T_TABLE]), i32(text[T_NODE_COSTS])
    best = np.int64(NEVER)
    for class_id in range(1, num_classes):
        target = np.int64(table[state * num_classes + class_id])
        if node_costs[node * num_classes + class_id] < 9 and _fits(text, target, count + 1):
            left = widest * _least_length(text, target, text[T_MIN] - count - 1)
            best = min(best, left + node_costs[node * num_classes + class_id])
    return best


@inner_kernel
def _stays(text: Any, state: Any) -> Any:
    """Whether every plain character leads from the state back to it, so that only their number counts."""
    table, template, is_wide = i32(text[T_TABLE]), i32(text[T_TEMPLATE]), u8(text[T_IS_WIDE])
    num_classes = text[T_CLASSES]
    for byte in range(128):
        is_plain = ((PLAIN0 if byte < 64 else PLAIN1) >> np.uint64(byte & 63)) & np.uint64(1)
        if is_plain and table[state * num_classes - np.int64(template[byte])] != state:
            return False
    for class_id in range(1, num_classes):
        if is_wide[class_id] & 1 and table[state * num_classes + class_id] != state:
            return False
    return True


@kernel
def walk_counted(
    memory: Any, text: Any, sub: Any, count: Any, limit: Any, bits: Any, exits: Any, known: Any, safe: Any
) -> Any:
    """`text_walk_kernels.walk_text` for a counted text.

    The same short cuts are taken as far as the bounds are certainly not met on the way: from the least length on,
    and as long as the longest way to an end is left. Nearer to the greatest length the plain rows still serve where
    plain characters are merely counted: that of so many characters as may follow is exact.

    Returns (number of exits, WHOLE or REST: the trie of the exits).
    """
    accepts = u8(text[T_ACCEPTS])
    num_nodes, path = text[T_NODES], i32(memory[PATH])
    with_exits = exits.shape[0] > 0
    path[0], path[INNER_PATH], path[COUNT_PATH] = sub // num_nodes, sub % num_nodes, count
    known[:] = -1
    bits[:] = 0
    trie = WHOLE
    cuts = limit >= NEVER
    if cuts and sub % num_nodes == 0 and count >= text[T_MIN]:
        at = (np.int64(path[0]) & (SAFE_SLOTS - 1)) * SAFE_WIDTH
        known[at // SAFE_WIDTH] = path[0]
        find_safe(memory, text, np.int64(path[0]), limit, with_exits, safe, at)
        steps = np.int64(safe[at + 3])
        if (
            (PLAIN0 & ~safe[at]) == 0
            and (PLAIN1 & ~safe[at + 1]) == 0
            and (safe[at + 2] & np.uint64(1)) == 0
            and (steps >= NUM_PLAIN_ROWS or (steps and safe[at + 5]))
        ):
            row: Any = min(steps, NUM_PLAIN_ROWS)
            if count + NUM_PLAIN_ROWS + text[T_WAY] > text[T_MAX]:
                left = text[T_MAX] - count - _least_length(text, np.int64(path[0]), np.int64(0))
                row = min(row, left) if _stays(text, np.int64(path[0])) else np.int64(0)
            if row > 0:
                num_words = memory[NUM_WORDS]
                plain = i32(memory[PLAIN_ROWS] + row * num_words * 4)
                for word in range(num_words):
                    bits[word] = plain[word]
                trie = REST
    data, depths, ends = u8(memory[trie + TRIE_BYTES]), u8(memory[trie + TRIE_DEPTHS]), i32(memory[trie + TRIE_ENDS])
    tokens = i32(memory[trie + TRIE_TOKENS])
    summary_of, summaries = i32(memory[trie + SUMMARY_OF]), u64(memory[trie + SUMMARIES])
    num_exits = 0
    node, size = np.int64(0), memory[trie + TRIE_SIZE]
    while node < size:
        depth = np.int64(depths[node])
        state, inner = np.int64(path[depth - 1]), np.int64(path[INNER_PATH + depth - 1])
        read = np.int64(path[COUNT_PATH + depth - 1])
        if cuts and inner == 0 and read >= text[T_MIN] and summary_of[node] >= 0:
            slot = state & (SAFE_SLOTS - 1)
            if known[slot] != state and ends[node] - node >= FIND_SAFE_FROM:
                known[slot] = state
                find_safe(memory, text, state, limit, with_exits, safe, slot * SAFE_WIDTH)
            if known[slot] == state:
                at = slot * SAFE_WIDTH
                summary = np.int64(summary_of[node]) * 3
                extra = summaries[summary + 2]
                height = np.int64(extra >> np.uint64(2))
                if (
                    (summaries[summary] & ~safe[at]) == 0
                    and (summaries[summary + 1] & ~safe[at + 1]) == 0
                    and (extra & safe[at + 2]) == 0
                    and height <= np.int64(safe[at + 3])
                    and read + height + text[T_WAY] <= text[T_MAX]
                ):
                    set_tokens(memory, trie, node, np.int64(ends[node]), bits)
                    node = np.int64(ends[node])
                    continue
        target = counted_step(text, state * num_nodes + inner, np.int64(data[node]), read)
        if target == 0:
            node = np.int64(ends[node])
            continue
        state, inner = target // num_nodes, target % num_nodes
        if inner == 0:
            read = next_count(text, read)
        path[depth], path[INNER_PATH + depth], path[COUNT_PATH + depth] = state, inner, read
        if tokens[node] >= 0 and (cuts or counted_cost(text, target, read) <= limit):
            set_tokens(memory, trie, node, node + 1, bits)
        if with_exits and inner == 0 and accepts[state] and read >= text[T_MIN]:
            child, end = node + 1, np.int64(ends[node])
            while child < end:
                exits[num_exits] = child
                num_exits += 1
                child = np.int64(ends[child])
        node += 1
    return num_exits, trie
