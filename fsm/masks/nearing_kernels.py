"""Compiled: the bytes that bring the end of a text nearer.

Of a text that needs many characters of any kind only one is followed; else the first ones would be found in all ways,
and all of them mean the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel
from ..memory import (
    ARG,
    BYTE_SETS,
    COST,
    F_COST,
    F_COUNT,
    K_BYTE,
    K_BYTES,
    K_KEY,
    K_TEXT,
    KIND,
    NEXT,
    NODE_SHIFT,
    POOL,
    S_COST,
    S_OFFSET,
    S_SIZE,
    STACK_BITS,
    STACK_ID_MASK,
    STACK_WIDTH,
    STACKS,
    STATE_WIDTH,
    STATES,
    SUB_MASK,
    T_NODES,
    TEXT_WIDTH,
    TEXTS,
    TRIE_SIZE,
    WHOLE,
    i32,
    i64,
    u64,
)
from ..network.key_kernels import cheapest_byte, key_cost
from ..text.counted_kernels import counted_cost, counted_step, next_count

ALL = 256  # as the way of a state: whatever leads nearer to the end
MANY_BYTES = 32  # so many may follow where a text needs many characters of any kind
WIDE_WORK = 1 << 16  # nodes of the trie: a text is written in all ways only so near to its end that this suffices


@inner_kernel
def nearing_bytes(memory: Any, state: Any, flags: Any) -> Any:
    """Sets flags[b] (uint8[256]) to 1 for bytes on a shortest way to acceptance, to 0 for all others.

    Returns the one that is to be followed, or ALL.
    """
    way, num_bytes = np.int64(ALL), np.int64(0)
    levels, is_far = WIDE_WORK // memory[WHOLE + TRIE_SIZE], False
    states, pool, stacks = i32(memory[STATES]), i64(memory[POOL]), i32(memory[STACKS])
    kinds, args, nexts, costs = i32(memory[KIND]), i32(memory[ARG]), i32(memory[NEXT]), i32(memory[COST])
    for byte in range(256):
        flags[byte] = 0
    at = state * STATE_WIDTH
    for i in range(states[at + S_OFFSET], states[at + S_OFFSET] + states[at + S_SIZE]):
        key = pool[i]
        node = key >> NODE_SHIFT
        left = np.int64(states[at + S_COST]) - stacks[(key & STACK_ID_MASK) * STACK_WIDTH + F_COST]
        if kinds[node] == K_BYTE:
            if costs[node] <= left:
                flags[args[node]] = 1
        elif kinds[node] == K_BYTES:
            if costs[node] <= left:
                words = u64(memory[BYTE_SETS] + args[node] * 32)
                for byte in range(256):
                    flags[byte] |= np.uint8((words[byte >> 6] >> np.uint64(byte & 63)) & np.uint64(1))
        elif kinds[node] == K_KEY:
            row, place = np.int64(args[node]), ((key >> STACK_BITS) & SUB_MASK) - 1
            if key_cost(memory, row, key & STACK_ID_MASK, place) <= states[at + S_COST]:
                way = np.int64(cheapest_byte(memory, row, key & STACK_ID_MASK, place))
                flags[way] = 1
        else:
            text = i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))
            sub = (key >> STACK_BITS) & SUB_MASK
            count = np.int64(stacks[(key & STACK_ID_MASK) * STACK_WIDTH + F_COUNT])
            inside = np.int64(counted_cost(text, sub, count))
            if inside + costs[nexts[node]] <= left:
                is_far |= inside > levels
                for byte in range(256):
                    if not flags[byte] and _is_nearing(text, sub, np.int64(byte), count, inside):
                        flags[byte] = 1
    if way == ALL and is_far:
        for byte in range(256):
            num_bytes += flags[byte]
        if num_bytes > MANY_BYTES:
            way = np.int64(0x20)
            while not flags[way & 0xFF]:
                way += 1
            way &= 0xFF
    return way


@inner_kernel
def _is_nearing(text: Any, sub: Any, byte: Any, count: Any, inside: Any) -> Any:
    """Whether a byte brings the end of a text nearer that is `inside` bytes away."""
    after = np.int64(counted_step(text, sub, byte, count))
    if after == 0:
        return False
    read = np.int64(next_count(text, count)) if after % text[T_NODES] == 0 else count
    return counted_cost(text, after, read) < inside


@inner_kernel
def first_nearing_byte(memory: Any, state: Any, flags: Any) -> Any:
    """The one that is to be followed if there is to be only one: from the space on, if there is a choice."""
    states, pool = i32(memory[STATES]), i64(memory[POOL])
    at = state * STATE_WIDTH
    key = pool[states[at + S_OFFSET]]
    node = key >> NODE_SHIFT
    if states[at + S_SIZE] == 1 and i32(memory[KIND])[node] == K_TEXT:
        text = i64(memory[TEXTS] + i32(memory[ARG])[node] * (TEXT_WIDTH * 8))
        sub = (key >> STACK_BITS) & SUB_MASK
        count = np.int64(i32(memory[STACKS])[(key & STACK_ID_MASK) * STACK_WIDTH + F_COUNT])
        inside = np.int64(counted_cost(text, sub, count))
        for byte in range(0x20, 0x120):
            if _is_nearing(text, sub, np.int64(byte & 0xFF), count, inside):
                return np.int64(byte & 0xFF)
    way = np.int64(nearing_bytes(memory, state, flags))
    if way == ALL:
        way = np.int64(0x20)
        while way < 0x11F and not flags[way & 0xFF]:
            way += 1
    return way & 0xFF
