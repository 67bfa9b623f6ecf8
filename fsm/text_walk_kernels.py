"""Compiled walks of text automata through the vocabulary: the tokens that stay inside.

A token stays inside a text if all of its bytes do. Walking all of a vocabulary for that takes milliseconds, so two
short cuts are taken, both exact:

    safe characters    sub-trees of the trie that consist of these are taken whole (`safe_kernels.py`).
    plain rows         where everything but quote, backslash and control characters is safe, the tokens made of
                       up to n plain characters are a row prepared with the vocabulary; only the others are walked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import kernel
from .memory import (
    ALL_TOKENS,
    FIND_SAFE_FROM,
    INNER_PATH,
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
    T_COSTS,
    T_NODES,
    T_TABLE,
    T_TEMPLATE,
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
from .safe_kernels import find_safe, num_bits
from .text_kernels import clear_tokens, set_tokens, text_alive, text_cost


@kernel
def walk_text(memory: Any, text: Any, sub: Any, limit: Any, bits: Any, exits: Any, known: Any, safe: Any) -> Any:
    """The walk inside one text automaton, whatever comes after it.

    Sets the bit of every token all of whose bytes belong to the text and that leaves at most `limit` bytes to its
    end, and clears all others; fills exits (int32; of length 0: not wanted) with the trie nodes that follow a place
    where the text may end.

    Args:
        known, safe: int32[SAFE_SLOTS], uint64[SAFE_SLOTS * SAFE_WIDTH], scratch: the safe characters by state.

    Returns (number of exits, greatest cost met to within 3 bytes, WHOLE or REST: the trie of the exits).
    """
    table, template, accepts = i32(text[T_TABLE]), i32(text[T_TEMPLATE]), u8(text[T_ACCEPTS])
    num_nodes, num_classes = text[T_NODES], text[T_CLASSES]
    costs, path = i32(text[T_COSTS]), i32(memory[PATH])
    with_exits = exits.shape[0] > 0
    path[0], path[INNER_PATH] = sub // num_nodes, sub % num_nodes
    known[:] = -1
    trie, worst, is_full = WHOLE, np.int64(0), False
    bits[:] = 0
    if path[INNER_PATH] == 0:
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
            row, num_words = min(steps, NUM_PLAIN_ROWS), memory[NUM_WORDS]
            plain = i32(memory[PLAIN_ROWS] + row * num_words * 4)
            for word in range(num_words):
                bits[word] = plain[word]
            trie, worst = REST, np.int64(safe[at + 4])
        elif (safe[at + 2] & np.uint64(1)) == 0 and steps >= 4 and num_bits(safe[at]) + num_bits(safe[at + 1]) > 60:
            # nearly everything goes on: begin with all tokens and clear what is refused
            is_full = True
            whole = i32(memory[ALL_TOKENS])
            for word in range(memory[NUM_WORDS]):
                bits[word] = whole[word]
    data, depths, ends = u8(memory[trie + TRIE_BYTES]), u8(memory[trie + TRIE_DEPTHS]), i32(memory[trie + TRIE_ENDS])
    tokens = i32(memory[trie + TRIE_TOKENS])
    summary_of, summaries = i32(memory[trie + SUMMARY_OF]), u64(memory[trie + SUMMARIES])
    num_exits = 0
    node, size = np.int64(0), memory[trie + TRIE_SIZE]
    while node < size:
        depth = np.int64(depths[node])
        state, inner = np.int64(path[depth - 1]), np.int64(path[INNER_PATH + depth - 1])
        if inner == 0 and summary_of[node] >= 0:
            slot = state & (SAFE_SLOTS - 1)
            if known[slot] != state and ends[node] - node >= FIND_SAFE_FROM:
                known[slot] = state
                find_safe(memory, text, state, limit, with_exits, safe, slot * SAFE_WIDTH)
            if known[slot] == state:
                at = slot * SAFE_WIDTH
                summary = np.int64(summary_of[node]) * 3
                extra = summaries[summary + 2]
                if (
                    (summaries[summary] & ~safe[at]) == 0
                    and (summaries[summary + 1] & ~safe[at + 1]) == 0
                    and (extra & safe[at + 2]) == 0
                    and (extra >> np.uint64(2)) <= safe[at + 3]
                ):
                    worst = max(worst, np.int64(safe[at + 4]))
                    if not is_full:
                        set_tokens(memory, trie, node, np.int64(ends[node]), bits)
                    node = np.int64(ends[node])
                    continue
        spelt = np.int64(template[inner * 256 + data[node]])
        alive = False
        if spelt < 0:
            state, inner = np.int64(table[state * num_classes - spelt]), np.int64(0)
            alive = state != 0
        elif spelt > 0:
            inner = spelt
            alive = text_alive(text, state, spelt)
        if not alive:
            if is_full:
                clear_tokens(memory, trie, node, np.int64(ends[node]), bits)
            node = np.int64(ends[node])
            continue
        path[depth] = state
        path[INNER_PATH + depth] = inner
        if tokens[node] >= 0:
            cost = np.int64(costs[state]) if inner == 0 else np.int64(text_cost(text, state * num_nodes + inner))
            worst = max(worst, cost)
            if is_full:
                if cost > limit:
                    clear_tokens(memory, trie, node, node + 1, bits)
            elif cost <= limit:
                set_tokens(memory, trie, node, node + 1, bits)
        if with_exits and inner == 0 and accepts[state]:
            child, end = node + 1, np.int64(ends[node])
            while child < end:
                exits[num_exits] = child
                num_exits += 1
                child = np.int64(ends[child])
        node += 1
    return num_exits, worst, trie


@kernel
def group_exits(memory: Any, trie: Any, exits: Any, num_exits: Any, starts: Any) -> Any:
    """The exits grouped by their byte; fills starts (int32[257]) with where the group of each byte begins."""
    data = u8(memory[trie + TRIE_BYTES])
    starts[:] = 0
    for index in range(num_exits):
        starts[np.int64(data[exits[index]]) + 1] += 1
    for byte in range(256):
        starts[byte + 1] += starts[byte]
    grouped = np.empty(num_exits, np.int32)
    place = starts.copy()
    for index in range(num_exits):
        group = np.int64(data[exits[index]])
        grouped[place[group]] = exits[index]
        place[group] += 1
    return grouped


@kernel
def alike(table: Any, accepts: Any, left: Any, right: Any, num_steps: Any, pairs: Any) -> Any:
    """Whether two table states accept, refuse and go on alike for the next `num_steps` characters.

    pairs: int32[n, 2], scratch; when it is full the answer is no.
    """
    num_classes = table.shape[1]
    pairs[0, 0], pairs[0, 1] = left, right
    count, done = 1, 0
    for _ in range(num_steps + 1):
        level_end = count
        if done == level_end:
            break
        while done < level_end:
            a, b = pairs[done, 0], pairs[done, 1]
            done += 1
            if accepts[a] != accepts[b]:
                return False
            for class_id in range(1, num_classes):
                next_a, next_b = table[a, class_id], table[b, class_id]
                if next_a == next_b:
                    continue
                if next_a == 0 or next_b == 0:
                    return False
                found = False
                for index in range(count - 1, max(count - 9, -1), -1):
                    if pairs[index, 0] == next_a and pairs[index, 1] == next_b:
                        found = True
                        break
                if not found:
                    if count == pairs.shape[0]:
                        return False
                    pairs[count, 0], pairs[count, 1] = next_a, next_b
                    count += 1
    return True
