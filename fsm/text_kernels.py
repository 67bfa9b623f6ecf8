"""Compiled loops over text automata: one step, the tokens that stay inside, and what can be taken as a whole.

A token stays inside a text if all of its bytes do. Walking all of a vocabulary for that takes milliseconds, so two
short cuts are taken, both exact:

    safe characters    in the middle of a long text most characters lead on in one way, or stay within a few
                       states that are never left. Sub-trees of the trie that consist of these are taken whole.
    plain rows         where everything but quote, backslash and control characters is safe, the tokens made of
                       up to n plain characters are a row prepared with the vocabulary; only the others are walked.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import inner_kernel, kernel
from .memory import (
    ALL_TOKENS,
    ENDLESS_STEPS,
    FIND_SAFE_FROM,
    FLAGS,
    INNER_PATH,
    MARKS,
    MAX_REGION,
    MAX_REGION_STATES,
    MAX_SAFE_STEPS,
    NEVER,
    NEXT_SAME,
    NUM_PLAIN_ROWS,
    NUM_WORDS,
    PATH,
    PLAIN0,
    PLAIN1,
    PLAIN_ROWS,
    REGION,
    REST,
    SAFE_SLOTS,
    SAFE_WIDTH,
    SUMMARIES,
    SUMMARY_OF,
    T_ACCEPTS,
    T_CLASSES,
    T_COSTS,
    T_IS_WIDE,
    T_LIVE,
    T_NODE_COSTS,
    T_NODES,
    T_NUM_ASCII,
    T_REACH,
    T_STATES,
    T_TABLE,
    T_TEMPLATE,
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


@inner_kernel
def text_alive(text: Any, state: Any, node: Any) -> Any:
    """Whether a character begun (template node) can be completed into a live state."""
    num_words = text[T_WORDS]
    reach, live = u64(text[T_REACH]), u64(text[T_LIVE])
    alive = False
    for word in range(num_words):
        alive = alive or (reach[node * num_words + word] & live[state * num_words + word]) != 0
    return alive


@inner_kernel
def text_step(text: Any, sub: Any, byte: Any) -> Any:
    """The byte state after one more byte; 0: refused."""
    num_nodes = text[T_NODES]
    state, node = sub // num_nodes, sub % num_nodes
    spelt = np.int64(i32(text[T_TEMPLATE])[node * 256 + byte])
    if spelt == 0:
        return 0
    if spelt < 0:
        return i32(text[T_TABLE])[state * text[T_CLASSES] - spelt] * num_nodes
    return state * num_nodes + spelt if text_alive(text, state, spelt) else 0


@inner_kernel
def text_cost(text: Any, sub: Any) -> Any:
    """Least number of bytes from a byte state to acceptance."""
    num_nodes = text[T_NODES]
    state, node = sub // num_nodes, sub % num_nodes
    costs = i32(text[T_COSTS])
    if node == 0:
        return costs[state]
    num_classes = text[T_CLASSES]
    table, node_costs = i32(text[T_TABLE]), i32(text[T_NODE_COSTS])
    best = np.int64(NEVER)
    for class_id in range(1, num_classes):
        target = table[state * num_classes + class_id]
        if target and node_costs[node * num_classes + class_id] < 9:
            best = min(best, np.int64(costs[target]) + node_costs[node * num_classes + class_id])
    return best


@inner_kernel
def _num_bits(word: Any) -> Any:
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

    Fills safe[at : at + 6] (uint64): two words of ASCII bytes; 2 if the separators U+2028 and U+2029 do not all
    belong to the set, plus 1 if not all other characters beyond ASCII do; steps; the greatest cost on the way; 1 if
    no text of more than `steps` of them may follow.
    """
    safe[at : at + SAFE_WIDTH] = 0
    if 2 * text[T_CLASSES] > REGION - FLAGS:
        return
    flags = i32(memory[PATH] + FLAGS * 4)
    for index in range(text[T_CLASSES]):
        flags[text[T_CLASSES] + index] = 0
    _find_chain(memory, text, state, limit, with_exits, safe, at)
    weight = _num_bits(safe[at]) + _num_bits(safe[at + 1])
    if safe[at + 3] == 0:
        weight = 0
    is_poor = weight < 90 or safe[at + 2] or (safe[at + 3] < MAX_SAFE_STEPS and safe[at + 5] == 0)
    if is_poor and text[T_STATES] <= MAX_REGION_STATES:
        kept0, kept1, kept2 = safe[at], safe[at + 1], safe[at + 2]
        kept3, kept4, kept5 = safe[at + 3], safe[at + 4], safe[at + 5]
        _find_region(memory, text, state, limit, with_exits, safe, at)
        if _num_bits(safe[at]) + _num_bits(safe[at + 1]) < weight:
            safe[at], safe[at + 1], safe[at + 2] = kept0, kept1, kept2
            safe[at + 3], safe[at + 4], safe[at + 5] = kept3, kept4, kept5


@inner_kernel
def set_tokens(memory: Any, trie: Any, node: Any, end: Any, bits: Any) -> None:
    """Sets the bits of all tokens that end at trie nodes node .. end - 1."""
    tokens, same = i32(memory[trie + TRIE_TOKENS]), i32(memory[NEXT_SAME])
    for index in range(node, end):
        token = tokens[index]
        while token >= 0:
            bits[token >> 5] |= np.int32(1) << np.int32(token & 31)
            token = same[token]


@inner_kernel
def clear_tokens(memory: Any, trie: Any, node: Any, end: Any, bits: Any) -> None:
    """Clears the bits of all tokens that end at trie nodes node .. end - 1."""
    tokens, same = i32(memory[trie + TRIE_TOKENS]), i32(memory[NEXT_SAME])
    for index in range(node, end):
        token = tokens[index]
        while token >= 0:
            bits[token >> 5] &= ~(np.int32(1) << np.int32(token & 31))
            token = same[token]


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
        elif (safe[at + 2] & np.uint64(1)) == 0 and steps >= 4 and _num_bits(safe[at]) + _num_bits(safe[at + 1]) > 60:
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
