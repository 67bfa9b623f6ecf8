"""The compiled heart of the automaton: closures, steps and walks over a network.

One int64 array, `memory`, stands for the whole automaton: counters first, then addresses of flat arrays (the names
below are its indices). A call from Python therefore passes one or two arrays, which costs half a microsecond
instead of five. `Automaton` owns the arrays, grows them and keeps them alive; nobody else calls in here.

A configuration is one int64: node << 43 | text state << 20 | stack. A state is a sorted run of configurations in the
pool together with "accepting"; equal runs are one state, 0 is the dead one. Stacks are interned parent-pointer
frames (return node, turns done, parent); stack 0 is the bottom.

Results below zero ask for help: NEED_SPACE, NEED_WORK (grow and call again: what was found so far is kept) and
TOO_LARGE (more stacks than an integer has room for).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray, njit  # type: ignore[attr-defined]
from numba.core import cgutils, types
from numba.extending import intrinsic

NEED_SPACE = -1
NEED_WORK = -2
TOO_LARGE = -3

(
    NUM_STACKS,
    CAP_STACKS,
    STACK_MASK,
    NUM_STATES,
    CAP_STATES,
    STATE_MASK,
    POOL_USED,
    CAP_POOL,
    NUM_ROWS,
    CAP_ROWS,
    STAMP,
    SEEN_MASK,
    CAP_WORK,
) = range(13)
(
    KIND,
    ARG,
    NEXT,
    COST,
    OPTIONS,
    LOOPS,
    BYTE_SETS,
    TEXTS,
    STACKS,
    STACK_SLOTS,
    STATES,
    STATE_SLOTS,
    POOL,
    ROWS,
    SEEN_KEYS,
    SEEN_STAMPS,
    WORK,
    FOUND,
) = range(16, 34)
(
    TRIE_BYTES,
    TRIE_DEPTHS,
    TRIE_ENDS,
    TRIE_TOKENS,
    TRIE_ROOTS,
    NEXT_SAME,
    TOKEN_BYTES,
    TOKEN_OFFSETS,
    TRIE_SIZE,
    SUMMARY_OF,
    SUMMARIES,
    ALL_TOKENS,
    NUM_WORDS,
    PATH,
) = range(40, 54)
MEMORY_SIZE = 54
# PATH holds, by depth of the trie, a state and the node of the template; then flags by class
INNER_PATH, FLAGS, PATH_SIZE = 512, 1024, 1024 + 4096

# columns of a state record and of a stack record
S_OFFSET, S_SIZE, S_ACCEPTS, S_COST, S_ROW, S_BYTE, S_NEXT = range(7)
STATE_WIDTH = 8
F_RETURN, F_COUNT, F_PARENT, F_COST = range(4)
STACK_WIDTH = 4

K_BYTE, K_BYTES, K_TEXT, K_SPLIT, K_CALL, K_LOOP, K_RETURN = range(7)
(
    T_TABLE,
    T_ACCEPTS,
    T_TEMPLATE,
    T_REACH,
    T_LIVE,
    T_COSTS,
    T_NODE_COSTS,
    T_IS_WIDE,
    T_NUM_ASCII,
    T_CLASSES,
    T_NODES,
    T_WORDS,
    T_START,
) = range(13)
TEXT_WIDTH = 14
NEVER = 1 << 29
SUB_BITS, STACK_BITS = 23, 20
SUB_MASK, STACK_ID_MASK = (1 << SUB_BITS) - 1, (1 << STACK_BITS) - 1
FIRST_TEXT_STATE = 0  # as text state of a seed: "enter the text"
ENDLESS = 1 << 40
SAFE_SLOTS, SAFE_WIDTH = 64, 5  # states of a walk whose safe characters are kept, by state modulo SAFE_SLOTS
MAX_SAFE_STEPS = 40  # sub-trees deeper than that are walked into until they are shallower
FIND_SAFE_FROM = 16  # nodes of a sub-tree for which it pays to find out


@intrinsic  # type: ignore[untyped-decorator]
def _pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@njit(cache=True, inline="always")
def _i32(address: Any) -> Any:
    return carray(_pointer(address), (ENDLESS,), np.int32)


@njit(cache=True, inline="always")
def _i64(address: Any) -> Any:
    return carray(_pointer(address), (ENDLESS,), np.int64)


@njit(cache=True, inline="always")
def _u64(address: Any) -> Any:
    return carray(_pointer(address), (ENDLESS,), np.uint64)


@njit(cache=True, inline="always")
def _u8(address: Any) -> Any:
    return carray(_pointer(address), (ENDLESS,), np.uint8)


@njit(cache=True)
def _stack_hash(node: Any, count: Any, parent: Any) -> Any:
    value = (node * 0x9E3779B1 + count * 0x85EBCA77 + parent * 0xC2B2AE3D) & 0x7FFFFFFFFFFF
    return value ^ (value >> 15)


@njit(cache=True)
def _state_hash(keys: Any, offset: Any, size: Any, accepts: Any) -> Any:
    value = np.uint64(size * 2 + accepts)
    for i in range(offset, offset + size):
        value = (value ^ np.uint64(keys[i])) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(32)
    return np.int64(value & np.uint64(0x7FFFFFFF))


@njit(cache=True)
def rehash_stacks(memory: Any) -> None:
    """Fills the empty STACK_SLOTS anew."""
    stacks, slots = _i32(memory[STACKS]), _i32(memory[STACK_SLOTS])
    for stack in range(1, memory[NUM_STACKS]):
        at = stack * STACK_WIDTH
        slot = _stack_hash(
            np.int64(stacks[at + F_RETURN]), np.int64(stacks[at + F_COUNT]), np.int64(stacks[at + F_PARENT])
        )
        slot &= memory[STACK_MASK]
        while slots[slot] != 0:
            slot = (slot + 1) & memory[STACK_MASK]
        slots[slot] = stack


@njit(cache=True)
def rehash_states(memory: Any) -> None:
    """Fills the empty STATE_SLOTS anew."""
    states, slots, pool = _i32(memory[STATES]), _i32(memory[STATE_SLOTS]), _i64(memory[POOL])
    for state in range(1, memory[NUM_STATES]):
        at = state * STATE_WIDTH
        slot = _state_hash(
            pool, np.int64(states[at + S_OFFSET]), np.int64(states[at + S_SIZE]), np.int64(states[at + S_ACCEPTS])
        )
        slot &= memory[STATE_MASK]
        while slots[slot] != 0:
            slot = (slot + 1) & memory[STATE_MASK]
        slots[slot] = state


@njit(cache=True)
def _push_frame(memory: Any, node: Any, count: Any, parent: Any) -> Any:
    """The stack (node, count) on top of parent; interned."""
    stacks, slots = _i32(memory[STACKS]), _i32(memory[STACK_SLOTS])
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
    cost = _i32(memory[COST])
    if _i32(memory[KIND])[node] == K_LOOP:
        loop = _i32(memory[ARG])[node] * 4
        loops = _i32(memory[LOOPS])
        total = np.int64(cost[_i32(memory[NEXT])[node]])
        if loops[loop + 1] > count:
            total += np.int64(loops[loop + 1] - count) * loops[loop + 3]
    else:
        total = np.int64(cost[node])
    stacks[at + F_COST] = min(total + stacks[parent * STACK_WIDTH + F_COST], NEVER)
    slots[slot] = stack
    memory[NUM_STACKS] = stack + 1
    return stack


@njit(cache=True)
def _text_alive(text: Any, state: Any, node: Any) -> Any:
    """Whether a character begun (template node) can be completed into a live state."""
    num_words = text[T_WORDS]
    reach, live = _u64(text[T_REACH]), _u64(text[T_LIVE])
    alive = False
    for word in range(num_words):
        alive = alive or (reach[node * num_words + word] & live[state * num_words + word]) != 0
    return alive


@njit(cache=True)
def _text_step(text: Any, sub: Any, byte: Any) -> Any:
    """The byte state after one more byte; 0: refused."""
    num_nodes = text[T_NODES]
    state, node = sub // num_nodes, sub % num_nodes
    spelt = np.int64(_i32(text[T_TEMPLATE])[node * 256 + byte])
    if spelt == 0:
        return 0
    if spelt < 0:
        return _i32(text[T_TABLE])[state * text[T_CLASSES] - spelt] * num_nodes
    return state * num_nodes + spelt if _text_alive(text, state, spelt) else 0


@njit(cache=True)
def _text_cost(text: Any, sub: Any) -> Any:
    """Least number of bytes from a byte state to acceptance."""
    num_nodes = text[T_NODES]
    state, node = sub // num_nodes, sub % num_nodes
    costs = _i32(text[T_COSTS])
    if node == 0:
        return costs[state]
    num_classes = text[T_CLASSES]
    table, node_costs = _i32(text[T_TABLE]), _i32(text[T_NODE_COSTS])
    best = np.int64(NEVER)
    for class_id in range(1, num_classes):
        target = table[state * num_classes + class_id]
        if target and node_costs[node * num_classes + class_id] < 9:
            best = min(best, np.int64(costs[target]) + node_costs[node * num_classes + class_id])
    return best


@njit(cache=True)
def _visit(memory: Any, key: Any, num_work: Any) -> Any:
    """Adds a configuration to the work list unless this closure has met it; the new length of the list."""
    if _i32(memory[COST])[key >> 43] >= NEVER:
        return num_work
    mask = memory[SEEN_MASK]
    keys, stamps = _i64(memory[SEEN_KEYS]), _i64(memory[SEEN_STAMPS])
    slot = (key ^ (key >> 29)) * 0x9E3779B97F4A7C1
    slot = (slot ^ (slot >> 32)) & mask
    stamp = memory[STAMP]
    while stamps[slot] == stamp:
        if keys[slot] == key:
            return num_work
        slot = (slot + 1) & mask
    if num_work >= memory[CAP_WORK]:
        return NEED_WORK
    stamps[slot] = stamp
    keys[slot] = key
    _i64(memory[WORK])[num_work] = key
    return num_work + 1


@njit(cache=True)
def _close(memory: Any, num_work: Any) -> Any:
    """The state of the configurations in WORK[:num_work] (already visited) and all they lead to without reading."""
    kinds, args, nexts = _i32(memory[KIND]), _i32(memory[ARG]), _i32(memory[NEXT])
    work, found = _i64(memory[WORK]), _i64(memory[FOUND])
    num_found, accepts, done = 0, 0, 0
    while done < num_work:
        key = work[done]
        done += 1
        node, stack = key >> 43, key & STACK_ID_MASK
        kind = kinds[node]
        if kind <= K_BYTES:
            found[num_found] = key
            num_found += 1
        elif kind == K_TEXT:
            text = _i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))
            sub = (key >> STACK_BITS) & SUB_MASK
            if sub == FIRST_TEXT_STATE:
                sub = text[T_START]
                key |= sub << STACK_BITS
            state = sub // text[T_NODES]
            if sub % text[T_NODES]:
                found[num_found] = key
                num_found += 1
            else:
                if _text_alive(text, state, 0):
                    found[num_found] = key
                    num_found += 1
                if _u8(text[T_ACCEPTS])[state]:
                    num_work = _visit(memory, np.int64(nexts[node]) << 43 | stack, num_work)
        elif kind == K_SPLIT:
            options = _i32(memory[OPTIONS])
            for option in range(args[node], args[node] + nexts[node]):
                num_work = _visit(memory, np.int64(options[option]) << 43 | stack, num_work)
                if num_work < 0:
                    return num_work
        elif kind == K_CALL:
            if kinds[nexts[node]] != K_RETURN:
                stack = _push_frame(memory, nexts[node], 0, stack)
                if stack < 0:
                    return stack
            num_work = _visit(memory, np.int64(args[node]) << 43 | stack, num_work)
        elif kind == K_LOOP:
            num_work = _turn(memory, node, 0, stack, num_work)
        elif stack == 0:
            accepts = 1
        else:
            frame = _i32(memory[STACKS] + stack * (STACK_WIDTH * 4))
            if kinds[frame[F_RETURN]] == K_LOOP:
                num_work = _turn(memory, frame[F_RETURN], frame[F_COUNT], frame[F_PARENT], num_work)
            else:
                num_work = _visit(memory, np.int64(frame[F_RETURN]) << 43 | frame[F_PARENT], num_work)
        if num_work < 0:
            return num_work
    return _intern(memory, num_found, accepts)


@njit(cache=True)
def _turn(memory: Any, node: Any, count: Any, stack: Any, num_work: Any) -> Any:
    """A loop after `count` turns: may end if that is enough, may turn again if that is allowed."""
    loops = _i32(memory[LOOPS])
    loop = _i32(memory[ARG])[node] * 4
    minimum, maximum = loops[loop + 1], loops[loop + 2]
    if count >= minimum:
        num_work = _visit(memory, np.int64(_i32(memory[NEXT])[node]) << 43 | stack, num_work)
        if num_work < 0:
            return num_work
    if maximum < 0 or count < maximum:
        turns = count + 1 if maximum >= 0 else min(count + 1, minimum)  # beyond the minimum all turns are alike
        frame = _push_frame(memory, node, turns, stack)
        if frame < 0:
            return frame
        num_work = _visit(memory, np.int64(loops[loop]) << 43 | frame, num_work)
    return num_work


@njit(cache=True)
def _intern(memory: Any, size: Any, accepts: Any) -> Any:
    """The state of FOUND[:size]."""
    if size == 0 and accepts == 0:
        return 0
    found, pool = _i64(memory[FOUND]), _i64(memory[POOL])
    if size > 24:
        found[:size].sort()
    else:
        for i in range(1, size):
            key = found[i]
            j = i - 1
            while j >= 0 and found[j] > key:
                found[j + 1] = found[j]
                j -= 1
            found[j + 1] = key
    states, slots = _i32(memory[STATES]), _i32(memory[STATE_SLOTS])
    mask = memory[STATE_MASK]
    slot = _state_hash(found, 0, size, accepts) & mask
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
    cost = np.int64(NEVER)
    stacks, nodes_cost = _i32(memory[STACKS]), _i32(memory[COST])
    for i in range(size):
        key = found[i]
        pool[offset + i] = key
        node = key >> 43
        total = np.int64(stacks[(key & STACK_ID_MASK) * STACK_WIDTH + F_COST])
        if _i32(memory[KIND])[node] == K_TEXT:
            text = _i64(memory[TEXTS] + _i32(memory[ARG])[node] * (TEXT_WIDTH * 8))
            total += _text_cost(text, (key >> STACK_BITS) & SUB_MASK) + nodes_cost[_i32(memory[NEXT])[node]]
        else:
            total += nodes_cost[node]
        cost = min(cost, total)
    states[at + S_OFFSET], states[at + S_SIZE], states[at + S_ACCEPTS] = offset, size, accepts
    states[at + S_COST] = 0 if accepts else cost
    states[at + S_ROW], states[at + S_BYTE], states[at + S_NEXT] = -1, -1, -1
    if size == 1 and _i32(memory[KIND])[found[0] >> 43] == K_BYTE:
        states[at + S_BYTE] = _i32(memory[ARG])[found[0] >> 43]
    slots[slot] = state
    memory[NUM_STATES] = state + 1
    memory[POOL_USED] = offset + size
    return state


@njit(cache=True)
def _compute(memory: Any, state: Any, byte: Any) -> Any:
    """The state after a byte, from the configurations."""
    states, pool = _i32(memory[STATES]), _i64(memory[POOL])
    kinds, args, nexts = _i32(memory[KIND]), _i32(memory[ARG]), _i32(memory[NEXT])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    memory[STAMP] += 1
    num_work = 0
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        key = pool[i]
        node, stack = key >> 43, key & STACK_ID_MASK
        if kinds[node] == K_BYTE:
            if args[node] != byte:
                continue
            key = np.int64(nexts[node]) << 43 | stack
        elif kinds[node] == K_BYTES:
            word = _u64(memory[BYTE_SETS])[args[node] * 4 + (byte >> 6)]
            if not (word >> np.uint64(byte & 63)) & np.uint64(1):
                continue
            key = np.int64(nexts[node]) << 43 | stack
        else:
            text = _i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))
            sub = _text_step(text, (key >> STACK_BITS) & SUB_MASK, byte)
            if sub == 0:
                continue
            key = node << 43 | sub << STACK_BITS | stack
        num_work = _visit(memory, key, num_work)
        if num_work < 0:
            return num_work
    return _close(memory, num_work)


@njit(cache=True)
def _row_of(memory: Any, state: Any) -> Any:
    """The row of a state, made if it has none; entries -1 are not known yet."""
    states = _i32(memory[STATES])
    row = np.int64(states[state * STATE_WIDTH + S_ROW])
    if row < 0:
        row = memory[NUM_ROWS]
        if row >= memory[CAP_ROWS]:
            return NEED_SPACE
        memory[NUM_ROWS] = row + 1
        states[state * STATE_WIDTH + S_ROW] = row
        rows = _i32(memory[ROWS])
        for byte in range(256):
            rows[row * 256 + byte] = -1
    return row


@njit(cache=True)
def _step(memory: Any, state: Any, byte: Any) -> Any:
    """The state after a byte; 0: refused. Remembers the answer."""
    if state == 0:
        return 0
    at = state * STATE_WIDTH
    states = _i32(memory[STATES])
    only = states[at + S_BYTE]
    if only >= 0:
        if only != byte:
            return 0
        target = np.int64(states[at + S_NEXT])
        if target < 0:
            target = _compute(memory, state, byte)
            if target >= 0:
                states[at + S_NEXT] = target
        return target
    row = _row_of(memory, state)
    if row < 0:
        return row
    rows = _i32(memory[ROWS])
    target = np.int64(rows[row * 256 + byte])
    if target < 0:
        target = _compute(memory, state, byte)
        if target >= 0:
            rows[row * 256 + byte] = target
    return target


@njit(cache=True)
def enter(memory: Any, node: Any, stack: Any) -> Any:
    """The state in which exactly the position `node` with `stack` has been reached."""
    memory[STAMP] += 1
    return _close(memory, _visit(memory, node << 43 | stack, 0))


@njit(cache=True)
def without_texts(memory: Any, state: Any) -> Any:
    """The state of the same configurations except those inside a text automaton; never accepting."""
    states, pool, kinds = _i32(memory[STATES]), _i64(memory[POOL]), _i32(memory[KIND])
    offset = states[state * STATE_WIDTH + S_OFFSET]
    found = _i64(memory[FOUND])
    size = 0
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        if kinds[pool[i] >> 43] != K_TEXT:
            found[size] = pool[i]
            size += 1
    return _intern(memory, size, 0)


@njit(cache=True)
def advance(memory: Any, state: Any, token: Any) -> Any:
    """The state after all bytes of a token; 0: refused, or a token without bytes."""
    data, offsets = _u8(memory[TOKEN_BYTES]), _i32(memory[TOKEN_OFFSETS])
    if offsets[token] == offsets[token + 1]:
        return 0
    for position in range(offsets[token], offsets[token + 1]):
        state = _step(memory, state, data[position])
        if state <= 0:
            break
    return state


@njit(cache=True)
def advance_bytes(memory: Any, state: Any, data: Any) -> Any:
    """The state after some bytes; 0: refused."""
    for byte in data:
        state = _step(memory, state, byte)
        if state <= 0:
            break
    return state


@njit(cache=True)
def live_bytes(memory: Any, state: Any, live: Any) -> Any:
    """Sets live[b] (uint8[256]) to 1 for every byte that may follow and returns their number."""
    states, pool = _i32(memory[STATES]), _i64(memory[POOL])
    kinds, args = _i32(memory[KIND]), _i32(memory[ARG])
    live[:] = 0
    offset = states[state * STATE_WIDTH + S_OFFSET]
    for i in range(offset, offset + states[state * STATE_WIDTH + S_SIZE]):
        key = pool[i]
        node = key >> 43
        if kinds[node] == K_BYTE:
            live[args[node]] = 1
        elif kinds[node] == K_BYTES:
            words = _u64(memory[BYTE_SETS] + args[node] * 32)
            for byte in range(256):
                live[byte] |= np.uint8((words[byte >> 6] >> np.uint64(byte & 63)) & np.uint64(1))
        else:
            text = _i64(memory[TEXTS] + args[node] * (TEXT_WIDTH * 8))
            sub = (key >> STACK_BITS) & SUB_MASK
            for byte in range(256):
                if not live[byte] and _text_step(text, sub, byte):
                    live[byte] = 1
    total = 0
    for byte in range(256):
        total += live[byte]
    return total


@njit(cache=True)
def forced_run(memory: Any, state: Any, run: Any, live: Any) -> Any:
    """Follows the automaton while there is one way only.

    Fills run (uint8[n]) and returns (number of bytes, state behind them or the negative code for help).
    """
    states = _i32(memory[STATES])
    count = 0
    while count < run.shape[0] and not states[state * STATE_WIDTH + S_ACCEPTS]:
        byte = np.int64(states[state * STATE_WIDTH + S_BYTE])
        if byte < 0:
            if live_bytes(memory, state, live) != 1:
                break
            byte = 0
            while not live[byte]:
                byte += 1
        target = _step(memory, state, byte)
        if target <= 0:
            return count, target
        run[count] = byte
        count += 1
        state = target
    return count, state


@njit(cache=True)
def walk(memory: Any, state: Any, limit: Any, bits: Any) -> Any:
    """Sets the bit of every token that may follow and leads to a state of cost <= limit.

    Returns 1 + the greatest cost after a token that may follow (0: there is none), or the negative code for help.
    """
    path = _i32(memory[PATH])
    path[0] = state
    only = _i32(memory[STATES])[state * STATE_WIDTH + S_BYTE]
    roots = _i32(memory[TRIE_ROOTS])
    if only >= 0:
        if roots[only] < 0:
            return 0
        return _walk_range(memory, roots[only], _i32(memory[TRIE_ENDS])[roots[only]], limit, bits)
    return _walk_range(memory, 0, memory[TRIE_SIZE], limit, bits)


@njit(cache=True)
def _walk_range(memory: Any, node: Any, end: Any, limit: Any, bits: Any) -> Any:
    """The walk over trie nodes node .. end - 1, PATH[depth - 1] being the state before the first of them."""
    data, depths, ends = _u8(memory[TRIE_BYTES]), _u8(memory[TRIE_DEPTHS]), _i32(memory[TRIE_ENDS])
    tokens, same = _i32(memory[TRIE_TOKENS]), _i32(memory[NEXT_SAME])
    path = _i32(memory[PATH])
    states = _i32(memory[STATES])
    rows = _i32(memory[ROWS])
    worst = np.int64(0)
    while node < end:
        depth = np.int64(depths[node])
        before = np.int64(path[depth - 1])
        byte = np.int64(data[node])
        at = before * STATE_WIDTH
        only = states[at + S_BYTE]
        if only >= 0 and only != byte:
            node = ends[node]
            continue
        row = np.int64(states[at + S_ROW])
        target = np.int64(rows[row * 256 + byte]) if row >= 0 else np.int64(-1)
        if target < 0:
            target = _step(memory, before, byte)
            if target < 0:
                return target
        if target == 0:
            node = ends[node]
            continue
        path[depth] = target
        token = tokens[node]
        if token >= 0:
            cost = np.int64(states[target * STATE_WIDTH + S_COST])
            worst = max(worst, cost + 1)
            if cost <= limit:
                while token >= 0:
                    bits[token >> 5] |= np.int32(1) << np.int32(token & 31)
                    token = same[token]
        node += 1
    return worst


@njit(cache=True)
def walk_exits(memory: Any, state: Any, live: Any, exits: Any, starts: Any, limit: Any, bits: Any) -> Any:
    """The walk below trie nodes at which a text ended.

    Args:
        state: the state once the text has ended.
        live: uint8[256], scratch.
        exits: int32, trie nodes that may come next, grouped by their byte.
        starts: int32[257], where the group of each byte begins.
    """
    if live_bytes(memory, state, live) == 0 or starts[256] == 0:
        return 0
    ends, depths = _i32(memory[TRIE_ENDS]), _u8(memory[TRIE_DEPTHS])
    path = _i32(memory[PATH])
    worst = np.int64(0)
    for byte in range(256):
        if live[byte]:
            for index in range(starts[byte], starts[byte + 1]):
                node = exits[index]
                path[np.int64(depths[node]) - 1] = state
                cost = _walk_range(memory, node, ends[node], limit, bits)
                if cost < 0:
                    return cost
                worst = max(worst, cost)
    return worst


@njit(cache=True)
def _find_safe(memory: Any, text: Any, state: Any, limit: Any, with_exits: Any, safe: Any, at: Any) -> None:
    """The characters that lead on from a state in one way for many steps, as in the middle of a long text.

    A set of classes is found that all lead from the state to one and the same, all from there to one and the same,
    and so on, where no state on the way costs more than `limit` or, if the exits are wanted, accepts. So every text
    of at most that many of these characters stays alive, and so do all tokens in a sub-tree made of them.

    Fills safe[at : at + 4] (uint64): two words of ASCII bytes; 1 if all other characters belong to it; steps; cost.
    """
    table, template, accepts = _i32(text[T_TABLE]), _i32(text[T_TEMPLATE]), _u8(text[T_ACCEPTS])
    costs, is_wide, num_ascii = _i32(text[T_COSTS]), _u8(text[T_IS_WIDE]), _i32(text[T_NUM_ASCII])
    num_classes = text[T_CLASSES]
    flags = _i32(memory[PATH] + FLAGS * 4)
    for word in range(5):
        safe[at + word] = 0
    if num_classes > PATH_SIZE - FLAGS:
        return
    # the target of most ASCII bytes, by a majority vote
    majority, votes = np.int64(0), 0
    for class_id in range(1, num_classes):
        target = np.int64(table[state * num_classes + class_id])
        if target == majority:
            votes += num_ascii[class_id]
        elif num_ascii[class_id] > votes:
            majority, votes = target, num_ascii[class_id] - votes
        else:
            votes -= num_ascii[class_id]
    if majority == 0:  # mostly refused: the way on for most of the rest
        for class_id in range(1, num_classes):
            target = np.int64(table[state * num_classes + class_id])
            if target and num_ascii[class_id] > votes:
                majority, votes = target, num_ascii[class_id]
    total, all_wide, num_flags = 0, 1, 0
    for class_id in range(1, num_classes):
        if majority and table[state * num_classes + class_id] == majority:
            flags[num_flags] = class_id
            num_flags += 1
            total += num_ascii[class_id]
        elif is_wide[class_id]:
            all_wide = 0
    if total < 8:
        return
    steps, worst, here = 0, np.int64(0), np.int64(state)
    while steps < MAX_SAFE_STEPS:
        following = np.int64(table[here * num_classes + flags[0]])
        if following == 0:
            break
        same = True
        for index in range(1, num_flags):
            if table[here * num_classes + flags[index]] != following:
                same = False
                break
        cost = np.int64(costs[following]) + 3
        if not same or cost > limit or (with_exits and accepts[following]):
            break
        worst = max(worst, cost)
        steps += 1
        if following == here:
            steps = 255
            break
        here = following
    for byte in range(128):
        spelt = template[byte]
        if spelt < 0 and table[state * num_classes - spelt] == majority:
            safe[at + (byte >> 6)] |= np.uint64(1) << np.uint64(byte & 63)
    safe[at + 2] = all_wide
    safe[at + 3] = steps
    safe[at + 4] = worst


@njit(cache=True)
def _num_bits(word: Any) -> Any:
    """Number of bits set."""
    total = 0
    while word:
        word &= word - np.uint64(1)
        total += 1
    return total


@njit(cache=True)
def _set_tokens(memory: Any, node: Any, end: Any, bits: Any) -> None:
    """Sets the bits of all tokens that end at trie nodes node .. end - 1."""
    tokens, same = _i32(memory[TRIE_TOKENS]), _i32(memory[NEXT_SAME])
    for index in range(node, end):
        token = tokens[index]
        while token >= 0:
            bits[token >> 5] |= np.int32(1) << np.int32(token & 31)
            token = same[token]


@njit(cache=True)
def _clear_tokens(memory: Any, node: Any, end: Any, bits: Any) -> None:
    """Clears the bits of all tokens that end at trie nodes node .. end - 1."""
    tokens, same = _i32(memory[TRIE_TOKENS]), _i32(memory[NEXT_SAME])
    for index in range(node, end):
        token = tokens[index]
        while token >= 0:
            bits[token >> 5] &= ~(np.int32(1) << np.int32(token & 31))
            token = same[token]


@njit(cache=True)
def walk_text(memory: Any, text: Any, sub: Any, limit: Any, bits: Any, exits: Any, known: Any, safe: Any) -> Any:
    """The walk inside one text automaton, whatever comes after it.

    Sets the bit of every token all of whose bytes belong to the text and that leaves at most `limit` bytes to its
    end, and clears all others; fills exits (int32; of length 0: not wanted) with the trie nodes that follow a place
    where the text may end. Sub-trees made of the characters of a safe chain are not walked but taken whole; where
    that is nearly everything, the row begins full and the walk clears what is refused.

    Returns (number of exits, greatest cost met, to within 3 bytes).
    """
    data, depths, ends = _u8(memory[TRIE_BYTES]), _u8(memory[TRIE_DEPTHS]), _i32(memory[TRIE_ENDS])
    tokens = _i32(memory[TRIE_TOKENS])
    summary_of, summaries = _i32(memory[SUMMARY_OF]), _u64(memory[SUMMARIES])
    path = _i32(memory[PATH])
    table, template, accepts = _i32(text[T_TABLE]), _i32(text[T_TEMPLATE]), _u8(text[T_ACCEPTS])
    num_nodes, num_classes = text[T_NODES], text[T_CLASSES]
    costs = _i32(text[T_COSTS])
    with_exits = exits.shape[0] > 0
    path[0] = sub // num_nodes
    path[INNER_PATH] = sub % num_nodes
    worst = np.int64(0)
    known[:] = -1
    is_full = False
    if path[INNER_PATH] == 0:
        slot = np.int64(path[0]) & (SAFE_SLOTS - 1)
        known[slot] = path[0]
        _find_safe(memory, text, np.int64(path[0]), limit, with_exits, safe, slot * SAFE_WIDTH)
        is_full = safe[slot * SAFE_WIDTH + 2] == 1 and safe[slot * SAFE_WIDTH + 3] >= 4
        is_full = is_full and _num_bits(safe[slot * SAFE_WIDTH]) + _num_bits(safe[slot * SAFE_WIDTH + 1]) > 60
    if is_full:
        bits[:] = carray(_pointer(memory[ALL_TOKENS]), (memory[NUM_WORDS],), np.int32)
    else:
        bits[:] = 0
    num_exits = 0
    node, size = np.int64(0), memory[TRIE_SIZE]
    while node < size:
        depth = np.int64(depths[node])
        state, inner = np.int64(path[depth - 1]), np.int64(path[INNER_PATH + depth - 1])
        if inner == 0 and summary_of[node] >= 0:
            slot = state & (SAFE_SLOTS - 1)
            if known[slot] != state and ends[node] - node >= FIND_SAFE_FROM:
                known[slot] = state
                _find_safe(memory, text, state, limit, with_exits, safe, slot * SAFE_WIDTH)
            if known[slot] == state:
                at = slot * SAFE_WIDTH
                summary = np.int64(summary_of[node]) * 3
                extra = summaries[summary + 2]
                if (
                    (summaries[summary] & ~safe[at]) == 0
                    and (summaries[summary + 1] & ~safe[at + 1]) == 0
                    and (extra & np.uint64(1)) <= safe[at + 2]
                    and (extra >> np.uint64(1)) <= safe[at + 3]
                ):
                    worst = max(worst, np.int64(safe[at + 4]))
                    if not is_full:
                        _set_tokens(memory, node, ends[node], bits)
                    node = np.int64(ends[node])
                    continue
        spelt = np.int64(template[inner * 256 + data[node]])
        alive = False
        if spelt < 0:
            state, inner = np.int64(table[state * num_classes - spelt]), np.int64(0)
            alive = state != 0
        elif spelt > 0:
            inner = spelt
            alive = _text_alive(text, state, spelt)
        if not alive:
            if is_full:
                _clear_tokens(memory, node, ends[node], bits)
            node = np.int64(ends[node])
            continue
        path[depth] = state
        path[INNER_PATH + depth] = inner
        if tokens[node] >= 0:
            cost = np.int64(costs[state]) if inner == 0 else np.int64(_text_cost(text, state * num_nodes + inner))
            worst = max(worst, cost)
            if is_full:
                if cost > limit:
                    _clear_tokens(memory, node, node + 1, bits)
            elif cost <= limit:
                _set_tokens(memory, node, node + 1, bits)
        if with_exits and inner == 0 and accepts[state]:
            child, end = node + 1, np.int64(ends[node])
            while child < end:
                exits[num_exits] = child
                num_exits += 1
                child = np.int64(ends[child])
        node += 1
    return num_exits, worst


@njit(cache=True)
def group_exits(memory: Any, exits: Any, num_exits: Any, starts: Any) -> Any:
    """The exits grouped by their byte; fills starts (int32[257]) with where the group of each byte begins."""
    data = _u8(memory[TRIE_BYTES])
    starts[:] = 0
    for index in range(num_exits):
        starts[np.int64(data[exits[index]]) + 1] += 1
    for byte in range(256):
        starts[byte + 1] += starts[byte]
    grouped = np.empty(num_exits, np.int32)
    place = starts.copy()
    for index in range(num_exits):
        byte = np.int64(data[exits[index]])
        grouped[place[byte]] = exits[index]
        place[byte] += 1
    return grouped


@njit(cache=True)
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
