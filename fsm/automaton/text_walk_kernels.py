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

from ..compiled import inner_kernel, kernel
from ..memory import (
    ALL_TOKENS,
    ARG,
    BEFORE_SHIFT,
    COUNT_PATH,
    FIND_SAFE_FROM,
    HAS_CUT,
    HEIGHT_SHIFT,
    INNER_PATH,
    K_TEXT,
    KIND,
    NEVER,
    NEXT_SAME,
    NODE_SHIFT,
    NUM_PLAIN_ROWS,
    NUM_WORDS,
    PATH,
    PLAIN0,
    PLAIN1,
    PLAIN_ROWS,
    PLAIN_WIDE,
    POOL,
    REST,
    S_OFFSET,
    S_SIZE,
    SAFE_SLOTS,
    SAFE_WIDTH,
    STACK_BITS,
    STATE_WIDTH,
    STATES,
    SUB_MASK,
    SUMMARIES,
    SUMMARY_OF,
    T_ACCEPTS,
    T_CLASSES,
    T_COSTS,
    T_INNER,
    T_IS_WIDE,
    T_MAX,
    T_MIN,
    T_NODES,
    T_TABLE,
    T_TEMPLATE,
    T_WAY,
    TEXT_WIDTH,
    TEXTS,
    TRIE_BYTES,
    TRIE_DEPTHS,
    TRIE_ENDS,
    TRIE_SIZE,
    TRIE_TOKENS,
    WHOLE,
    i32,
    i64,
    u8,
    u64,
)
from ..text.counted_kernels import counted_alive, counted_cost, counted_step, fits_after, least_length, next_count
from ..text.safe_kernels import find_safe, is_plain, num_bits
from ..text.text_kernels import clear_tokens, set_short_tokens, set_tokens, text_alive, text_cost


@kernel
def walk_text(
    memory: Any, text: Any, sub: Any, count: Any, limit: Any, bits: Any, exits: Any, known: Any, safe: Any
) -> Any:
    """The walk inside one text automaton, whatever comes after it.

    Sets the bit of every token all of whose bytes belong to the text and that leaves at most `limit` bytes to its
    end, and clears all others; fills exits (int32; of length 0: not wanted) with the trie nodes that follow a place
    where the text may end.

    In a counted text, after `count` characters, the short cuts are taken as far as the bounds are certainly not met
    on the way: from the least length on, and as long as the longest way to an end is left. Nearer to the greatest
    length the plain rows still serve where plain characters are merely counted: that of so many characters as may
    follow is exact.

    Args:
        known, safe: int32[SAFE_SLOTS], uint64[SAFE_SLOTS * SAFE_WIDTH], scratch: the safe characters by state.

    Returns (number of exits, greatest cost met to within 3 bytes (0 for counted texts), WHOLE or REST: the trie of the
    exits).
    """
    table, accepts = i32(text[T_TABLE]), u8(text[T_ACCEPTS])
    template, inner_template = text[T_TEMPLATE], text[T_INNER]
    num_nodes, num_classes = text[T_NODES], text[T_CLASSES]
    costs, path = i32(text[T_COSTS]), i32(memory[PATH])
    with_exits = exits.shape[0] > 0
    is_counted = text[T_MAX] >= 0
    least, most = np.int64(0), np.int64(NEVER)  # counts from and up to which short cuts are taken
    if is_counted:
        least, most = text[T_MIN] if limit >= NEVER else np.int64(NEVER), text[T_MAX] - text[T_WAY]
    path[0], path[INNER_PATH], path[COUNT_PATH] = sub // num_nodes, sub % num_nodes, count
    known[:] = -1
    trie, worst, is_full = WHOLE, np.int64(0), False
    bits[:] = 0
    if path[INNER_PATH] == 0 and count >= least:
        start = np.int64(path[0])
        at = (start & (SAFE_SLOTS - 1)) * SAFE_WIDTH
        known[at // SAFE_WIDTH] = start
        find_safe(memory, text, start, limit, with_exits, safe, at)
        steps = np.int64(safe[at + 3])
        row: Any = min(steps, NUM_PLAIN_ROWS) if is_plain(safe, at) else np.int64(0)
        if row and count + NUM_PLAIN_ROWS > most:
            row = min(row, text[T_MAX] - count - least_length(text, start, np.int64(0))) if _stays(text, start) else 0
        if row > 0:
            num_words = memory[NUM_WORDS]
            plain = i32(memory[PLAIN_ROWS] + row * num_words * 4)
            for word in range(num_words):
                bits[word] = plain[word]
            trie, worst = REST, np.int64(safe[at + 4])
        elif (
            not is_counted
            and (safe[at + 2] & np.uint64(PLAIN_WIDE)) == 0
            and steps >= 4
            and num_bits(safe[at]) + num_bits(safe[at + 1]) > 60
        ):
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
        read = np.int64(path[COUNT_PATH + depth - 1])
        if inner == 0 and summary_of[node] >= 0 and read >= least:
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
                ):
                    height, steps = np.int64(extra >> np.uint64(HEIGHT_SHIFT)) & 255, np.int64(safe[at + 3])
                    fits = read + height <= most
                    if fits and height <= steps:
                        worst = max(worst, np.int64(safe[at + 4]))
                        if not is_full:
                            set_tokens(memory, trie, node, np.int64(ends[node]), bits)
                        node = np.int64(ends[node])
                        continue
                    if fits and safe[at + 5] and (extra & np.uint64(HAS_CUT)) == 0:
                        worst = max(worst, np.int64(safe[at + 4]))
                        longest = (np.int64(extra >> np.uint64(BEFORE_SHIFT)) & 255) + steps
                        set_short_tokens(memory, trie, node, np.int64(ends[node]), longest, bits)
                        node = np.int64(ends[node])
                        continue
        spelt = np.int64(i32(inner_template if inner else template)[inner * 256 + data[node]])
        alive = False
        if spelt < 0:
            state, inner = np.int64(table[state * num_classes - spelt]), np.int64(0)
            if is_counted:
                alive = fits_after(text, state, read + 1)
                read = next_count(text, read)
            else:
                alive = state != 0
        elif spelt > 0:
            inner = spelt
            alive = counted_alive(text, state, spelt, read) if is_counted else text_alive(text, state, spelt)
        if not alive:
            if is_full:
                clear_tokens(memory, trie, node, np.int64(ends[node]), bits)
            node = np.int64(ends[node])
            continue
        path[depth], path[INNER_PATH + depth], path[COUNT_PATH + depth] = state, inner, read
        if tokens[node] >= 0:
            cost = np.int64(0)
            if is_counted:
                cost = np.int64(0) if limit >= NEVER else counted_cost(text, state * num_nodes + inner, read)
            else:
                cost = np.int64(costs[state]) if inner == 0 else np.int64(text_cost(text, state * num_nodes + inner))
                worst = max(worst, cost)
            if is_full:
                if cost > limit:
                    clear_tokens(memory, trie, node, node + 1, bits)
            elif cost <= limit:
                set_tokens(memory, trie, node, node + 1, bits)
        if with_exits and inner == 0 and accepts[state] and (not is_counted or read >= text[T_MIN]):
            child, end = node + 1, np.int64(ends[node])
            while child < end:
                exits[num_exits] = child
                num_exits += 1
                child = np.int64(ends[child])
        node += 1
    return num_exits, worst, trie


