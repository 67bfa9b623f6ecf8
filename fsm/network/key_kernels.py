"""Compiled: the texts of the members of a set, byte by byte, and what is left to write from inside one.

A place is a node of the set's trie (see `any_order`), counted from its root. A byte is let through if it leads to the
text of a member that can still be written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel
from ..memory import (
    A_MEMBERS,
    A_NUM_MEMBERS,
    A_OTHERS_COST,
    A_SEPARATOR_COST,
    A_TRIE,
    EDGES,
    F_COST,
    K_DEPTH,
    K_EDGES,
    K_END,
    K_ENDS,
    K_FIRST,
    K_NUM_EDGES,
    LISTS,
    M_COST,
    M_IMPLIED,
    M_NUM_IMPLIED,
    MEMBER_WIDTH,
    MEMBERS,
    NEVER,
    SCRATCH,
    SET_WIDTH,
    SETS,
    STACK_WIDTH,
    STACKS,
    TRIE_WIDTH,
    TRIES,
    UNBOUNDED,
    WORD_BITS,
    i32,
)
from .any_order_kernels import cost_of_missing, is_any_open, may_write_others, unpack


@inner_kernel
def key_step(memory: Any, row: Any, top: Any, place: Any, byte: Any) -> Any:
    """Where a byte leads from a place in the trie: to a place (>= 0), to a member (~member), or nowhere (UNBOUNDED)."""
    tries, edges = i32(memory[TRIES]), i32(memory[EDGES])
    root = np.int64(i32(memory[SETS])[row * SET_WIDTH + A_TRIE])
    record = (root + place) * TRIE_WIDTH
    begin = tries[record + K_EDGES]
    for edge in range(begin, begin + tries[record + K_NUM_EDGES]):
        if edges[2 * edge] == byte:
            target = np.int64(edges[2 * edge + 1])
            if target < 0:
                return target if is_any_open(memory, row, top, ~target, ~target + 1) else np.int64(UNBOUNDED)
            record = target * TRIE_WIDTH
            first, end = np.int64(tries[record + K_FIRST]), np.int64(tries[record + K_END])
            return target - root if is_any_open(memory, row, top, first, end) else np.int64(UNBOUNDED)
    return np.int64(UNBOUNDED)


@inner_kernel
def mark_live_keys(memory: Any, row: Any, top: Any, place: Any, live: Any) -> None:
    """Sets live[b] (uint8[256]) to 1 for every byte that a member's text may go on with."""
    tries, edges = i32(memory[TRIES]), i32(memory[EDGES])
    record = (np.int64(i32(memory[SETS])[row * SET_WIDTH + A_TRIE]) + place) * TRIE_WIDTH
    begin = tries[record + K_EDGES]
    for edge in range(begin, begin + tries[record + K_NUM_EDGES]):
        byte = np.int64(edges[2 * edge])
        if key_step(memory, row, top, place, byte) != UNBOUNDED:
            live[byte] = 1


@inner_kernel
def only_byte(memory: Any, row: Any, top: Any, place: Any) -> Any:
    """The one byte that a member's text may go on with; -1 if there are several."""
    tries, edges = i32(memory[TRIES]), i32(memory[EDGES])
    record = (np.int64(i32(memory[SETS])[row * SET_WIDTH + A_TRIE]) + place) * TRIE_WIDTH
    begin = tries[record + K_EDGES]
    found = np.int64(-1)
    for edge in range(begin, begin + tries[record + K_NUM_EDGES]):
        byte = np.int64(edges[2 * edge])
        if key_step(memory, row, top, place, byte) != UNBOUNDED:
            if found >= 0:
                return np.int64(-1)
            found = byte
    return found


@inner_kernel
def goes_on(memory: Any, row: Any, top: Any, place: Any) -> Any:
    """Whether the text of a member that may be written goes on from a place in the trie."""
    tries = i32(memory[TRIES])
    record = (np.int64(i32(memory[SETS])[row * SET_WIDTH + A_TRIE]) + place) * TRIE_WIDTH
    first = np.int64(tries[record + K_FIRST]) + tries[record + K_ENDS]
    return is_any_open(memory, row, top, first, np.int64(tries[record + K_END]))


@inner_kernel
def member_that_ends(memory: Any, row: Any, top: Any, place: Any) -> Any:
    """The member whose text ends at a place in the trie, if it may be written; otherwise -1."""
    tries = i32(memory[TRIES])
    record = (np.int64(i32(memory[SETS])[row * SET_WIDTH + A_TRIE]) + place) * TRIE_WIDTH
    member = np.int64(tries[record + K_FIRST])
    if tries[record + K_ENDS] and is_any_open(memory, row, top, member, member + 1):
        return member
    return np.int64(-1)


