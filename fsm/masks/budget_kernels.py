"""Compiled: the least number of tokens that complete a text.

The bytes that bring the end nearer (the *nearing* ones: cost(state after) < cost(state)) make a graph without cycles,
small even where a state is wide: out of a JSON string only the quote leads. Over it

    least(accepting state) = 0
    least(state)           = 1 + the minimum of least(target) over the tokens all of whose bytes are nearing

which is the exact minimum over all shortest completions, and an upper bound of the minimum over all. States
are found forwards and settled backwards, in the order of their cost. A settled state keeps its number: `least` is
int32[num_states], the number + 1, or 0 if it is not known yet.

Two kinds of places would make that graph large, and there only one of the nearing bytes is followed (`ways`, int16 by
state: the byte, or ALL): keys in any order are written in the order of the set, and of a text that needs many
characters of any kind the first ones are all the same. That is an upper bound as well; and as the byte depends on the
state alone, so does the number, whoever asks for it and when.

Before a key from which more than MANY_OWED keys must be written, the graph ends (CUT), and each byte counts as a token:
there are too many sets of keys that may be missing to follow all that any of them leads to.

Where the graph is large all the same, a single shortest completion is followed, and its tokens are counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_kernels import sort_beginning
from ..automaton.automaton_kernels import step
from ..compiled import inner_kernel, kernel
from ..memory import (
    ARG,
    BYTE_SETS,
    CAP_STATES,
    COST,
    F_COST,
    F_COUNT,
    K_BYTE,
    K_BYTES,
    K_KEY,
    KIND,
    NEVER_A_ROW,
    NEXT,
    NUM_FORGOTTEN,
    POOL,
    ROWS,
    S_ACCEPTS,
    S_BYTE,
    S_COST,
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
    T_NODES,
    TEXT_WIDTH,
    TEXTS,
    TRIE_BYTES,
    TRIE_DEPTHS,
    TRIE_ENDS,
    TRIE_ROOTS,
    TRIE_SIZE,
    TRIE_TOKENS,
    WHOLE,
    i32,
    i64,
    row_at,
    u8,
    u64,
)
from ..network.any_order_kernels import num_owed
from ..network.key_kernels import cheapest_byte, key_cost
from ..text.counted_kernels import counted_cost, counted_step, next_count

NEED_QUEUE = -16  # besides the codes of `memory`: the queue is full
EXHAUSTED = -17  # the graph is large
NEED_LEAST = -18  # `least` is too short: another thread has made room for more states
MAX_QUEUE = 1 << 17  # states of one completion; beyond that one byte counts as one token
MAX_WORK = 1 << 20  # nodes of the trie and bytes looked at in one search of the graph, some milliseconds
TOTAL_WORK = 64 * MAX_WORK  # and in all searches of one automaton
STATE_WORK = 64  # what the bytes that lead on from a configuration are charged
LOW_BITS = 0xFFFFFFFF
ALL = 256  # as the way of a state: whatever leads nearer to the end
CUT = -1  # as the way of a state: nothing does, here the graph ends
MANY_OWED = 12
MANY_BYTES = 32  # so many may follow where a text needs many characters of any kind
WIDE_WORK = (
    MAX_WORK // 16
)  # nodes of the trie: a text is written in all ways only so near to its end that this suffices


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
        node = key >> 43
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
                    after = np.int64(counted_step(text, sub, byte, count)) if not flags[byte] else np.int64(0)
                    read = next_count(text, count) if after % text[T_NODES] == 0 else count
                    if after and counted_cost(text, after, read) < inside:
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
def _is_cut(memory: Any, state: Any) -> Any:
    """Whether a key of a set begins here, and very many must be written."""
    states, pool, kinds = i32(memory[STATES]), i64(memory[POOL]), i32(memory[KIND])
    at = state * STATE_WIDTH
    for i in range(states[at + S_OFFSET], states[at + S_OFFSET] + states[at + S_SIZE]):
        key = pool[i]
        if kinds[key >> 43] != K_KEY or (key >> STACK_BITS) & SUB_MASK != 1:
            continue
        if num_owed(memory, np.int64(i32(memory[ARG])[key >> 43]), key & STACK_ID_MASK) > MANY_OWED:
            return True
    return False


@inner_kernel
def _find_states(memory: Any, start: Any, least: Any, ways: Any, queue: Any, flags: Any, work: Any) -> Any:
    """Fills queue with cost << 32 | state of every state on a shortest way; their number, or a code for help."""
    states = i32(memory[STATES])
    queue[0] = np.int64(states[start * STATE_WIDTH + S_COST]) << 32 | start
    least[start] = -1
    count, done, target = np.int64(1), np.int64(0), np.int64(0)
    while done < count and target >= 0:
        state = queue[done] & LOW_BITS
        done += 1
        at = state * STATE_WIDTH
        if states[at + S_ACCEPTS]:
            continue
        only = np.int64(states[at + S_BYTE])
        if only < 0:
            ways[state] = only = nearing_bytes(memory, state, flags)
            work[0] -= STATE_WORK * np.int64(states[at + S_SIZE])
        if work[0] < 0:
            target = np.int64(EXHAUSTED)
            break
        for byte in range(only if only < ALL else 0, only + 1 if only < ALL else 256):
            if only == ALL and not flags[byte]:
                continue
            target = np.int64(step(memory, state, np.int64(byte)))
            if target < 0:
                break
            cost = np.int64(states[target * STATE_WIDTH + S_COST])
            if target == 0 or least[target] != 0 or cost >= states[at + S_COST]:
                continue
            if _is_cut(memory, target):
                least[target], ways[target] = cost + 1, CUT
                continue
            if count >= queue.shape[0]:
                target = np.int64(NEED_QUEUE if count < MAX_QUEUE else EXHAUSTED)
                break
            least[target] = -1
            queue[count] = cost << 32 | target
            count += 1
    if target < 0:  # nothing is settled yet
        _unmark(least, queue, np.int64(0), count)
        return target
    return count


@inner_kernel
def _unmark(least: Any, queue: Any, begin: Any, end: Any) -> None:
    """Forgets that the states of queue[begin:end] were found."""
    for index in range(begin, end):
        least[queue[index] & LOW_BITS] = 0


@inner_kernel
def _nearer(memory: Any, state: Any, byte: Any, ways: Any, num_forgotten: Any) -> Any:
    """The state after a byte if that is known, followed and nearer to the end, else 0; or a code for help.

    Known is what was found since `num_forgotten` was that of the memory; if rows have given way since, it is looked up.
    """
    states = i32(memory[STATES])
    at = state * STATE_WIDTH
    only = states[at + S_BYTE]
    if ways[state] == CUT:
        return 0
    if only >= 0:
        target = np.int64(states[at + S_NEXT]) if only == byte else np.int64(0)
    elif ways[state] != ALL and ways[state] != byte:
        return 0
    else:
        row = np.int64(states[at + S_ROW])
        target = np.int64(row_at(i64(memory[ROWS]), row)[byte]) if row >= 0 else np.int64(-1)
        if target < 0 and (row == NEVER_A_ROW or memory[NUM_FORGOTTEN] != num_forgotten):
            target = np.int64(step(memory, state, byte))
            if target < 0:
                return target
    if target <= 0 or states[target * STATE_WIDTH + S_COST] >= states[at + S_COST]:
        return 0
    return target


@inner_kernel
def _settle(memory: Any, state: Any, least: Any, ways: Any, path: Any, work: Any, num_forgotten: Any) -> Any:
    """1 + least(state), once it is known for all states nearer to the end; or a code for help."""
    data, depths = u8(memory[WHOLE + TRIE_BYTES]), u8(memory[WHOLE + TRIE_DEPTHS])
    ends, tokens = i32(memory[WHOLE + TRIE_ENDS]), i32(memory[WHOLE + TRIE_TOKENS])
    roots = i32(memory[WHOLE + TRIE_ROOTS])
    states = i32(memory[STATES])
    at = state * STATE_WIDTH
    best = np.int64(states[at + S_COST])  # as many bytes, each of them a token
    path[0] = state
    only = np.int64(states[at + S_BYTE])
    if only < 0:
        only = np.int64(ways[state])
    for byte in range(only if only < ALL else 0, only + 1 if only < ALL else 256):
        node = np.int64(roots[byte])
        first = np.int64(_nearer(memory, state, byte, ways, num_forgotten)) if node >= 0 else np.int64(0)
        if first < 0:
            return first
        if first == 0:
            continue
        end = np.int64(ends[node])
        while node < end:
            work[0] -= 1
            depth = np.int64(depths[node])
            target = np.int64(_nearer(memory, np.int64(path[depth - 1]), np.int64(data[node]), ways, num_forgotten))
            if target < 0:
                return target
            if target == 0:
                node = np.int64(ends[node])
                continue
            path[depth] = target
            if tokens[node] >= 0 and least[target] > 0:
                best = min(best, np.int64(least[target]))
            node += 1
    return best + 1


@inner_kernel
def _follow(memory: Any, start: Any, least: Any, ways: Any, queue: Any, flags: Any) -> Any:
    """Settles the states on one shortest completion; 0, or a code for help."""
    states = i32(memory[STATES])
    state, count, byte = np.int64(start), np.int64(0), np.int64(0)
    while least[state] <= 0:
        at = state * STATE_WIDTH
        least[state] = states[at + S_COST] + 1  # unless something better is found: as many bytes
        if states[at + S_ACCEPTS]:
            break
        if count >= queue.shape[0]:
            _unmark(least, queue, np.int64(0), count)
            least[state] = 0
            if count < MAX_QUEUE:
                return NEED_QUEUE
            least[start] = states[start * STATE_WIDTH + S_COST] + 1
            return 0
        only = np.int64(states[at + S_BYTE])
        if only >= 0:
            byte = only
        target = np.int64(step(memory, state, byte))
        if only < 0 and target >= 0 and (target == 0 or states[target * STATE_WIDTH + S_COST] >= states[at + S_COST]):
            byte = np.int64(nearing_bytes(memory, state, flags))
            if byte == ALL:
                byte = np.int64(0x20)
                while byte < 0x11F and not flags[byte & 0xFF]:
                    byte += 1
                byte &= 0xFF
            target = np.int64(step(memory, state, byte))
        ways[state] = byte
        queue[count] = byte << 32 | state
        count += 1
        if target < 0:
            _unmark(least, queue, np.int64(0), count)
            return target
        if target == 0 or states[target * STATE_WIDTH + S_COST] >= states[at + S_COST]:
            break
        state = target
    _count_tokens(memory, state, least, queue, count)
    return 0


@inner_kernel
def _count_tokens(memory: Any, end: Any, least: Any, queue: Any, count: Any) -> None:
    """Settles the states of queue[:count] (byte << 32 | state), which lead one to the next and the last to `end`."""
    data, ends = u8(memory[WHOLE + TRIE_BYTES]), i32(memory[WHOLE + TRIE_ENDS])
    tokens, roots = i32(memory[WHOLE + TRIE_TOKENS]), i32(memory[WHOLE + TRIE_ROOTS])
    for first in range(count - 1, -1, -1):
        state = queue[first] & LOW_BITS
        best = np.int64(least[state]) - 1
        node = np.int64(roots[queue[first] >> 32])
        index = np.int64(first)
        while node >= 0:
            index += 1
            if tokens[node] >= 0:
                best = min(best, np.int64(least[queue[index] & LOW_BITS if index < count else end]))
            if index == count:
                break
            byte, last = queue[index] >> 32, np.int64(ends[node])
            node += 1
            while node < last and data[node] != byte:
                node = np.int64(ends[node])
            if node >= last:
                node = np.int64(-1)
        least[state] = best + 1


@inner_kernel
def find_least(memory: Any, start: Any, least: Any, ways: Any, queue: Any, path: Any, flags: Any, work: Any) -> Any:
    """See `least_tokens`."""
    if least[start] > 0:
        return least[start] - 1
    states = i32(memory[STATES])
    if _is_cut(memory, start):
        least[start], ways[start] = states[start * STATE_WIDTH + S_COST] + 1, CUT
        return least[start] - 1
    work[0] = min(np.int64(MAX_WORK), work[1])
    given = work[0]
    num_forgotten = memory[NUM_FORGOTTEN]
    count = _find_states(memory, start, least, ways, queue, flags, work)
    if count > 0:
        sort_beginning(queue, count)
        for index in range(count):
            if work[0] < 0:
                _unmark(least, queue, np.int64(index), count)
                break
            state = queue[index] & LOW_BITS
            settled = np.int64(1)
            if not states[state * STATE_WIDTH + S_ACCEPTS]:
                settled = np.int64(_settle(memory, state, least, ways, path, work, num_forgotten))
            if settled < 0:
                _unmark(least, queue, np.int64(index), count)
                return settled
            least[state] = settled
    if count > 0 or count == EXHAUSTED:  # a search that has to be begun anew is not charged
        work[1] -= given - max(work[0], np.int64(0))
    if least[start] <= 0 and (count > 0 or count == EXHAUSTED):
        count = _follow(memory, start, least, ways, queue, flags)
    return count if count < 0 else least[start] - 1


@kernel
def least_tokens(memory: Any, state: Any, least: Any, ways: Any, queue: Any, path: Any, flags: Any, work: Any) -> Any:
    """A number of tokens that surely suffices to reach acceptance, or a negative code for help.

    Args:
        least, ways: int32, int16; NEED_LEAST if they are shorter than there is room for states.
        queue: int64[n], path: int32[256], flags: uint8[256]; scratch.
        work: int64[2], the second being what is left of TOTAL_WORK.
    """
    if least.shape[0] < memory[CAP_STATES]:
        return np.int64(NEED_LEAST)
    return find_least(memory, state, least, ways, queue, path, flags, work)