@kernel
def text_targets(memory: Any, text: Any, sub: Any, count: Any, targets: Any) -> Any:
    """Where in a text every token ends that stays inside: equal numbers where it is the same place.

    Fills targets (int64[num_tokens]): byte state and characters read; -1 for tokens that do not stay inside.
    """
    data, depths, ends = u8(memory[WHOLE + TRIE_BYTES]), u8(memory[WHOLE + TRIE_DEPTHS]), i32(memory[WHOLE + TRIE_ENDS])
    tokens, same, path = i32(memory[WHOLE + TRIE_TOKENS]), i32(memory[NEXT_SAME]), i32(memory[PATH])
    targets[:] = -1
    path[0], path[COUNT_PATH] = sub, count
    node, size = np.int64(0), memory[WHOLE + TRIE_SIZE]
    while node < size:
        depth = np.int64(depths[node])
        read = np.int64(path[COUNT_PATH + depth - 1])
        target = np.int64(counted_step(text, np.int64(path[depth - 1]), np.int64(data[node]), read))
        if target == 0:
            node = np.int64(ends[node])
            continue
        if text[T_MAX] >= 0 and target % text[T_NODES] == 0:
            read = np.int64(next_count(text, read))
        path[depth], path[COUNT_PATH + depth] = target, read
        token = np.int64(tokens[node])
        while token >= 0:
            targets[token] = target << 32 | read
            token = np.int64(same[token])
        node += 1


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
        if is_wide[class_id] & PLAIN_WIDE and table[state * num_classes + class_id] != state:
            return False
    return True


@kernel
def stays_on_plain(memory: Any, state: Any) -> Any:
    """Whether every token of plain characters leads from the state back to it: it stands in texts only, in each of them
    in a state that plain characters do not leave, and none of them counts."""
    states, pool = i32(memory[STATES]), i64(memory[POOL])
    kinds, args = i32(memory[KIND]), i32(memory[ARG])
    offset, size = states[state * STATE_WIDTH + S_OFFSET], states[state * STATE_WIDTH + S_SIZE]
    for index in range(size):
        key = pool[offset + index]
        node, sub = key >> NODE_SHIFT, (key >> STACK_BITS) & SUB_MASK
        if kinds[node] != K_TEXT:
            return False
        text = i64(memory[TEXTS] + np.int64(args[node]) * (TEXT_WIDTH * 8))
        if text[T_MAX] >= 0 or sub % text[T_NODES] or not _stays(text, sub // text[T_NODES]):
            return False
    return size > 0


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
def alike(text: Any, left: Any, right: Any, num_steps: Any, pairs: Any) -> Any:
    """Whether two table states of a text accept, refuse and go on alike for the next `num_steps` characters.

    pairs: int32[n, 2], scratch; when it is full the answer is no.
    """
    table, accepts, num_classes = i32(text[T_TABLE]), u8(text[T_ACCEPTS]), text[T_CLASSES]
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
                next_a, next_b = table[a * num_classes + class_id], table[b * num_classes + class_id]
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