@inner_kernel
def key_cost(memory: Any, row: Any, top: Any, place: Any) -> Any:
    """Bytes to the end of the text from a place in the trie, where a member's text goes on."""
    sets, tries, stacks = i32(memory[SETS]), i32(memory[TRIES]), i32(memory[STACKS])
    record = (np.int64(sets[row * SET_WIDTH + A_TRIE]) + place) * TRIE_WIDTH
    first, end = np.int64(tries[record + K_FIRST]) + tries[record + K_ENDS], np.int64(tries[record + K_END])
    read = np.int64(sets[row * SET_WIDTH + A_SEPARATOR_COST]) + tries[record + K_DEPTH]
    return np.int64(stacks[top * STACK_WIDTH + F_COST]) - read + _least_extra(memory, row, top, first, end)[0]


@inner_kernel
def cheapest_byte(memory: Any, row: Any, top: Any, place: Any) -> Any:
    """The byte that the text of a member goes on with, of those that `key_cost` is about the first one."""
    tries, edges = i32(memory[TRIES]), i32(memory[EDGES])
    record = (np.int64(i32(memory[SETS])[row * SET_WIDTH + A_TRIE]) + place) * TRIE_WIDTH
    first, end = np.int64(tries[record + K_FIRST]) + tries[record + K_ENDS], np.int64(tries[record + K_END])
    member = _least_extra(memory, row, top, first, end)[1]
    edge = np.int64(tries[record + K_EDGES])
    while True:
        target = np.int64(edges[2 * edge + 1])
        if target < 0 and ~target == member:
            break
        if target >= 0 and tries[target * TRIE_WIDTH + K_FIRST] <= member < tries[target * TRIE_WIDTH + K_END]:
            break
        edge += 1
    return np.int64(edges[2 * edge])


@inner_kernel
def _least_extra(memory: Any, row: Any, top: Any, first: Any, end: Any) -> Any:
    """The least number of bytes by which writing one of the members first .. end - 1 exceeds what must be written, and
    the first of the members for which that is so (-1: there is none)."""
    unpack(memory, row, top)
    scratch, members = i32(memory[SCRATCH]), i32(memory[MEMBERS])
    base = np.int64(i32(memory[SETS])[row * SET_WIDTH + A_MEMBERS])
    for member in range(first, end):
        if scratch[3 + 2 * (member // WORD_BITS)] >> (member % WORD_BITS) & 1:
            return np.int64(0), np.int64(member)
    best, cheapest = np.int64(NEVER), np.int64(-1)
    if scratch[0] == 0:
        return best, cheapest
    replaced = cost_of_missing(memory, row)[1]
    lists = i32(memory[LISTS])
    for member in range(first, end):
        if scratch[2 + 2 * (member // WORD_BITS)] >> (member % WORD_BITS) & 1:
            continue
        record = (base + member) * MEMBER_WIDTH
        extra = np.int64(members[record + M_COST])
        extra -= min(extra, replaced)
        begin = members[record + M_IMPLIED]
        for j in range(begin, begin + members[record + M_NUM_IMPLIED]):
            at, implied_bit = 2 + 2 * (np.int64(lists[j]) // WORD_BITS), lists[j] % WORD_BITS
            if not (scratch[at] | scratch[at + 1]) >> implied_bit & 1:
                extra += members[(base + lists[j]) * MEMBER_WIDTH + M_COST]
        if extra < best:
            best, cheapest = extra, np.int64(member)
    return best, cheapest


@inner_kernel
def cost_of_going_on(memory: Any, row: Any, top: Any) -> Any:
    """Bytes to the end of the text once a separator has been written, so that something must follow."""
    at = row * SET_WIDTH
    sets = i32(memory[SETS])
    extra = _least_extra(memory, row, top, np.int64(0), np.int64(sets[at + A_NUM_MEMBERS]))[0]
    if extra > 0 and may_write_others(memory, row, top):
        others = np.int64(sets[at + A_OTHERS_COST])
        extra = min(extra, others - min(others, cost_of_missing(memory, row)[1]))
    whole = np.int64(i32(memory[STACKS])[top * STACK_WIDTH + F_COST])
    return min(whole - sets[at + A_SEPARATOR_COST] + extra, np.int64(NEVER))
