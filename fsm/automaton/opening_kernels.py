"""The memory of a new automaton, set up in one compiled call; `automaton.py` is the only user.

One call, since each step of Python that is not in the processor's caches takes ten times as long as usual, and a new
automaton is made after something else was done.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import call, kernel
from ..memory import (
    ALLOWANCE,
    ARG,
    BYTE_SETS,
    CAP_POOL,
    CAP_ROWS,
    CAP_STACKS,
    CAP_STATES,
    COST,
    EDGES,
    ENTER,
    HAS_COUNTS,
    KIND,
    LISTS,
    LOOPS,
    MAX_ROWS,
    MEMBERS,
    MEMORY_SIZE,
    N_ARG,
    N_COST,
    N_EDGES,
    N_KIND,
    N_LISTS,
    N_LOOPS,
    N_MEMBERS,
    N_NEXT,
    N_OPTIONS,
    N_SETS,
    N_START,
    N_TRIES,
    NEVER,
    NEXT,
    NO_ROW,
    NUM_STACKS,
    NUM_STATES,
    OPTIONS,
    POOL,
    ROWS,
    S_ACCEPTS,
    S_BYTE,
    S_COST,
    S_ROW,
    SCRATCH,
    SEGMENT_ROWS,
    SETS,
    STACK_MASK,
    STACK_SLOTS,
    STACK_WIDTH,
    STACKS,
    STATE_MASK,
    STATE_SLOTS,
    STATE_WIDTH,
    STATES,
    T_MAX,
    T_NODES,
    TEXT_WIDTH,
    TEXTS,
    THIS,
    TRANSITION,
    TRIES,
)
from .state_kernels import rehash_states

END = 1  # the state in which the text is complete and cannot go on
ENDLESS = 1 << 60


@kernel
def open_memory(
    memory: Any,
    shared: Any,
    transition: Any,
    network: Any,
    byte_sets: Any,
    texts: Any,
    stacks: Any,
    stack_slots: Any,
    states: Any,
    state_slots: Any,
    pool: Any,
    segments: Any,
    rows: Any,
    max_rows: Any,
) -> Any:
    """Puts all addresses and first numbers into the memory; makes the dead state, END, and the state to start from.

    Args:
        memory: int64[MEMORY_SIZE + ..]; SCRATCH lies behind it.
        shared: int64[MEMORY_SIZE], what depends on the vocabulary.
        transition: the address of `automaton_kernels.transition`.
        network: `Network.data`; the other arrays as the memory calls them; rows: the first segment.
        max_rows: how many there may be.

    Returns:
        The state to start from; below zero: help is needed to make it.
    """
    for index in range(MEMORY_SIZE):
        memory[index] = shared[index]
    memory[TRANSITION] = transition
    memory[THIS] = memory.ctypes.data
    memory[SCRATCH] = memory[MEMORY_SIZE:].ctypes.data
    base = network.ctypes.data
    memory[KIND], memory[ARG] = base + 4 * network[N_KIND], base + 4 * network[N_ARG]
    memory[NEXT], memory[COST] = base + 4 * network[N_NEXT], base + 4 * network[N_COST]
    memory[OPTIONS], memory[LOOPS] = base + 4 * network[N_OPTIONS], base + 4 * network[N_LOOPS]
    memory[SETS], memory[MEMBERS] = base + 4 * network[N_SETS], base + 4 * network[N_MEMBERS]
    memory[TRIES], memory[EDGES] = base + 4 * network[N_TRIES], base + 4 * network[N_EDGES]
    memory[LISTS], memory[BYTE_SETS], memory[TEXTS] = (
        base + 4 * network[N_LISTS],
        byte_sets.ctypes.data,
        texts.ctypes.data,
    )
    memory[STACKS], memory[STACK_SLOTS] = stacks.ctypes.data, stack_slots.ctypes.data
    memory[STATES], memory[STATE_SLOTS] = states.ctypes.data, state_slots.ctypes.data
    memory[POOL], memory[ROWS], segments[0] = pool.ctypes.data, segments.ctypes.data, rows.ctypes.data
    memory[ALLOWANCE] = ENDLESS
    for loop in range(network[N_LOOPS], network[N_LOOPS + 1], 4):
        memory[HAS_COUNTS] |= network[loop + 2] != 0  # the maximum; without loops there is room for one
    for text in range(0, texts.shape[0], TEXT_WIDTH):
        memory[HAS_COUNTS] |= texts[text + T_NODES] > 0 and texts[text + T_MAX] >= 0
    memory[NUM_STACKS], memory[NUM_STATES] = 1, END + 1
    memory[CAP_STACKS], memory[STACK_MASK] = stacks.shape[0] // STACK_WIDTH, stack_slots.shape[0] - 1
    memory[CAP_STATES], memory[STATE_MASK] = states.shape[0] // STATE_WIDTH, state_slots.shape[0] - 1
    memory[CAP_POOL], memory[CAP_ROWS], memory[MAX_ROWS] = pool.shape[0], SEGMENT_ROWS, max_rows
    states[S_COST], states[S_ROW], states[S_BYTE] = NEVER, NO_ROW, -1
    end = END * STATE_WIDTH
    states[end + S_ACCEPTS], states[end + S_ROW], states[end + S_BYTE] = 1, NO_ROW, -1
    rehash_states(memory, state_slots)
    return call(memory[TRANSITION], memory[THIS], ENTER, np.int64(network[N_START]), np.int64(0))
