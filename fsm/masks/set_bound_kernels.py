"""Compiled: how many tokens suffice where many keys must be written in any order.

There are 2^n sets of n keys that may be missing, too many to search from each. But what a key costs does not depend on
the others, if a token may end behind the quote that opens each of them:

    {"  id":7,"  name":"","  note":""}        the set is "cut" where the quote of a key has been read
      └ part ─┘└─ part ──┘└── rest ──┘

    bound(set) = the parts of its keys but the last few  +  bound(set of the last few)

A part is found once for each key: the least number of tokens from a set of this key and another one to the set of the
other one, on a stack of its own. It is an upper bound where some token goes on beyond the quote. The last keys are
searched to the end of the text: FEW of them, or only one where the end is far away. To find a part all keys are looked
at, and a stack of all of them is kept; so with thousands of keys (PARTS_WORK) those behind count a token for each byte.

From each set some token leads nearer by one: writing the first key takes what its part says, and leaves a set whose
bound is less by that. All of this holds for sets whose keys are told apart behind their first byte, of which no number
is demanded beyond the required ones, and whose keys imply no others; and where no other set begins at the same place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..automaton.automaton_kernels import step
from ..compiled import call, inner_kernel
from ..memory import (
    A_KEY,
    A_MEMBERS,
    A_MISSING,
    A_NODE,
    A_NUM_MEMBERS,
    A_NUM_TEXTS,
    A_TRIE,
    ARG,
    EDGES,
    ENTER,
    F_COST,
    K_EDGES,
    K_KEY,
    K_NUM_EDGES,
    KIND,
    LISTS,
    M_COST,
    M_EXCLUDED,
    M_NUM_EXCLUDED,
    M_NUM_IMPLIED,
    MEMBER_WIDTH,
    MEMBERS,
    NODE_SHIFT,
    POOL,
    S_COST,
    S_OFFSET,
    S_SIZE,
    SCRATCH,
    SET_WIDTH,
    SETS,
    STACK_BITS,
    STACK_ID_MASK,
    STACK_WIDTH,
    STACKS,
    STATE_WIDTH,
    STATES,
    SUB_MASK,
    THIS,
    TRANSITION,
    TRIE_WIDTH,
    TRIES,
    WORD_BITS,
    i32,
    i64,
)
from ..network.any_order_kernels import num_owed, pack, unpack
from ..network.key_kernels import key_cost
from ..network.stack_kernels import push_frame

NEED_BOUND = -19  # the bound of work[ASKED] has to be found first
# of `work`, see `budget_kernels`: the state asked for, and how many members may still be looked at in search of parts
ASKED, PARTS_LEFT = range(2)
PARTS_WORK = 1 << 23  # about a quarter of a second
CUT = -1  # as the way of a state: nothing leads nearer, here a search ends
FEW = 4
FAR = 256  # bytes to the end of the text
MANY_OWED = 12  # where the sets cannot be cut: beyond that each byte counts as a token
APART = -7  # the count of the frame at the bottom of a stack on which a part is found


@inner_kernel
def bound_at_cut(memory: Any, state: Any, least: Any, ways: Any, parts: Any, work: Any) -> Any:
    """1 + a number of tokens that suffices if a search ends at the state, 0 if it does not; or a code for help."""
    key, is_alone = _key_of(memory, state)
    if key < 0:
        return np.int64(0)
    row, top = np.int64(i32(memory[ARG])[key >> NODE_SHIFT]), key & STACK_ID_MASK
    place, cost = (key >> STACK_BITS) & SUB_MASK, np.int64(i32(memory[STATES])[state * STATE_WIDTH + S_COST])
    if key_cost(memory, row, top, place - 1) > cost:
        return np.int64(0)  # something else is nearer to the end
    if is_alone and _can_be_cut(memory, row):
        if place != 2 or not _is_cut(memory, row, top):
            return np.int64(0)
        found = np.int64(_sum_of_parts(memory, row, top, least, ways, parts, work))
        return min(found, cost + 1)
    return cost + 1 if place == 1 and num_owed(memory, row, top) > MANY_OWED else np.int64(0)


@inner_kernel
def _key_of(memory: Any, state: Any) -> Any:
    """A configuration in the text of a member (-1: there is none), and whether there is no other of the kind."""
    states, pool, kinds = i32(memory[STATES]), i64(memory[POOL]), i32(memory[KIND])
    at = state * STATE_WIDTH
    found, count = np.int64(-1), 0
    for i in range(states[at + S_OFFSET], states[at + S_OFFSET] + states[at + S_SIZE]):
        if kinds[pool[i] >> NODE_SHIFT] == K_KEY:
            found = pool[i]
            count += 1
    return found, count == 1


@inner_kernel
def _can_be_cut(memory: Any, row: Any) -> Any:
    """Whether the keys of a set may be counted one by one, whatever has been written of it."""
    sets, members, tries = i32(memory[SETS]), i32(memory[MEMBERS]), i32(memory[TRIES])
    at = row * SET_WIDTH
    root = np.int64(sets[at + A_TRIE])
    if sets[at + A_MISSING] or sets[at + A_NUM_TEXTS] < sets[at + A_NUM_MEMBERS]:
        return False
    if tries[root * TRIE_WIDTH + K_NUM_EDGES] != 1:
        return False
    if i32(memory[EDGES])[2 * tries[root * TRIE_WIDTH + K_EDGES] + 1] != root + 1:
        return False
    for member in range(sets[at + A_MEMBERS], sets[at + A_MEMBERS] + sets[at + A_NUM_MEMBERS]):
        if members[member * MEMBER_WIDTH + M_NUM_IMPLIED]:
            return False
    return True


@inner_kernel
def _is_cut(memory: Any, row: Any, top: Any) -> Any:
    """Whether so many keys are owed that not all of them are the last few."""
    count = num_owed(memory, row, top)
    return count > FEW or (count > 1 and i32(memory[STACKS])[top * STACK_WIDTH + F_COST] > FAR)


@inner_kernel
def _is_owed(memory: Any, member: Any) -> Any:
    """Whether a member of the set in SCRATCH must be written."""
    return i32(memory[SCRATCH])[3 + 2 * (member // WORD_BITS)] >> (member % WORD_BITS) & 1


@inner_kernel
def _first_of_rest(memory: Any, row: Any, top: Any) -> Any:
    """The first of the last few members owed, and the last one; leaves the set in SCRATCH."""
    unpack(memory, row, top)
    sets, members = i32(memory[SETS]), i32(memory[MEMBERS])
    base, count = np.int64(sets[row * SET_WIDTH + A_MEMBERS]), np.int64(sets[row * SET_WIDTH + A_NUM_MEMBERS])
    cost = np.int64(i32(memory[STACKS])[top * STACK_WIDTH + F_COST])
    for number in range(count):
        if _is_owed(memory, np.int64(number)):
            cost -= members[(base + number) * MEMBER_WIDTH + M_COST]
    first, last, num_taken, member = np.int64(-1), np.int64(-1), 0, np.int64(count - 1)
    while member >= 0 and num_taken < FEW:
        if _is_owed(memory, member):
            cost += members[(base + member) * MEMBER_WIDTH + M_COST]
            if num_taken > 0 and cost > FAR:
                break
            first = member
            last = member if num_taken == 0 else last
            num_taken += 1
        member = np.int64(member - 1)
    return first, last


@inner_kernel
def _sum_of_parts(memory: Any, row: Any, top: Any, least: Any, ways: Any, parts: Any, work: Any) -> Any:
    """1 + the bound of a set that is cut, or a code for help."""
    base = np.int64(i32(memory[SETS])[row * SET_WIDTH + A_MEMBERS])
    first, last = _first_of_rest(memory, row, top)
    total = np.int64(0)
    for member in range(first):
        if not _is_owed(memory, np.int64(member)):
            continue
        if parts[base + member] == 0:
            found = _find_part(memory, row, top, np.int64(member), last, least, ways, parts, work)
            if found < 0:
                return found
            unpack(memory, row, top)
        total += parts[base + member]
    below = unpack(memory, row, top)
    for member in range(first):
        if _is_owed(memory, np.int64(member)):
            _strike(memory, base, np.int64(member))
    rest = _state_of_scratch(memory, row, below)
    if rest < 0:
        return rest
    if least[rest] <= 0:
        work[ASKED] = rest
        return np.int64(NEED_BOUND)
    return total + least[rest]


@inner_kernel
def _find_part(
    memory: Any, row: Any, top: Any, member: Any, last: Any, least: Any, ways: Any, parts: Any, work: Any
) -> Any:
    """Fills in the part of a member; 0, or a code for help."""
    sets = i32(memory[SETS])
    count, base = np.int64(sets[row * SET_WIDTH + A_NUM_MEMBERS]), np.int64(sets[row * SET_WIDTH + A_MEMBERS])
    cost = np.int64(i32(memory[MEMBERS])[(base + member) * MEMBER_WIDTH + M_COST])
    if work[PARTS_LEFT] < count:
        parts[base + member] = cost
        return np.int64(0)
    work[PARTS_LEFT] -= count
    below = push_frame(
        memory, np.int64(sets[row * SET_WIDTH + A_NODE]), np.int64(APART), np.int64(0), np.int64(0), np.int64(0)
    )
    if below < 0:
        return below
    unpack(memory, row, top)
    for other in range(count):
        if other != member and other != last:
            _strike(memory, base, np.int64(other))
    pair = _state_of_scratch(memory, row, below)
    if pair < 0:
        return pair
    unpack(memory, row, top)
    for other in range(count):
        if other != last:
            _strike(memory, base, np.int64(other))
    end = _state_of_scratch(memory, row, below)
    if end < 0:
        return end
    if least[pair] <= 0:
        least[end], ways[end] = 1, CUT
        work[ASKED] = pair
        return np.int64(NEED_BOUND)
    parts[base + member] = min(np.int64(least[pair]) - 1, cost)
    return np.int64(0)


@inner_kernel
def _strike(memory: Any, base: Any, member: Any) -> None:
    """As if a member of the set in SCRATCH had been written."""
    members, lists, scratch = i32(memory[MEMBERS]), i32(memory[LISTS]), i32(memory[SCRATCH])
    at, bit = 2 + 2 * (member // WORD_BITS), np.int32(1) << np.int32(member % WORD_BITS)
    scratch[at] |= bit
    scratch[at + 1] &= ~bit
    record = (base + member) * MEMBER_WIDTH
    for j in range(members[record + M_EXCLUDED], members[record + M_EXCLUDED] + members[record + M_NUM_EXCLUDED]):
        scratch[2 + 2 * (lists[j] // WORD_BITS)] |= np.int32(1) << np.int32(lists[j] % WORD_BITS)


@inner_kernel
def _state_of_scratch(memory: Any, row: Any, below: Any) -> Any:
    """The state behind the quote that opens a key of the set in SCRATCH."""
    stack = pack(memory, row, below)
    if stack < 0:
        return stack
    sets, tries = i32(memory[SETS]), i32(memory[TRIES])
    node = np.int64(sets[row * SET_WIDTH + A_KEY])
    state = np.int64(call(memory[TRANSITION], memory[THIS], np.int64(ENTER), node, stack))
    if state < 0:
        return state
    edge = np.int64(tries[np.int64(sets[row * SET_WIDTH + A_TRIE]) * TRIE_WIDTH + K_EDGES])
    return step(memory, state, np.int64(i32(memory[EDGES])[2 * edge]))
