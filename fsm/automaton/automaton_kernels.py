"""The compiled heart of the automaton: from a state and a byte to the next state, and what may follow a state.

Steps are remembered in rows of 256 targets, made for the states from which somebody has gone on. There are at most
MAX_ROWS of them: then the oldest gives way to the newest, so nobody holds the index of a row across a `step`. Results
below zero ask for help, as in `closure_kernels`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import call, inner_kernel, kernel
from ..memory import (
    AFTER_TEXT,
    ALLOWANCE,
    ARG,
    BYTE_SETS,
    CAP_ROWS,
    ENTER,
    F_COUNT,
    F_PARENT,
    FOUND,
    K_BYTE,
    K_BYTES,
    K_KEY,
    K_TEXT,
    KIND,
    MAX_ROWS,
    NEED_SPACE,
    NEVER_A_ROW,
    NEXT,
    NEXT_ROW,
    NO_ROW,
    NODE_SHIFT,
    NUM_FORGOTTEN,
    NUM_ROWS,
    OUT_OF_WORK,
    POOL,
    READ,
    ROW_OWNER,
    ROWS,
    S_ACCEPTS,
    S_BYTE,
    S_NEXT,
    S_OFFSET,
    S_ROW,
    S_SIZE,
    STACK_BITS,
    STACK_ID_MASK,
    STACK_WIDTH,
    STACKS,
    STATE_WIDTH,
    STATES,
    SUB_MASK,
    T_IS_KEY,
    T_MAX,
    T_NODES,
    TEXT_WIDTH,
    TEXTS,
    THIS,
    TOKEN_BYTES,
    TOKEN_OFFSETS,
    TRANSITION,
    UNBOUNDED,
    i32,
    i64,
    row_at,
    u8,
    u64,
)
from ..network.key_kernels import key_step, mark_live_keys
from ..network.stack_kernels import push_count
from ..text.counted_kernels import counted_step, next_count
from .closure_kernels import close, enter_member, forget_visits, visit
from .state_kernels import intern

PLACE_WIDTH = 6  # numbers for each of `text_groups`


@inner_kernel
def _compute(memory: Any, state: Any, byte: Any) -> Any:
    """The state after a byte, from the configurations."""
    states, pool = i32(memory[STATES]), i64(memory[POOL])
    kinds, args, nexts = i32(memory[KIND]), i32(memory[ARG]), i32(memory[NEXT])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    forget_visits(memory)
    num_work = np.int64(0)
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        key = pool[i]
        node, stack = key >> NODE_SHIFT, key & STACK_ID_MASK
        if kinds[node] == K_BYTE:
            if args[node] != byte:
                continue
            key = np.int64(nexts[node]) << NODE_SHIFT | stack
        elif kinds[node] == K_BYTES:
            word = u64(memory[BYTE_SETS])[args[node] * 4 + (byte >> 6)]
            if not (word >> np.uint64(byte & 63)) & np.uint64(1):
                continue
            key = np.int64(nexts[node]) << NODE_SHIFT | stack
        elif kinds[node] == K_KEY:
            row, place = np.int64(args[node]), ((key >> STACK_BITS) & SUB_MASK) - 1
            target = key_step(memory, row, stack, place, byte)
            if target == UNBOUNDED:
                continue
            if target < 0:
                num_work = enter_member(memory, row, stack, ~target, num_work)
                if num_work < 0:
                    return num_work
                continue
            key = node << NODE_SHIFT | (target + 1) << STACK_BITS | stack
        else:
            text = i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))
            count = np.int64(i32(memory[STACKS])[stack * STACK_WIDTH + F_COUNT])
            sub = counted_step(text, (key >> STACK_BITS) & SUB_MASK, byte, count)
            if sub == 0:
                continue
            if text[T_MAX] >= 0 and sub % text[T_NODES] == 0:
                outer = np.int64(i32(memory[STACKS])[stack * STACK_WIDTH + F_PARENT])
                stack = push_count(memory, node, next_count(text, count), outer)
                if stack < 0:
                    return stack
            key = node << NODE_SHIFT | sub << STACK_BITS | stack
        num_work = visit(memory, key, num_work)
        if num_work < 0:
            return num_work
    return close(memory, num_work)


@inner_kernel
def _enter(memory: Any, node: Any, stack: Any) -> Any:
    """The state in which exactly the position `node` with `stack` has been reached."""
    forget_visits(memory)
    return close(memory, visit(memory, node << NODE_SHIFT | stack, np.int64(0)))


@inner_kernel
def _without_texts(memory: Any, state: Any, what: Any) -> Any:
    """The state of the same configurations except those inside texts; never accepting.

    Args:
        what: 0: all texts; else those only whose T_IS_KEY it is.
    """
    states, pool, kinds, args = i32(memory[STATES]), i64(memory[POOL]), i32(memory[KIND]), i32(memory[ARG])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    found = i64(memory[FOUND])
    size = np.int64(0)
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        node = pool[i] >> NODE_SHIFT
        if kinds[node] != K_TEXT or (what and i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))[T_IS_KEY] != what):
            found[size] = pool[i]
            size += 1
    return intern(memory, size, np.int64(0))


@inner_kernel
def _after_text(memory: Any, state: Any, index: Any) -> Any:
    """The state in which the text of a configuration has ended, in all configurations that stand alike in it."""
    pool, kinds, args, nexts = i64(memory[POOL]), i32(memory[KIND]), i32(memory[ARG]), i32(memory[NEXT])
    states, stacks = i32(memory[STATES]), i32(memory[STACKS])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    same = pool[offset + index]
    table = args[same >> NODE_SHIFT]
    is_counted = i64(memory[TEXTS] + table * (TEXT_WIDTH * 8))[T_MAX] >= 0
    count = stacks[(same & STACK_ID_MASK) * STACK_WIDTH + F_COUNT]
    forget_visits(memory)
    num_work = np.int64(0)
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        key = pool[i]
        node, stack = key >> NODE_SHIFT, key & STACK_ID_MASK
        if kinds[node] != K_TEXT or args[node] != table or ((key ^ same) >> STACK_BITS) & SUB_MASK:
            continue
        if is_counted:
            if stacks[stack * STACK_WIDTH + F_COUNT] != count:
                continue
            stack = np.int64(stacks[stack * STACK_WIDTH + F_PARENT])
        num_work = visit(memory, np.int64(nexts[node]) << NODE_SHIFT | stack, num_work)
        if num_work < 0:
            return num_work
    return close(memory, num_work)


def transition(address: Any, verb: Any, state: Any, what: Any) -> Any:
    """Everything that may make new states, behind one address (see `compiled.callback_address`).

    READ: the state after the byte `what`. ENTER: the state in which exactly the node `state` with the stack `what`
    has been reached. WITHOUT_TEXTS: `_without_texts`. AFTER_TEXT: `_after_text`.
    """
    memory = i64(address)
    if verb == READ:
        if memory[ALLOWANCE] < 0:
            return OUT_OF_WORK
        target = _compute(memory, state, what)
        if target >= 0:
            memory[ALLOWANCE] -= 1 + i32(memory[STATES])[state * STATE_WIDTH + S_SIZE]
        return target
    if verb == ENTER:
        return _enter(memory, state, what)
    if verb == AFTER_TEXT:
        return _after_text(memory, state, what)
    return _without_texts(memory, state, what)


@kernel
def ask(memory: Any, verb: Any, state: Any, what: Any) -> Any:
    """`transition` for callers in Python."""
    return call(memory[TRANSITION], memory[THIS], verb, state, what)


@inner_kernel
def _row_of(memory: Any, state: Any) -> Any:
    """The row of a state, made if it has none; entries -1 are not known yet."""
    states = i32(memory[STATES])
    row = np.int64(states[state * STATE_WIDTH + S_ROW])
    if row < 0:
        segments = i64(memory[ROWS])
        row = memory[NUM_ROWS]
        if row < memory[CAP_ROWS]:
            memory[NUM_ROWS] = row + 1
        elif row < memory[MAX_ROWS]:
            return NEED_SPACE
        else:
            row = memory[NEXT_ROW]
            memory[NEXT_ROW] = row + 1 if row + 1 < memory[NUM_ROWS] else 0
            memory[NUM_FORGOTTEN] += 1
            states[row_at(segments, row)[ROW_OWNER] * STATE_WIDTH + S_ROW] = NO_ROW
        states[state * STATE_WIDTH + S_ROW] = row
        targets = row_at(segments, row)
        for byte in range(256):
            targets[byte] = -1
        targets[ROW_OWNER] = state
    return row


@kernel
def keep_rows(memory: Any, count: Any) -> None:
    """Forgets all but the first `count` rows, which become all the room; there must be room for as many."""
    states, segments = i32(memory[STATES]), i64(memory[ROWS])
    for row in range(count, memory[NUM_ROWS]):
        states[row_at(segments, row)[ROW_OWNER] * STATE_WIDTH + S_ROW] = NO_ROW
        memory[NUM_FORGOTTEN] += 1
    memory[CAP_ROWS], memory[NEXT_ROW] = count, 0
    memory[NUM_ROWS] = min(memory[NUM_ROWS], count)


@inner_kernel
def step(memory: Any, state: Any, byte: Any) -> Any:
    """The state after a byte; 0: refused. Remembers the answer."""
    if state == 0:
        return 0
    at = state * STATE_WIDTH
    states = i32(memory[STATES])
    only = states[at + S_BYTE]
    if only >= 0:
        if only != byte:
            return 0
        target = np.int64(states[at + S_NEXT])
        if target < 0:
            target = call(memory[TRANSITION], memory[THIS], READ, state, byte)
            if target >= 0:
                states[at + S_NEXT] = target
        return target
    if states[at + S_ROW] == NEVER_A_ROW:
        return call(memory[TRANSITION], memory[THIS], READ, state, byte)
    row = _row_of(memory, state)
    if row < 0:
        return row
    targets = row_at(i64(memory[ROWS]), row)
    target = np.int64(targets[byte])
    if target < 0:
        target = call(memory[TRANSITION], memory[THIS], READ, state, byte)
        if target >= 0:
            targets[byte] = target
    return target


@kernel
def advance(memory: Any, state: Any, token: Any) -> Any:
    """The state after all bytes of a token; 0: refused, or a token without bytes."""
    data, offsets = u8(memory[TOKEN_BYTES]), i32(memory[TOKEN_OFFSETS])
    if offsets[token] == offsets[token + 1]:
        return 0
    for position in range(offsets[token], offsets[token + 1]):
        state = step(memory, state, np.int64(data[position]))
        if state <= 0:
            break
    return state


@kernel
def advance_bytes(memory: Any, state: Any, data: Any) -> Any:
    """The state after some bytes; 0: refused."""
    for byte in data:
        state = step(memory, state, np.int64(byte))
        if state <= 0:
            break
    return state


@kernel
def live_bytes(memory: Any, state: Any, live: Any) -> Any:
    """Sets live[b] (uint8[256]) to 1 for every byte that may follow and returns their number."""
    states, pool = i32(memory[STATES]), i64(memory[POOL])
    kinds, args = i32(memory[KIND]), i32(memory[ARG])
    live[:] = 0
    offset = states[state * STATE_WIDTH + S_OFFSET]
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        key = pool[i]
        node = key >> NODE_SHIFT
        if kinds[node] == K_BYTE:
            live[args[node]] = 1
        elif kinds[node] == K_BYTES:
            words = u64(memory[BYTE_SETS] + args[node] * 32)
            for byte in range(256):
                live[byte] |= np.uint8((words[byte >> 6] >> np.uint64(byte & 63)) & np.uint64(1))
        elif kinds[node] == K_KEY:
            place = ((key >> STACK_BITS) & SUB_MASK) - 1
            mark_live_keys(memory, np.int64(args[node]), key & STACK_ID_MASK, place, live)
        else:
            text = i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))
            sub = (key >> STACK_BITS) & SUB_MASK
            count = np.int64(i32(memory[STACKS])[(key & STACK_ID_MASK) * STACK_WIDTH + F_COUNT])
            for byte in range(256):
                if not live[byte] and counted_step(text, sub, byte, count):
                    live[byte] = 1
    total = 0
    for byte in range(256):
        total += live[byte]
    return total


@kernel
def text_groups(memory: Any, state: Any, found: Any) -> Any:
    """The texts of a state: fills found (int64[n * PLACE_WIDTH]).

    Each group of configurations that stand alike in a text is PLACE_WIDTH numbers, the first four of them: the first of
    the configurations, the text, the state in it, and the characters read if they are counted (else 0). Returns
    (groups, other configurations); the number of groups is n + 1 if there is no room for all.
    """
    states, pool, stacks = i32(memory[STATES]), i64(memory[POOL]), i32(memory[STACKS])
    kinds, args = i32(memory[KIND]), i32(memory[ARG])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    num_groups, num_others = 0, 0
    for index in range(states[state * STATE_WIDTH + S_SIZE]):
        key = pool[offset + index]
        node = key >> NODE_SHIFT
        if kinds[node] != K_TEXT:
            num_others += 1
            continue
        table, sub, count = np.int64(args[node]), (key >> STACK_BITS) & SUB_MASK, np.int64(0)
        if i64(memory[TEXTS] + table * (TEXT_WIDTH * 8))[T_MAX] >= 0:
            count = np.int64(stacks[(key & STACK_ID_MASK) * STACK_WIDTH + F_COUNT])
        is_new = True
        for at in range(0, PLACE_WIDTH * num_groups, PLACE_WIDTH):
            if found[at + 1] == table and found[at + 2] == sub and found[at + 3] == count:
                is_new = False
                break
        if is_new:
            at = PLACE_WIDTH * num_groups
            num_groups += 1
            if at + PLACE_WIDTH > found.shape[0]:
                break
            found[at], found[at + 1], found[at + 2], found[at + 3] = index, table, sub, count
    return num_groups, num_others


@kernel
def forced_run(memory: Any, state: Any, run: Any, live: Any) -> Any:
    """Follows the automaton while there is one way only.

    Fills run (uint8[n]) and returns (number of bytes, state behind them or the negative code for help).
    """
    states = i32(memory[STATES])
    count = 0
    while count < run.shape[0] and not states[state * STATE_WIDTH + S_ACCEPTS]:
        byte = np.int64(states[state * STATE_WIDTH + S_BYTE])
        if byte < 0:
            if live_bytes(memory, state, live) != 1:
                break
            byte = np.int64(0)
            while not live[byte]:
                byte += 1
        target = step(memory, state, byte)
        if target <= 0:
            return count, target
        run[count] = byte
        count += 1
        state = target
    return count, state
