"""The compiled heart of the automaton: closures and steps over a network, interned into states.

A configuration is one int64: node << 43 | text state << 20 | stack. A state is a sorted run of configurations in the
pool together with "accepting"; equal runs are one state, 0 is the dead one. Stacks are interned parent-pointer
frames (return node, turns done, parent); stack 0 is the bottom. Inside a counted text the topmost frame is
(~ node of the text, characters read, parent).

Results below zero ask for help: NEED_SPACE, NEED_WORK (grow and call again: what was found so far is kept) and
TOO_LARGE (more stacks than an integer has room for).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .array_kernels import sort_beginning
from .compiled import call, inner_kernel, kernel
from .counted_kernels import counted_alive, counted_cost, counted_step, next_count
from .memory import (
    ARG,
    BYTE_SETS,
    CAP_POOL,
    CAP_ROWS,
    CAP_STACKS,
    CAP_STATES,
    CAP_WORK,
    COST,
    ENTER,
    F_COST,
    F_COUNT,
    F_PARENT,
    F_RETURN,
    FIRST_TEXT_STATE,
    FOUND,
    K_BYTE,
    K_BYTES,
    K_CALL,
    K_LOOP,
    K_RETURN,
    K_SPLIT,
    K_TEXT,
    KIND,
    LOOPS,
    NEED_SPACE,
    NEED_WORK,
    NEVER,
    NEVER_A_ROW,
    NEXT,
    NO_ROW,
    NUM_ROWS,
    NUM_STACKS,
    NUM_STATES,
    OPTIONS,
    POOL,
    POOL_USED,
    READ,
    ROWS,
    S_ACCEPTS,
    S_BYTE,
    S_COST,
    S_NEXT,
    S_OFFSET,
    S_ROW,
    S_SIZE,
    SEEN_KEYS,
    SEEN_MASK,
    SEEN_STAMPS,
    STACK_BITS,
    STACK_ID_MASK,
    STACK_MASK,
    STACK_SLOTS,
    STACK_WIDTH,
    STACKS,
    STATE_MASK,
    STATE_SLOTS,
    STATE_WIDTH,
    STATES,
    SUB_MASK,
    T_ACCEPTS,
    T_MAX,
    T_MIN,
    T_NODES,
    T_START,
    TEXT_WIDTH,
    TEXTS,
    THIS,
    TOKEN_BYTES,
    TOKEN_OFFSETS,
    TOO_LARGE,
    TRANSITION,
    WORK,
    i32,
    i64,
    u8,
    u64,
)
from .text_kernels import text_alive


@inner_kernel
def _stack_hash(node: Any, count: Any, parent: Any) -> Any:
    value = (node * 0x9E3779B1 + count * 0x85EBCA77 + parent * 0xC2B2AE3D) & 0x7FFFFFFFFFFF
    return value ^ (value >> 15)


@inner_kernel
def _state_hash(keys: Any, offset: Any, size: Any, accepts: Any) -> Any:
    value = np.uint64(size * 2 + accepts)
    for i in range(offset, offset + size):
        value = (value ^ np.uint64(keys[i])) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(32)
    return np.int64(value & np.uint64(0x7FFFFFFF))


@kernel
def rehash_stacks(memory: Any) -> None:
    """Fills the empty STACK_SLOTS anew."""
    stacks, slots = i32(memory[STACKS]), i32(memory[STACK_SLOTS])
    for stack in range(1, memory[NUM_STACKS]):
        at = stack * STACK_WIDTH
        slot = _stack_hash(
            np.int64(stacks[at + F_RETURN]), np.int64(stacks[at + F_COUNT]), np.int64(stacks[at + F_PARENT])
        )
        slot &= memory[STACK_MASK]
        while slots[slot] != 0:
            slot = (slot + 1) & memory[STACK_MASK]
        slots[slot] = stack


@kernel
def rehash_states(memory: Any) -> None:
    """Fills the empty STATE_SLOTS anew."""
    states, slots, pool = i32(memory[STATES]), i32(memory[STATE_SLOTS]), i64(memory[POOL])
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
def _push_frame(memory: Any, node: Any, count: Any, parent: Any) -> Any:
    """The stack (node, count) on top of parent; interned."""
    stacks, slots = i32(memory[STACKS]), i32(memory[STACK_SLOTS])
    mask = memory[STACK_MASK]
    slot = _stack_hash(node, count, parent) & mask
    while slots[slot] != 0:
        at = slots[slot] * STACK_WIDTH
        if stacks[at + F_RETURN] == node and stacks[at + F_COUNT] == count and stacks[at + F_PARENT] == parent:
            return slots[slot]
        slot = (slot + 1) & mask
    stack = memory[NUM_STACKS]
    if stack + 1 >= memory[CAP_STACKS]:
        return TOO_LARGE if stack >= STACK_ID_MASK else NEED_SPACE
    at = stack * STACK_WIDTH
    stacks[at + F_RETURN], stacks[at + F_COUNT], stacks[at + F_PARENT] = node, count, parent
    cost = i32(memory[COST])
    if node < 0:
        total = np.int64(0)  # what is left of a counted text depends on its state, not on the frame alone
    elif i32(memory[KIND])[node] == K_LOOP:
        loop = i32(memory[ARG])[node] * 4
        loops = i32(memory[LOOPS])
        total = np.int64(cost[i32(memory[NEXT])[node]])
        if loops[loop + 1] > count:
            total += np.int64(loops[loop + 1] - count) * loops[loop + 3]
    else:
        total = np.int64(cost[node])
    stacks[at + F_COST] = min(total + stacks[parent * STACK_WIDTH + F_COST], NEVER)
    slots[slot] = stack
    memory[NUM_STACKS] = stack + 1
    return stack


@inner_kernel
def _forget_visits(memory: Any) -> None:
    """Begins a closure: visits carry a stamp, which is counted up behind the last of them."""
    i64(memory[SEEN_STAMPS])[memory[SEEN_MASK] + 1] += 1


@inner_kernel
def _visit(memory: Any, key: Any, num_work: Any) -> Any:
    """Adds a configuration to the work list unless this closure has met it; the new length of the list."""
    if i32(memory[COST])[key >> 43] >= NEVER:
        return num_work
    mask = memory[SEEN_MASK]
    keys, stamps = i64(memory[SEEN_KEYS]), i64(memory[SEEN_STAMPS])
    slot = (key ^ (key >> 29)) * 0x9E3779B97F4A7C1
    slot = (slot ^ (slot >> 32)) & mask
    stamp = stamps[mask + 1]
    while stamps[slot] == stamp:
        if keys[slot] == key:
            return num_work
        slot = (slot + 1) & mask
    if num_work >= memory[CAP_WORK]:
        return NEED_WORK
    stamps[slot] = stamp
    keys[slot] = key
    i64(memory[WORK])[num_work] = key
    return num_work + 1


@inner_kernel
def _close(memory: Any, num_work: Any) -> Any:
    """The state of the configurations in WORK[:num_work] (already visited) and all they lead to without reading."""
    kinds, args, nexts = i32(memory[KIND]), i32(memory[ARG]), i32(memory[NEXT])
    work, found = i64(memory[WORK]), i64(memory[FOUND])
    num_found, accepts, done = np.int64(0), np.int64(0), np.int64(0)
    while done < num_work:
        key = work[done]
        done += 1
        node, stack = key >> 43, key & STACK_ID_MASK
        kind = kinds[node]
        if kind <= K_BYTES:
            found[num_found] = key
            num_found += 1
        elif kind == K_TEXT:
            text = i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))
            sub = (key >> STACK_BITS) & SUB_MASK
            is_counted = text[T_MAX] >= 0
            if sub == FIRST_TEXT_STATE:
                sub = text[T_START]
                if is_counted:
                    stack = _push_frame(memory, ~node, np.int64(0), stack)
                    if stack < 0:
                        return stack
                key = node << 43 | sub << STACK_BITS | stack
            count, outer = np.int64(0), stack
            if is_counted:
                frame = i32(memory[STACKS] + stack * (STACK_WIDTH * 4))
                count, outer = np.int64(frame[F_COUNT]), np.int64(frame[F_PARENT])
            state = sub // text[T_NODES]
            if sub % text[T_NODES]:
                found[num_found] = key
                num_found += 1
            else:
                if (
                    counted_alive(text, state, np.int64(0), count)
                    if is_counted
                    else text_alive(text, state, np.int64(0))
                ):
                    found[num_found] = key
                    num_found += 1
                if u8(text[T_ACCEPTS])[state] and (not is_counted or count >= text[T_MIN]):
                    num_work = _visit(memory, np.int64(nexts[node]) << 43 | outer, num_work)
        elif kind == K_SPLIT:
            options = i32(memory[OPTIONS])
            for option in range(args[node], args[node] + nexts[node]):
                num_work = _visit(memory, np.int64(options[option]) << 43 | stack, num_work)
                if num_work < 0:
                    return num_work
        elif kind == K_CALL:
            if kinds[nexts[node]] != K_RETURN:
                stack = _push_frame(memory, np.int64(nexts[node]), np.int64(0), stack)
                if stack < 0:
                    return stack
            num_work = _visit(memory, np.int64(args[node]) << 43 | stack, num_work)
        elif kind == K_LOOP:
            num_work = _turn(memory, node, np.int64(0), stack, num_work)
        elif stack == 0:
            accepts = np.int64(1)
        else:
            frame = i32(memory[STACKS] + stack * (STACK_WIDTH * 4))
            if kinds[frame[F_RETURN]] == K_LOOP:
                loop, turns, parent = np.int64(frame[F_RETURN]), np.int64(frame[F_COUNT]), np.int64(frame[F_PARENT])
                num_work = _turn(memory, loop, turns, parent, num_work)
            else:
                num_work = _visit(memory, np.int64(frame[F_RETURN]) << 43 | np.int64(frame[F_PARENT]), num_work)
        if num_work < 0:
            return num_work
    return _intern(memory, num_found, accepts)


@inner_kernel
def _turn(memory: Any, node: Any, count: Any, stack: Any, num_work: Any) -> Any:
    """A loop after `count` turns: may end if that is enough, may turn again if that is allowed."""
    loops = i32(memory[LOOPS])
    loop = i32(memory[ARG])[node] * 4
    minimum, maximum = loops[loop + 1], loops[loop + 2]
    if count >= minimum:
        num_work = _visit(memory, np.int64(i32(memory[NEXT])[node]) << 43 | stack, num_work)
        if num_work < 0:
            return num_work
    if maximum < 0 or count < maximum:
        turns = count + 1 if maximum >= 0 else min(count + 1, minimum)  # beyond the minimum all turns are alike
        frame = _push_frame(memory, node, turns, stack)
        if frame < 0:
            return frame
        num_work = _visit(memory, np.int64(loops[loop]) << 43 | frame, num_work)
    return num_work


@inner_kernel
def _intern(memory: Any, size: Any, accepts: Any) -> Any:
    """The state of FOUND[:size]."""
    if size == 0 and accepts == 0:
        return 0
    found, pool = i64(memory[FOUND]), i64(memory[POOL])
    sort_beginning(found, size)
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
    at = state * STATE_WIDTH
    cost, row = np.int64(NEVER), NO_ROW
    stacks, nodes_cost = i32(memory[STACKS]), i32(memory[COST])
    for i in range(size):
        key = found[i]
        pool[offset + i] = key
        node = key >> 43
        total = np.int64(stacks[(key & STACK_ID_MASK) * STACK_WIDTH + F_COST])
        if i32(memory[KIND])[node] == K_TEXT:
            text = i64(memory[TEXTS] + i32(memory[ARG])[node] * (TEXT_WIDTH * 8))
            count = np.int64(stacks[(key & STACK_ID_MASK) * STACK_WIDTH + F_COUNT])
            total += counted_cost(text, (key >> STACK_BITS) & SUB_MASK, count) + nodes_cost[i32(memory[NEXT])[node]]
            if size == 1 and text[T_MAX] >= 0:
                row = NEVER_A_ROW
        else:
            total += nodes_cost[node]
        cost = min(cost, total)
    states[at + S_OFFSET], states[at + S_SIZE], states[at + S_ACCEPTS] = offset, size, accepts
    states[at + S_COST] = 0 if accepts else cost
    states[at + S_ROW], states[at + S_BYTE], states[at + S_NEXT] = row, -1, -1
    if size == 1 and i32(memory[KIND])[found[0] >> 43] == K_BYTE:
        states[at + S_BYTE] = i32(memory[ARG])[found[0] >> 43]
    slots[slot] = state
    memory[NUM_STATES] = state + 1
    memory[POOL_USED] = offset + size
    return state


@inner_kernel
def _compute(memory: Any, state: Any, byte: Any) -> Any:
    """The state after a byte, from the configurations."""
    states, pool = i32(memory[STATES]), i64(memory[POOL])
    kinds, args, nexts = i32(memory[KIND]), i32(memory[ARG]), i32(memory[NEXT])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    _forget_visits(memory)
    num_work = np.int64(0)
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        key = pool[i]
        node, stack = key >> 43, key & STACK_ID_MASK
        if kinds[node] == K_BYTE:
            if args[node] != byte:
                continue
            key = np.int64(nexts[node]) << 43 | stack
        elif kinds[node] == K_BYTES:
            word = u64(memory[BYTE_SETS])[args[node] * 4 + (byte >> 6)]
            if not (word >> np.uint64(byte & 63)) & np.uint64(1):
                continue
            key = np.int64(nexts[node]) << 43 | stack
        else:
            text = i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))
            count = np.int64(i32(memory[STACKS])[stack * STACK_WIDTH + F_COUNT])
            sub = counted_step(text, (key >> STACK_BITS) & SUB_MASK, byte, count)
            if sub == 0:
                continue
            if text[T_MAX] >= 0 and sub % text[T_NODES] == 0:
                outer = np.int64(i32(memory[STACKS])[stack * STACK_WIDTH + F_PARENT])
                stack = _push_frame(memory, ~node, next_count(text, count), outer)
                if stack < 0:
                    return stack
            key = node << 43 | sub << STACK_BITS | stack
        num_work = _visit(memory, key, num_work)
        if num_work < 0:
            return num_work
    return _close(memory, num_work)


@inner_kernel
def _enter(memory: Any, node: Any, stack: Any) -> Any:
    """The state in which exactly the position `node` with `stack` has been reached."""
    _forget_visits(memory)
    return _close(memory, _visit(memory, node << 43 | stack, np.int64(0)))


@inner_kernel
def _without_texts(memory: Any, state: Any) -> Any:
    """The state of the same configurations except those inside a text automaton; never accepting."""
    states, pool, kinds = i32(memory[STATES]), i64(memory[POOL]), i32(memory[KIND])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    found = i64(memory[FOUND])
    size = np.int64(0)
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        if kinds[pool[i] >> 43] != K_TEXT:
            found[size] = pool[i]
            size += 1
    return _intern(memory, size, np.int64(0))


def transition(address: Any, verb: Any, state: Any, what: Any) -> Any:
    """Everything that may make new states, behind one address (see `compiled.callback_address`).

    READ: the state after the byte `what`. ENTER: the state in which exactly the node `state` with the stack `what`
    has been reached. WITHOUT_TEXTS: the state without its configurations inside texts.
    """
    memory = i64(address)
    if verb == READ:
        return _compute(memory, state, what)
    if verb == ENTER:
        return _enter(memory, state, what)
    return _without_texts(memory, state)


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
        row = memory[NUM_ROWS]
        if row >= memory[CAP_ROWS]:
            return NEED_SPACE
        memory[NUM_ROWS] = row + 1
        states[state * STATE_WIDTH + S_ROW] = row
        rows = i32(memory[ROWS])
        for byte in range(256):
            rows[row * 256 + byte] = -1
    return row


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
    rows = i32(memory[ROWS])
    target = np.int64(rows[row * 256 + byte])
    if target < 0:
        target = call(memory[TRANSITION], memory[THIS], READ, state, byte)
        if target >= 0:
            rows[row * 256 + byte] = target
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
        node = key >> 43
        if kinds[node] == K_BYTE:
            live[args[node]] = 1
        elif kinds[node] == K_BYTES:
            words = u64(memory[BYTE_SETS] + args[node] * 32)
            for byte in range(256):
                live[byte] |= np.uint8((words[byte >> 6] >> np.uint64(byte & 63)) & np.uint64(1))
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
