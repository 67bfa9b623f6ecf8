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

Where many keys must be written the graph ends (CUT), and `set_bound_kernels` says how many tokens suffice from there.

Where the graph is large all the same, a single shortest completion is followed, and its tokens are counted. What one
call may look at is bounded (`work`), so that no row and no minimum takes long, however much text is left to write.

A search that asks for room goes on where it stopped when it is called again with the same state. While it has not
ended, `least` of what it has found is -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_kernels import sort_beginning
from ..automaton.automaton_kernels import step
from ..compiled import inner_kernel, kernel
from ..memory import (
    CAP_STATES,
    NEVER_A_ROW,
    NUM_FORGOTTEN,
    ROWS,
    S_ACCEPTS,
    S_BYTE,
    S_COST,
    S_NEXT,
    S_ROW,
    S_SIZE,
    STATE_WIDTH,
    STATES,
    TRIE_BYTES,
    TRIE_DEPTHS,
    TRIE_ENDS,
    TRIE_ROOTS,
    TRIE_TOKENS,
    WHOLE,
    i32,
    i64,
    row_at,
    u8,
)
from .nearing_kernels import ALL, first_nearing_byte, nearing_bytes
from .set_bound_kernels import CUT, bound_at_cut

NEED_QUEUE = -16  # besides the codes of `memory`: the queue is full
EXHAUSTED = -17  # the graph is large
NEED_LEAST = -18  # `least` is too short: another thread has made room for more states
MAX_QUEUE = 1 << 17  # states of one completion; behind them one byte counts as one token
# of `work`, whose first two are in `set_bound_kernels`: the one that was asked for so, or -1; what may still be looked
# at in this search, in this call, and in all searches; and of the search: how far it is, its beginning, how many states
# it has found, how many of these are done, `NUM_FORGOTTEN` when it began, and what it was given; the most that one for
# a part has taken; and the state at which `_follow` goes on, or 0
ASKING, SEARCH_LEFT, CALL_LEFT, TOTAL_LEFT, PHASE, STARTED, FOUND_STATES, DONE_STATES, FORGOTTEN = range(2, 11)
GIVEN, PART_WORK, FOLLOWED, WORK_SIZE = range(11, 15)
IDLE, FINDING, SETTLING, FOLLOWING = range(4)
MAX_WORK = 1 << 20  # nodes of the trie looked at in one call, about 10 ms
LEAST_WORK = 1 << 11  # in one search, however many there are
MAX_PART_WORK = 1 << 16  # in a search for a part, so that any search can take twice as much as any of these took
TOTAL_WORK = 64 * MAX_WORK  # in all searches of one automaton
STATE_WORK = 64  # what finding the bytes that lead on from a configuration is charged
STEP_WORK = 32  # what a step from a state to another is charged
LOW_BITS = 0xFFFFFFFF


@inner_kernel
def _find_states(memory: Any, least: Any, ways: Any, parts: Any, queue: Any, flags: Any, work: Any) -> Any:
    """Fills queue with cost << 32 | state of every state on a shortest way; 0, or a code for help."""
    states = i32(memory[STATES])
    while work[DONE_STATES] < work[FOUND_STATES]:
        state = queue[work[DONE_STATES]] & LOW_BITS
        at = state * STATE_WIDTH
        if states[at + S_ACCEPTS]:
            work[DONE_STATES] += 1
            continue
        only = np.int64(states[at + S_BYTE])
        if only < 0:
            ways[state] = only = nearing_bytes(memory, state, flags)
            work[SEARCH_LEFT] -= STATE_WORK * np.int64(states[at + S_SIZE])
        for byte in range(only if only < ALL else 0, only + 1 if only < ALL else 256):
            if only == ALL and not flags[byte]:
                continue
            work[SEARCH_LEFT] -= STEP_WORK
            if work[SEARCH_LEFT] < 0:
                return EXHAUSTED
            target = np.int64(step(memory, state, np.int64(byte)))
            if target < 0:
                return target
            cost = np.int64(states[target * STATE_WIDTH + S_COST])
            if target == 0 or least[target] != 0 or cost >= states[at + S_COST]:
                continue
            bound = np.int64(bound_at_cut(memory, target, least, ways, parts, work))
            if bound < 0:
                return bound
            if bound > 0:
                least[target], ways[target] = bound, CUT
                continue
            count = work[FOUND_STATES]
            if count >= queue.shape[0]:
                return NEED_QUEUE if count < MAX_QUEUE else EXHAUSTED
            least[target] = -1
            queue[count] = cost << 32 | target
            work[FOUND_STATES] = count + 1
        work[DONE_STATES] += 1
    return 0


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
            depth = np.int64(depths[node])
            above = np.int64(path[depth - 1])
            work[SEARCH_LEFT] -= STEP_WORK if states[above * STATE_WIDTH + S_ROW] == NEVER_A_ROW else 1
            target = np.int64(_nearer(memory, above, np.int64(data[node]), ways, num_forgotten))
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
def _follow(memory: Any, start: Any, least: Any, ways: Any, parts: Any, queue: Any, flags: Any, work: Any) -> Any:
    """Settles the states on one shortest completion; 0, or a code for help, after which it goes on where it was."""
    states = i32(memory[STATES])
    state, count = np.int64(start), np.int64(0)
    if work[FOLLOWED] > 0:
        state, count = work[FOLLOWED], work[DONE_STATES]
        work[FOLLOWED] = 0
        if count > 0:
            least[start] = states[start * STATE_WIDTH + S_COST] + 1
    while least[state] <= 0:
        bound = np.int64(bound_at_cut(memory, state, least, ways, parts, work)) if state != start else np.int64(0)
        if bound < 0:
            _unmark(least, queue, np.int64(0), count)
            return bound
        if bound > 0:
            least[state], ways[state] = bound, CUT
            break
        at = state * STATE_WIDTH
        least[state] = states[at + S_COST] + 1  # unless something better is found: as many bytes
        if states[at + S_ACCEPTS]:
            break
        if count >= queue.shape[0]:
            if count < MAX_QUEUE:
                _pause(start, state, count, least, work)
                return NEED_QUEUE
            break
        byte = np.int64(states[at + S_BYTE])
        if byte < 0:
            byte = np.int64(first_nearing_byte(memory, state, flags))
        target = np.int64(step(memory, state, byte))
        ways[state] = byte
        if target < 0:
            _pause(start, state, count, least, work)
            return target
        queue[count] = byte << 32 | state
        count += 1
        if target == 0 or states[target * STATE_WIDTH + S_COST] >= states[at + S_COST]:
            break
        state = target
    _count_tokens(memory, state, least, queue, count)
    return 0


