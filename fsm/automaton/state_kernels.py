"""States: interned sets of configurations, and what their records say of them.

A configuration is one int64: node << NODE_SHIFT | state within a text, or place within the trie of a set, << STACK_BITS
| stack. A state is a sorted run of configurations in the pool together with "accepting"; equal runs are one state, 0 is
the dead one. How a set is found is known to `closure_kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_kernels import sort_beginning
from ..compiled import inner_kernel, kernel
from ..memory import (
    ARG,
    BEFORE_KEY,
    CAP_POOL,
    CAP_STATES,
    COST,
    F_COST,
    F_COUNT,
    FOUND,
    HAS_COUNTS,
    IN_KEY,
    K_BYTE,
    K_KEY,
    K_TEXT,
    KIND,
    NEED_SPACE,
    NEVER,
    NEVER_A_ROW,
    NEXT,
    NO_KEY,
    NO_ROW,
    NODE_SHIFT,
    NUM_STATES,
    POOL,
    POOL_USED,
    S_ACCEPTS,
    S_BYTE,
    S_COST,
    S_KEY,
    S_NEXT,
    S_OFFSET,
    S_ROW,
    S_SIZE,
    STACK_BITS,
    STACK_ID_MASK,
    STACK_WIDTH,
    STACKS,
    STATE_MASK,
    STATE_SLOTS,
    STATE_WIDTH,
    STATES,
    SUB_MASK,
    T_IS_KEY,
    T_MAX,
    T_START,
    TEXT_WIDTH,
    TEXTS,
    i32,
    i64,
)
from ..network.key_kernels import key_cost, only_byte
from ..text.counted_kernels import counted_cost
from .cover_kernels import without_covered

COVER_FROM = 4  # configurations; most states have fewer, and need not be looked through for what others cover


@inner_kernel
def _state_hash(keys: Any, offset: Any, size: Any, accepts: Any) -> Any:
    value = np.uint64(size * 2 + accepts)
    for i in range(offset, offset + size):
        value ^= np.uint64(keys[i])
        value ^= value >> np.uint64(32)  # the node stands above all the bits that a slot is told by
        value *= np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(32)
    return np.int64(value & np.uint64(0x7FFFFFFF))


@kernel
def rehash_states(memory: Any, slots: Any) -> None:
    """Puts new STATE_SLOTS into the memory, filled from an array of zeros."""
    memory[STATE_SLOTS], memory[STATE_MASK] = slots.ctypes.data, slots.shape[0] - 1
    states, pool = i32(memory[STATES]), i64(memory[POOL])
    for state in range(1, memory[NUM_STATES]):
        at = state * STATE_WIDTH
        slot = _state_hash(
            pool, np.int64(states[at + S_OFFSET]), np.int64(states[at + S_SIZE]), np.int64(states[at + S_ACCEPTS])
        )
        slot &= memory[STATE_MASK]
        while slots[slot] != 0:
            slot = (slot + 1) & memory[STATE_MASK]
        slots[slot] = state


@inner_kernel
def intern(memory: Any, size: Any, accepts: Any) -> Any:
    """The state of FOUND[:size]."""
    if size == 0 and accepts == 0:
        return 0
    found, pool = i64(memory[FOUND]), i64(memory[POOL])
    sort_beginning(found, size)
    if size > COVER_FROM and memory[HAS_COUNTS]:
        size = without_covered(memory, found, size)
    states, slots = i32(memory[STATES]), i32(memory[STATE_SLOTS])
    mask = memory[STATE_MASK]
    slot = _state_hash(found, np.int64(0), size, accepts) & mask
    while slots[slot] != 0:
        at = slots[slot] * STATE_WIDTH
        if states[at + S_SIZE] == size and states[at + S_ACCEPTS] == accepts:
            offset = states[at + S_OFFSET]
            same = True
            for i in range(size):
                if pool[offset + i] != found[i]:
                    same = False
                    break
            if same:
                return slots[slot]
        slot = (slot + 1) & mask
    state, offset = memory[NUM_STATES], memory[POOL_USED]
    if state + 1 >= memory[CAP_STATES] or offset + size > memory[CAP_POOL]:
        return NEED_SPACE
    for i in range(size):
        pool[offset + i] = found[i]
    at = state * STATE_WIDTH
    states[at + S_OFFSET], states[at + S_SIZE], states[at + S_ACCEPTS] = offset, size, accepts
    states[at + S_BYTE], states[at + S_NEXT] = _only_byte(memory, found, size), -1
    states[at + S_COST], states[at + S_ROW], states[at + S_KEY] = _described(memory, found, size)
    if accepts:
        states[at + S_COST] = 0
    slots[slot] = state
    memory[NUM_STATES] = state + 1
    memory[POOL_USED] = offset + size
    return state


@inner_kernel
def _described(memory: Any, found: Any, size: Any) -> Any:
    """Of configurations: the bytes to acceptance, whether they are to have a row, and where they stand in a key."""
    kinds, args, nexts, costs = i32(memory[KIND]), i32(memory[ARG]), i32(memory[NEXT]), i32(memory[COST])
    stacks = i32(memory[STACKS])
    cost, row, key_place = np.int64(NEVER), NO_ROW, NO_KEY
    for i in range(size):
        key = found[i]
        node, sub, stack = key >> NODE_SHIFT, (key >> STACK_BITS) & SUB_MASK, key & STACK_ID_MASK
        total = np.int64(stacks[stack * STACK_WIDTH + F_COST])
        if kinds[node] == K_TEXT:
            text = i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))
            total += counted_cost(text, sub, np.int64(stacks[stack * STACK_WIDTH + F_COUNT])) + costs[nexts[node]]
            if size == 1 and text[T_MAX] >= 0:
                row = NEVER_A_ROW
            if text[T_IS_KEY]:
                key_place = BEFORE_KEY if sub == text[T_START] else IN_KEY
        elif kinds[node] == K_KEY:
            total = key_cost(memory, np.int64(args[node]), stack, sub - 1)
            if size == 1:
                row = NEVER_A_ROW
        else:
            total += costs[node]
        cost = min(cost, total)
    return cost, row, key_place


@inner_kernel
def _only_byte(memory: Any, found: Any, size: Any) -> Any:
    """The byte that must come next, if that is plain to see; -1 if not."""
    if size == 1:
        node, place = found[0] >> NODE_SHIFT, ((found[0] >> STACK_BITS) & SUB_MASK) - 1
        kind, arg = i32(memory[KIND])[node], i32(memory[ARG])[node]
        if kind == K_BYTE:
            return np.int64(arg)
        if kind == K_KEY:
            return np.int64(only_byte(memory, np.int64(arg), found[0] & STACK_ID_MASK, place))
    return np.int64(-1)
