"""Compiled: what a token does to the keys of the objects that are open, and the tokens below a path of the trie.

The *mode* tells where a reader of JSON stands: it decides whether a brace begins an object or is a character of a
string. While keys are remembered every state has one mode, whatever was read before it, since what may follow is the
same: of two modes that differ by more than an escape only one can end well, the number of quotes being even. So it is
noted in the record of the state, by those who first come there with keys, and neither texts nor cursors carry it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..automaton.automaton_kernels import step
from ..compiled import inner_kernel, kernel
from ..masks.nearing_kernels import first_nearing_byte, nearing_bytes
from ..memory import (
    A_KEY,
    ARG,
    CAP_STATES,
    F_COUNT,
    IN_KEY,
    K_TEXT,
    KIND,
    NODE_SHIFT,
    PLACE_BITS,
    PLACE_MASK,
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
    TRIE_TOKENS,
    WHOLE,
    i32,
    i64,
    u8,
)
from ..text.counted_kernels import counted_step
from ..text.text_kernels import clear_tokens

UNKNOWN, OUTSIDE, IN_STRING, ESCAPE = range(4)  # modes: where a reader of JSON stands
NOTHING, OPENS, CLOSES, KEY_ENDS, ITEM_ENDS = range(5)
QUOTE, BACKSLASH = 0x22, 0x5C
NEED_WAY, NEED_KNOWN = -32, -33
LEFT_BRACE, RIGHT_BRACE, LEFT_BRACKET, RIGHT_BRACKET = 0x7B, 0x7D, 0x5B, 0x5D


@inner_kernel
def _ends_key(memory: Any, state: Any) -> Any:
    """A_KEY or AN_ITEM if a quote ends one that has to be remembered, or 0; the state stands in one."""
    states, pool, stacks = i32(memory[STATES]), i64(memory[POOL]), i32(memory[STACKS])
    kinds, args = i32(memory[KIND]), i32(memory[ARG])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        key = pool[i]
        node = key >> NODE_SHIFT
        if kinds[node] != K_TEXT:
            continue
        text = i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))
        if not text[T_IS_KEY]:
            continue
        count = np.int64(stacks[(key & STACK_ID_MASK) * STACK_WIDTH + F_COUNT])
        after = np.int64(counted_step(text, (key >> STACK_BITS) & SUB_MASK, np.int64(QUOTE), count))
        if after and after % text[T_NODES] == 0 and u8(text[T_ACCEPTS])[after // text[T_NODES]]:
            return text[T_IS_KEY]
    return np.int64(0)


@inner_kernel
def _is_in_key(memory: Any, state: Any) -> Any:
    return i32(memory[STATES])[state * STATE_WIDTH + S_KEY] & PLACE_MASK == IN_KEY


@inner_kernel
def _mode(memory: Any, state: Any) -> Any:
    """Where a reader of JSON stands there, if that has been noted."""
    return np.int64(i32(memory[STATES])[state * STATE_WIDTH + S_KEY] >> PLACE_BITS)


@inner_kernel
def _read(memory: Any, before: Any, byte: Any, mode: Any) -> Any:
    """The state behind a byte, the mode there, which is noted, and what has happened; a state below 1 as in `step`."""
    state, event = np.int64(step(memory, before, byte)), NOTHING
    if state <= 0:
        return state, mode, event
    is_key_end = byte == QUOTE and mode != ESCAPE and _is_in_key(memory, before) and not _is_in_key(memory, state)
    if is_key_end:
        kind = _ends_key(memory, before)
        if kind != 0:
            mode, event = IN_STRING, KEY_ENDS if kind == A_KEY else ITEM_ENDS  # whatever was known: a string ends
    if mode == OUTSIDE:
        if byte == QUOTE:
            mode = IN_STRING
        elif byte in (LEFT_BRACE, LEFT_BRACKET):
            event = OPENS
        elif byte in (RIGHT_BRACE, RIGHT_BRACKET):
            event = CLOSES
    elif mode == IN_STRING:
        if byte == QUOTE:
            mode = OUTSIDE
        elif byte == BACKSLASH:
            mode = ESCAPE
    elif mode == ESCAPE:
        mode = IN_STRING
    if mode != UNKNOWN:
        at = state * STATE_WIDTH + S_KEY
        states = i32(memory[STATES])
        states[at] = states[at] & PLACE_MASK | mode << PLACE_BITS
    return state, mode, event


@kernel
def follow(memory: Any, state: Any, data: Any, has_keys: Any, events: Any) -> Any:
    """The state after some bytes, and what happens on the way.

    Args:
        data: uint8[n].
        has_keys: whether keys are remembered before them. If not, nothing else is told before the first key ends.
        events: int32[3 * n], filled with (OPENS | CLOSES, 0, 0) for braces and brackets, and with (KEY_ENDS or
            ITEM_ENDS, where its text begins within the bytes, or -1 if that is before them, where it ends) for those
            that have to be remembered.

    Returns:
        (state; 0: refused; below zero: help is needed; number of events; where the text of the key in which they end
        begins, or -1).
    """
    mode = _mode(memory, state) if has_keys else np.int64(UNKNOWN)
    count, begin = 0, -1
    for position in range(data.shape[0]):
        was_in_key = _is_in_key(memory, state)
        state, mode, event = _read(memory, state, np.int64(data[position]), mode)
        if state <= 0:
            break
        if _is_in_key(memory, state) and not was_in_key:
            begin = position + 1
        if event != NOTHING:
            events[3 * count] = event
            if event in (KEY_ENDS, ITEM_ENDS):
                events[3 * count + 1], events[3 * count + 2] = begin, position
            count += 1
    return state, count, begin


@inner_kernel
def _advance(memory: Any, state: Any, token: Any, mode: Any) -> Any:
    """As `automaton_kernels.advance`, but -1 where something happens, or help is needed."""
    data, offsets = u8(memory[TOKEN_BYTES]), i32(memory[TOKEN_OFFSETS])
    if offsets[token] == offsets[token + 1]:
        return np.int64(0)
    for position in range(offsets[token], offsets[token + 1]):
        state, mode, event = _read(memory, state, np.int64(data[position]), mode)
        if state <= 0:
            return max(state, np.int64(-1))
        if event != NOTHING:
            return np.int64(-1)
    return state


@kernel
def advance_without_keys(memory: Any, state: Any, token: Any) -> Any:
    """The state after a token while no key is remembered; 0: refused. -1 where a key ends, or help is needed."""
    return _advance(memory, state, token, np.int64(UNKNOWN))


@kernel
def advance_with_keys(memory: Any, state: Any, token: Any) -> Any:
    """As `advance_without_keys` while keys are remembered: -1 also where an object begins or ends."""
    return _advance(memory, state, token, _mode(memory, state))


@kernel
def note_string(memory: Any, state: Any) -> None:
    """Notes that a reader of JSON stands inside a string there."""
    at, states = state * STATE_WIDTH + S_KEY, i32(memory[STATES])
    states[at] = states[at] & PLACE_MASK | IN_STRING << PLACE_BITS


@kernel
def is_in_string(memory: Any, state: Any) -> Any:
    """Whether a text that stands there is inside a string, keys being remembered."""
    return _mode(memory, state) == IN_STRING


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


@inner_kernel
def step_nearer(memory: Any, state: Any, flags: Any) -> Any:
    """The byte with which a shortest completion goes on from a state, and the state behind it.

    It is the same completion from every state on it. The state is below zero if help is needed; its cost is not less
    where what is left is not known byte by byte. flags: uint8[256], scratch.
    """
    states, at = i32(memory[STATES]), state * STATE_WIDTH
    byte, target = np.int64(states[at + S_BYTE]), np.int64(0)
    if byte >= 0:
        return byte, np.int64(step(memory, state, byte))
    byte = np.int64(first_nearing_byte(memory, state, flags))  # nearly always it is this one
    target = np.int64(step(memory, state, byte))
    if target < 0 or (target > 0 and i32(memory[STATES])[target * STATE_WIDTH + S_COST] < states[at + S_COST]):
        return byte, target
    nearing_bytes(memory, state, flags)
    for turn in range(0x20, 0x120):  # printable ones first
        byte = np.int64(turn & 0xFF)
        if flags[byte]:
            target = np.int64(step(memory, state, byte))
            if target < 0 or (target > 0 and states[target * STATE_WIDTH + S_COST] < states[at + S_COST]):
                break
    return byte, target


@kernel
def find_way(memory: Any, state: Any, flags: Any, known: Any, way: Any) -> Any:
    """One shortest completion, by the first byte that leads nearer from each state; below zero: help is needed.

    Returns the state at its end: one that accepts, one that is known, or 0 if what is left is not known byte by byte.

    Args:
        flags: uint8[256], scratch.
        known: int32[CAP_STATES], below zero for the states that the way goes through. `NEED_KNOWN`: it is too short,
            since another thread has made room for more states.
        way: int64[n], what has been found until help was needed: the number of its states, the state that comes next,
            and of each state number << 9 | the byte that follows << 1 | 1 if with it a key ends that has to be
            remembered. Empty at first; `NEED_WAY`: it has to be longer.
    """
    if known.shape[0] < memory[CAP_STATES]:
        return np.int64(NEED_KNOWN)
    length, states, width = way[0], i32(memory[STATES]), np.int64(STATE_WIDTH)
    if length:
        state = way[1]
    while known[state] < 0 and not states[state * width + S_ACCEPTS]:
        way[0], way[1] = length, state
        if length + 2 == way.shape[0]:
            return np.int64(NEED_WAY)
        byte, target = step_nearer(memory, state, flags)
        if target < 0:
            return target
        ends = byte == QUOTE and _is_in_key(memory, state) and not _is_in_key(memory, target)
        way[length + 2] = state << 9 | np.int64(byte) << 1 | (ends and _ends_key(memory, state) != 0)
        length += 1
        if states[target * width + S_COST] >= states[state * width + S_COST]:
            state = np.int64(0)
            break
        state = target
    way[0] = length
    return np.int64(state)


@kernel
def count_keys(way: Any, end: Any, num_keys: Any) -> None:
    """Notes how many keys are still to end from each state of a way."""
    count = max(np.int64(num_keys[end]), np.int64(0))
    for index in range(way[0] - 1, -1, -1):
        count += way[index + 2] & 1
        num_keys[way[index + 2] >> 9] = count


@kernel
def count_tokens(memory: Any, way: Any, end: Any, bounds: Any, num_tokens: Any) -> None:
    """Notes how many tokens spell what is left of a way from each of its states; no less than bounds[i], of the i-th.

    Some token leads from each state to one of a lower number.
    """
    data, ends = u8(memory[WHOLE + TRIE_BYTES]), i32(memory[WHOLE + TRIE_ENDS])
    tokens, roots, states = i32(memory[WHOLE + TRIE_TOKENS]), i32(memory[WHOLE + TRIE_ROOTS]), i32(memory[STATES])
    length = way[0]
    for first in range(length - 1, -1, -1):
        here = way[first + 2] >> 9
        best = np.int64(states[here * STATE_WIDTH + S_COST])  # as many bytes
        node, index = np.int64(roots[way[first + 2] >> 1 & 255]), np.int64(first)
        while node >= 0:
            index += 1
            behind = way[index + 2] >> 9 if index < length else np.int64(end)
            if tokens[node] >= 0 and behind:
                best = min(best, 1 + max(np.int64(num_tokens[behind]), np.int64(0)))
            if index == length:
                break
            byte, last = way[index + 2] >> 1 & 255, np.int64(ends[node])
            node += 1
            while node < last and data[node] != byte:
                node = np.int64(ends[node])
            if node >= last:
                node = np.int64(-1)
        num_tokens[here] = max(best, np.int64(bounds[first]))