@inner_kernel
def _pause(start: Any, state: Any, count: Any, least: Any, work: Any) -> None:
    """Notes how far `_follow` has come. To whoever asks for a state behind it, its bytes are a bound as well."""
    least[start] = least[state] = 0
    work[FOLLOWED], work[DONE_STATES] = state, count


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
def find_least(memory: Any, start: Any, room: Any) -> Any:
    """See `least_tokens`."""
    least, ways, parts, queue, _, flags, work = room
    if least[start] > 0:
        return least[start] - 1
    if work[PHASE] == IDLE or work[STARTED] != start:
        _end(least, queue, work)
        if start != work[ASKING]:
            bound = np.int64(bound_at_cut(memory, start, least, ways, parts, work))
            if bound < 0:
                return bound
            if bound > 0:
                least[start], ways[start] = bound, CUT
                return bound - 1
        _begin(memory, start, least, queue, work)
    found = np.int64(_search(memory, room))
    if found == EXHAUSTED:
        if work[PHASE] != FOLLOWING:
            _end(least, queue, work)
            work[PHASE], work[STARTED], work[FOLLOWED] = FOLLOWING, start, 0
        found = np.int64(_follow(memory, start, least, ways, parts, queue, flags, work))
    if found < 0:
        return found
    _end(least, queue, work)
    return least[start] - 1


@inner_kernel
def _begin(memory: Any, start: Any, least: Any, queue: Any, work: Any) -> None:
    """Begins a search."""
    queue[0] = np.int64(i32(memory[STATES])[start * STATE_WIDTH + S_COST]) << 32 | start
    least[start] = -1
    work[PHASE], work[STARTED], work[FOUND_STATES], work[DONE_STATES] = FINDING, start, 1, 0
    work[FORGOTTEN] = memory[NUM_FORGOTTEN]
    least_work = max(np.int64(LEAST_WORK), 2 * work[PART_WORK])
    given = max(min(work[CALL_LEFT], work[TOTAL_LEFT]), least_work) if start != work[ASKING] else MAX_PART_WORK
    work[GIVEN] = work[SEARCH_LEFT] = given


@inner_kernel
def _end(least: Any, queue: Any, work: Any) -> None:
    """Ends the search, and forgets what it has found and not settled."""
    if work[PHASE] == FINDING:
        _unmark(least, queue, np.int64(0), work[FOUND_STATES])
    elif work[PHASE] == SETTLING:
        _unmark(least, queue, work[DONE_STATES], work[FOUND_STATES])
    if work[PHASE] == FINDING or work[PHASE] == SETTLING:
        used = work[GIVEN] - max(work[SEARCH_LEFT], np.int64(0))
        work[CALL_LEFT] -= used
        work[TOTAL_LEFT] = max(work[TOTAL_LEFT] - used, np.int64(0))
        if work[STARTED] == work[ASKING]:
            work[PART_WORK] = max(work[PART_WORK], used)
    work[PHASE] = IDLE


@inner_kernel
def _search(memory: Any, room: Any) -> Any:
    """Finds the graph and settles its states; 0, EXHAUSTED, or a code for help."""
    least, ways, parts, queue, path, flags, work = room
    if work[PHASE] == FOLLOWING:
        return EXHAUSTED
    if work[PHASE] == FINDING:
        found = np.int64(_find_states(memory, least, ways, parts, queue, flags, work))
        if found < 0:
            return found
        sort_beginning(queue, work[FOUND_STATES])
        work[PHASE], work[DONE_STATES] = SETTLING, 0
    while work[DONE_STATES] < work[FOUND_STATES]:
        if work[SEARCH_LEFT] < 0:
            return EXHAUSTED
        state = queue[work[DONE_STATES]] & LOW_BITS
        settled = np.int64(1)
        if not i32(memory[STATES])[state * STATE_WIDTH + S_ACCEPTS]:
            settled = np.int64(_settle(memory, state, least, ways, path, work, work[FORGOTTEN]))
        if settled < 0:
            return settled
        least[state] = settled
        work[DONE_STATES] += 1
    return 0


@kernel
def least_tokens(memory: Any, state: Any, room: Any) -> Any:
    """A number of tokens that surely suffices to reach acceptance, or a negative code for help.

    Args:
        room: the tuple of what follows.
        least, ways: int32, int16; NEED_LEAST if they are shorter than there is room for states.
        parts: int32, by member of a set; see `set_bound_kernels`.
        queue: int64[n], path: int32[256], flags: uint8[256]; scratch, but for a search that has not ended.
        work: int64[WORK_SIZE], what there is to know of the search and of what may be looked at.
    """
    if room[0].shape[0] < memory[CAP_STATES]:
        return np.int64(NEED_LEAST)
    return find_least(memory, state, room)
