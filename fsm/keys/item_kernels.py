"""Compiled: what some bytes do to the lists whose items must differ, and where a value can go on without end.

Outside of such lists (UNKNOWN) nothing is known of the text but the states, which say where one opens; it need not even
be JSON. Inside, a reader of JSON goes along, as in `written_kernels`, and is told of every bracket outside of strings,
and of the commas behind the items of such a list.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..automaton.automaton_kernels import step
from ..automaton.state_kernels import intern
from ..compiled import inner_kernel, kernel
from ..memory import (
    ARG,
    BYTE_SETS,
    FOUND,
    K_BYTE,
    K_BYTES,
    K_CALL,
    K_LOOP,
    K_SET,
    K_SPLIT,
    K_TEXT,
    KIND,
    NEVER,
    NODE_SHIFT,
    PLACE_BITS,
    PLACE_MASK,
    POOL,
    S_ACCEPTS,
    S_COST,
    S_KEY,
    S_OFFSET,
    S_SIZE,
    STATE_WIDTH,
    STATES,
    TOKEN_BYTES,
    TOKEN_OFFSETS,
    i32,
    i64,
    u8,
    u64,
)
from ..network.expression import ENDS_ITEM, OPENS_LIST
from .written_kernels import (
    BACKSLASH,
    ESCAPE,
    IN_STRING,
    LEFT_BRACE,
    LEFT_BRACKET,
    OUTSIDE,
    QUOTE,
    RIGHT_BRACE,
    RIGHT_BRACKET,
    UNKNOWN,
    step_nearer,
)

NOTHING, LIST_OPENS, OPENS, CLOSES, ITEM_ENDS, LIST_ENDS = range(6)
NO_END, ENDS_LAST, ENDS_ONE, ENDS_MORE = range(4)
COMMA = 0x2C


@inner_kernel
def _has_role(memory: Any, roles: Any, state: Any, byte: Any, role: Any) -> Any:
    """Whether a byte is read in some reading as one with a role."""
    states, pool = i32(memory[STATES]), i64(memory[POOL])
    kinds, args = i32(memory[KIND]), i32(memory[ARG])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        node = pool[i] >> NODE_SHIFT
        if kinds[node] == K_BYTES and roles[args[node]] & role:
            word = u64(memory[BYTE_SETS])[args[node] * 4 + (byte >> 6)]
            if (word >> np.uint64(byte & 63)) & np.uint64(1):
                return True
    return False


@inner_kernel
def _read(memory: Any, roles: Any, state: Any, byte: Any, mode: Any) -> Any:
    """What a byte does, and the mode behind it."""
    if mode == UNKNOWN:
        if byte == LEFT_BRACKET and _has_role(memory, roles, state, byte, OPENS_LIST):
            return LIST_OPENS, OUTSIDE
    elif mode == OUTSIDE:
        if byte == QUOTE:
            return NOTHING, IN_STRING
        if byte == LEFT_BRACKET:
            return LIST_OPENS if _has_role(memory, roles, state, byte, OPENS_LIST) else OPENS, OUTSIDE
        if byte == LEFT_BRACE:
            return OPENS, OUTSIDE
        if byte == RIGHT_BRACKET:
            return LIST_ENDS if _has_role(memory, roles, state, byte, ENDS_ITEM) else CLOSES, OUTSIDE
        if byte == RIGHT_BRACE:
            return CLOSES, OUTSIDE
        if byte == COMMA and _has_role(memory, roles, state, byte, ENDS_ITEM):
            return ITEM_ENDS, OUTSIDE
    elif mode == IN_STRING:
        if byte == QUOTE:
            return NOTHING, OUTSIDE
        if byte == BACKSLASH:
            return NOTHING, ESCAPE
    else:
        return NOTHING, IN_STRING
    return NOTHING, mode


@kernel
def scan(memory: Any, roles: Any, state: Any, data: Any, mode: Any, events: Any) -> Any:
    """The state after some bytes, and what happens on the way.

    Args:
        roles: uint8[num_sets], of the network's byte sets.
        data: uint8[n].
        mode: where a reader of JSON stands; UNKNOWN: not in a list whose items must differ.
        events: int32[3 * n], filled with (what happens, position of the byte, state before it).

    Returns:
        (state; 0: refused; below zero: help is needed; mode; number of events).
    """
    count = 0
    for position in range(data.shape[0]):
        byte = np.int64(data[position])
        event, mode = _read(memory, roles, state, byte, mode)
        if event != NOTHING:
            events[3 * count], events[3 * count + 1], events[3 * count + 2] = event, position, state
            count += 1
        state = np.int64(step(memory, state, byte))
        if state <= 0:
            break
    return state, mode, count


@kernel
def ending_tokens(memory: Any, roles: Any, state: Any, mode: Any, ids: Any, flags: Any) -> Any:
    """Tells for each of some tokens which items it ends; 0, or below zero: help is needed.

    Args:
        ids: int32[n], tokens that may follow.
        flags: uint8[n], zeros; filled with NO_END, and ENDS_LAST (the last one of a list, and no list opens behind it),
            ENDS_ONE (another one), ENDS_MORE (or it is not plain).
    """
    data, offsets = u8(memory[TOKEN_BYTES]), i32(memory[TOKEN_OFFSETS])
    for index in range(ids.shape[0]):
        here, reading = state, mode
        for position in range(offsets[ids[index]], offsets[ids[index] + 1]):
            byte = np.int64(data[position])
            event, reading = _read(memory, roles, here, byte, reading)
            if flags[index] and (
                event in (ITEM_ENDS, LIST_ENDS) or (flags[index] == ENDS_LAST and byte == LEFT_BRACKET)
            ):
                flags[index] = ENDS_MORE
                break
            if event == ITEM_ENDS:
                flags[index] = ENDS_ONE
            elif event == LIST_ENDS:
                flags[index] = ENDS_LAST
            here = np.int64(step(memory, here, byte))
            if here < 0:
                return here
            if here == 0:
                break
    return np.int64(0)


@kernel
def items_to_go(memory: Any, roles: Any, state: Any, flags: Any) -> Any:
    """How many further items a shortest completion writes in lists that must have several; as `count_keys`."""
    states = i32(memory[STATES])
    count = np.int64(0)
    while not states[state * STATE_WIDTH + S_ACCEPTS]:
        at = state * STATE_WIDTH
        byte, target = step_nearer(memory, state, flags)
        if target < 0:
            return target
        if byte == COMMA and _has_role(memory, roles, state, byte, ENDS_ITEM):
            count += 1
        if states[target * STATE_WIDTH + S_COST] >= states[at + S_COST]:
            return count  # what is left is not known byte by byte
        state = target
    return count


@kernel
def without_ends(memory: Any, roles: Any, state: Any) -> Any:
    """The state without its configurations at the end of an item, not accepting; 0 if none is left."""
    states, pool, found = i32(memory[STATES]), i64(memory[POOL]), i64(memory[FOUND])
    kinds, args = i32(memory[KIND]), i32(memory[ARG])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    size = np.int64(0)
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        node = pool[i] >> NODE_SHIFT
        if kinds[node] != K_BYTES or not roles[args[node]] & ENDS_ITEM:
            found[size] = pool[i]
            size += 1
    return np.int64(intern(memory, size, np.int64(0)))


@kernel
def note_mode(memory: Any, state: Any, mode: Any) -> None:
    """Notes where a reader of JSON stands in a state, for who remembers keys (`written_kernels`)."""
    at, states = state * STATE_WIDTH + S_KEY, i32(memory[STATES])
    states[at] = states[at] & PLACE_MASK | mode << PLACE_BITS


@kernel
def find_endless(
    kinds: Any, args: Any, nexts: Any, costs: Any, options: Any, loops: Any, roles: Any, texts: Any
) -> Any:
    """uint8[num_nodes]: whether, from a node to the end of its rule or of its item, some text has no end of texts.

    Members in any order do not count.

    Args:
        texts: uint8[num_texts], which have none.
    """
    found = np.zeros(kinds.shape[0], np.uint8)
    is_growing = True
    while is_growing:
        is_growing = False
        for node in range(kinds.shape[0]):
            if found[node] or costs[node] >= NEVER:
                continue
            kind, arg, has = kinds[node], args[node], False
            if kind == K_SPLIT:
                for index in range(arg, arg + nexts[node]):
                    has = has or found[options[index]]
            elif kind == K_BYTE:
                has = found[nexts[node]]
            elif kind == K_BYTES:
                has = not roles[arg] & ENDS_ITEM and found[nexts[node]]
            elif kind == K_TEXT:
                has = texts[arg] or found[nexts[node]]
            elif kind == K_CALL:
                has = found[arg] or found[nexts[node]]
            elif kind == K_LOOP:
                has = found[loops[arg * 4]] or found[nexts[node]]
            elif kind == K_SET:
                has = found[nexts[node]]
            if has:
                found[node] = 1
                is_growing = True
    return found
