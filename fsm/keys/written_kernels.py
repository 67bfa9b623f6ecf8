"""Compiled: what a token does to the keys of the objects that are open, and the tokens below a path of the trie."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..automaton.automaton_kernels import step
from ..compiled import inner_kernel, kernel
from ..masks.budget_kernels import nearing_bytes
from ..memory import (
    ARG,
    F_COUNT,
    IN_KEY,
    K_TEXT,
    KIND,
    POOL,
    S_ACCEPTS,
    S_BYTE,
    S_COST,
    S_KEY,
    S_OFFSET,
    S_SIZE,
    STACK_BITS,
    STACK_ID_MASK,
    STACK_WIDTH,
    STACKS,
    STATE_WIDTH,
    STATES,
    SUB_MASK,
    T_ACCEPTS,
    T_IS_KEY,
    T_NODES,
    TEXT_WIDTH,
    TEXTS,
    TOKEN_BYTES,
    TOKEN_OFFSETS,
    TRIE_BYTES,
    TRIE_ENDS,
    TRIE_ROOTS,
    WHOLE,
    i32,
    i64,
    u8,
)
from ..text.counted_kernels import counted_step
from ..text.text_kernels import clear_tokens

UNKNOWN, OUTSIDE, IN_STRING, ESCAPE = range(4)  # where a reader of JSON stands; UNKNOWN: nobody has to know yet
OPENS, CLOSES, KEY_ENDS = range(3)
QUOTE, BACKSLASH, LEFT_BRACE, RIGHT_BRACE = 0x22, 0x5C, 0x7B, 0x7D


@inner_kernel
def _ends_key(memory: Any, state: Any) -> Any:
    """Whether a quote ends a key that has to be remembered; the state stands in one."""
    states, pool, stacks = i32(memory[STATES]), i64(memory[POOL]), i32(memory[STACKS])
    kinds, args = i32(memory[KIND]), i32(memory[ARG])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        key = pool[i]
        node = key >> 43
        if kinds[node] != K_TEXT:
            continue
        text = i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))
        if not text[T_IS_KEY]:
            continue
        count = np.int64(stacks[(key & STACK_ID_MASK) * STACK_WIDTH + F_COUNT])
        after = np.int64(counted_step(text, (key >> STACK_BITS) & SUB_MASK, np.int64(QUOTE), count))
        if after and after % text[T_NODES] == 0 and u8(text[T_ACCEPTS])[after // text[T_NODES]]:
            return True
    return False


@kernel
def follow(memory: Any, state: Any, data: Any, mode: Any, events: Any) -> Any:
    """The state after some bytes, and what happens on the way.

    Args:
        data: uint8[n].
        mode: where a reader stands before them. From UNKNOWN on, nothing is told before the first key ends.
        events: int32[3 * n], filled with (OPENS | CLOSES, 0, 0) for braces, and with (KEY_ENDS, where its text begins
            within the bytes, or -1 if that is before them, where it ends) for keys that have to be remembered.

    Returns:
        (state; 0: refused; below zero: help is needed; mode behind the bytes; number of events; where the text of the
        key in which they end begins, or -1).
    """
    states = i32(memory[STATES])
    count, begin = 0, -1
    for position in range(data.shape[0]):
        byte, before = np.int64(data[position]), state
        state = np.int64(step(memory, state, byte))
        if state <= 0:
            return state, mode, count, begin
        was_in_key = states[before * STATE_WIDTH + S_KEY] == IN_KEY
        is_in_key = states[state * STATE_WIDTH + S_KEY] == IN_KEY
        if is_in_key and not was_in_key:
            begin = position + 1
        if was_in_key and byte == QUOTE and mode != ESCAPE and not is_in_key and _ends_key(memory, before):
            events[3 * count], events[3 * count + 1], events[3 * count + 2] = KEY_ENDS, begin, position
            count += 1
            mode = OUTSIDE
        elif mode == OUTSIDE:
            if byte == QUOTE:
                mode = IN_STRING
            elif byte in (LEFT_BRACE, RIGHT_BRACE):
                events[3 * count] = OPENS if byte == LEFT_BRACE else CLOSES
                count += 1
        elif mode == IN_STRING:
            if byte == QUOTE:
                mode = OUTSIDE
            elif byte == BACKSLASH:
                mode = ESCAPE
        elif mode == ESCAPE:
            mode = IN_STRING
    return state, mode, count, begin


@kernel
def advance_without_key(memory: Any, state: Any, token: Any) -> Any:
    """As `automaton_kernels.advance`, but -1 where a key ends that has to be remembered, or help is needed."""
    data, offsets, states = u8(memory[TOKEN_BYTES]), i32(memory[TOKEN_OFFSETS]), i32(memory[STATES])
    if offsets[token] == offsets[token + 1]:
        return 0
    for position in range(offsets[token], offsets[token + 1]):
        byte, before = np.int64(data[position]), state
        state = np.int64(step(memory, state, byte))
        if state <= 0:
            return max(state, np.int64(-1))
        if byte == QUOTE and states[before * STATE_WIDTH + S_KEY] == IN_KEY and _ends_key(memory, before):
            return np.int64(-1)
    return state


@kernel
def clear_below(memory: Any, path: Any, bits: Any) -> None:
    """Clears the bits of all tokens that begin with some bytes (uint8, at least one)."""
    data, ends = u8(memory[WHOLE + TRIE_BYTES]), i32(memory[WHOLE + TRIE_ENDS])
    node = np.int64(i32(memory[WHOLE + TRIE_ROOTS])[path[0]])
    for index in range(1, path.shape[0]):
        if node < 0:
            return
        end = np.int64(ends[node])
        node += 1
        while node < end and data[node] != path[index]:
            node = np.int64(ends[node])
        if node >= end:
            return
    if node >= 0:
        clear_tokens(memory, WHOLE, node, np.int64(ends[node]), bits)


@kernel
def keys_to_go(memory: Any, state: Any, flags: Any) -> Any:
    """How many keys that have to be remembered end on a shortest completion; below zero: help is needed.

    It is the same completion from every state on it. flags: uint8[256], scratch.
    """
    states = i32(memory[STATES])
    count = np.int64(0)
    while not states[state * STATE_WIDTH + S_ACCEPTS]:
        at = state * STATE_WIDTH
        byte, target = np.int64(states[at + S_BYTE]), np.int64(0)
        if byte >= 0:
            target = np.int64(step(memory, state, byte))
        else:
            nearing_bytes(memory, state, flags)
            for turn in range(0x20, 0x120):  # printable ones first
                byte = np.int64(turn & 0xFF)
                if flags[byte]:
                    target = np.int64(step(memory, state, byte))
                    if target < 0 or (target > 0 and states[target * STATE_WIDTH + S_COST] < states[at + S_COST]):
                        break
        if target < 0:
            return target
        is_in_key = states[target * STATE_WIDTH + S_KEY] == IN_KEY
        if states[at + S_KEY] == IN_KEY and byte == QUOTE and not is_in_key and _ends_key(memory, state):
            count += 1
        if states[target * STATE_WIDTH + S_COST] >= states[at + S_COST]:
            return count  # what is left is not known byte by byte
        state = target
    return count
