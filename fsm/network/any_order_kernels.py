"""Compiled loops over the sets of `AnyOrder`: which members can still be written, and what the rest costs.

The tables and the frames are described in `any_order`. A set on the stack is named by its topmost frame. Frames are
unpacked into SCRATCH to be changed: the number of further members allowed beyond those that are owed ("spare"), the
number demanded beyond them ("missing"), then for each word the members that cannot be written and those that must be.

Invariant: what must be written can be. Whatever a member implies is owed once it is written, and what excludes
something that is owed cannot be written any more; a number of members is demanded or bounded only where no member
implies or excludes another. So no text that is let through is a dead end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel
from ..memory import (
    A_IS_COUNTED,
    A_MEMBERS,
    A_MISSING,
    A_NODE,
    A_NUM_MEMBERS,
    A_NUM_OTHERS,
    A_NUM_TEXTS,
    A_NUM_WORDS,
    A_OTHERS_COST,
    A_SPARE,
    A_WORDS,
    COST,
    F_COST,
    F_COUNT,
    F_OWED,
    F_PARENT,
    LISTS,
    M_CHEAP,
    M_COST,
    M_EXCLUDED,
    M_IMPLIED,
    M_NUM_EXCLUDED,
    M_NUM_IMPLIED,
    MEMBER_WIDTH,
    MEMBERS,
    NEVER,
    NEXT,
    SCRATCH,
    SET_WIDTH,
    SETS,
    STACK_WIDTH,
    STACKS,
    UNBOUNDED,
    WORD_BITS,
    i32,
)
from .stack_kernels import push_frame

# ---------------------------------------------------------------- frames


@inner_kernel
def open_set(memory: Any, row: Any, below: Any) -> Any:
    """The frames of a set of which nothing has been written, on top of a stack."""
    at = row * SET_WIDTH
    sets, lists, scratch = i32(memory[SETS]), i32(memory[LISTS]), i32(memory[SCRATCH])
    scratch[0], scratch[1] = sets[at + A_SPARE], sets[at + A_MISSING]
    for i in range(2 * sets[at + A_NUM_WORDS]):
        scratch[2 + i] = lists[sets[at + A_WORDS] + i]
    return pack(memory, row, below)


@inner_kernel
def unpack(memory: Any, row: Any, top: Any) -> Any:
    """Fills SCRATCH; returns the stack below the set."""
    at = row * SET_WIDTH
    sets, stacks, scratch = i32(memory[SETS]), i32(memory[STACKS]), i32(memory[SCRATCH])
    for word in range(sets[at + A_NUM_WORDS] - 1, -1, -1):
        frame = top * STACK_WIDTH
        scratch[2 + 2 * word], scratch[3 + 2 * word] = stacks[frame + F_COUNT], stacks[frame + F_OWED]
        top = np.int64(stacks[frame + F_PARENT])
    scratch[0], scratch[1] = UNBOUNDED, 0
    if sets[at + A_IS_COUNTED]:
        frame = top * STACK_WIDTH
        scratch[0], scratch[1] = stacks[frame + F_COUNT], stacks[frame + F_OWED]
        top = np.int64(stacks[frame + F_PARENT])
    return top


@inner_kernel
def pack(memory: Any, row: Any, below: Any) -> Any:
    """The frames of the set in SCRATCH; the cost of the topmost is that of everything to the end of the text."""
    at = row * SET_WIDTH
    sets, scratch, stacks = i32(memory[SETS]), i32(memory[SCRATCH]), i32(memory[STACKS])
    node = np.int64(sets[at + A_NODE])
    total = np.int64(stacks[below * STACK_WIDTH + F_COST]) + i32(memory[COST])[i32(memory[NEXT])[node]]
    total += _cost_of_owed(memory, row) + cost_of_missing(memory, row)[0]
    stack = below
    if sets[at + A_IS_COUNTED]:
        stack = push_frame(memory, node, np.int64(scratch[0]), np.int64(scratch[1]), stack, np.int64(0))
    for word in range(sets[at + A_NUM_WORDS]):
        if stack < 0:
            return stack
        blocked, owed = np.int64(scratch[2 + 2 * word]), np.int64(scratch[3 + 2 * word])
        stack = push_frame(memory, node, blocked, owed, stack, min(total, np.int64(NEVER)))
    return stack


@inner_kernel
def _cost_of_owed(memory: Any, row: Any) -> Any:
    """Bytes for the members in SCRATCH that must be written, each with a separator."""
    at = row * SET_WIDTH
    sets, members, scratch = i32(memory[SETS]), i32(memory[MEMBERS]), i32(memory[SCRATCH])
    total = np.int64(0)
    for word in range(sets[at + A_NUM_WORDS]):
        owed = np.int64(scratch[3 + 2 * word])
        member = np.int64(sets[at + A_MEMBERS]) + word * WORD_BITS
        while owed:
            if owed & 1:
                total += members[member * MEMBER_WIDTH + M_COST]
            owed >>= 1
            member += 1
    return total


@inner_kernel
def cost_of_missing(memory: Any, row: Any) -> Any:
    """Bytes for the cheapest members beyond the owed ones, and for the dearest of these (0: no number is missing)."""
    at = row * SET_WIDTH
    sets, members, scratch = i32(memory[SETS]), i32(memory[MEMBERS]), i32(memory[SCRATCH])
    missing = np.int64(scratch[1])
    total, dearest = np.int64(0), np.int64(0)
    if missing == 0:
        return total, dearest
    others = np.int64(sets[at + A_OTHERS_COST])
    first = np.int64(sets[at + A_MEMBERS])
    for i in range(sets[at + A_NUM_MEMBERS]):
        member = np.int64(members[(first + i) * MEMBER_WIDTH + M_CHEAP])
        word, bit = member // WORD_BITS, member % WORD_BITS
        if ((scratch[2 + 2 * word] | scratch[3 + 2 * word]) >> bit) & 1:
            continue
        dearest = min(np.int64(members[(first + member) * MEMBER_WIDTH + M_COST]), others)
        total += dearest
        missing -= 1
        if missing == 0:
            return total, dearest
    return min(total + missing * others, np.int64(NEVER)), others


@inner_kernel
def stack_below(memory: Any, row: Any, top: Any) -> Any:
    """The stack below a set."""
    at = row * SET_WIDTH
    sets, stacks = i32(memory[SETS]), i32(memory[STACKS])
    for _ in range(sets[at + A_NUM_WORDS] + sets[at + A_IS_COUNTED]):
        top = np.int64(stacks[top * STACK_WIDTH + F_PARENT])
    return top


@inner_kernel
def num_owed(memory: Any, row: Any, top: Any) -> Any:
    """How many members must still be written at the least."""
    at = row * SET_WIDTH
    sets, stacks = i32(memory[SETS]), i32(memory[STACKS])
    count = np.int64(0)
    for _ in range(sets[at + A_NUM_WORDS]):
        owed = np.int64(stacks[top * STACK_WIDTH + F_OWED])
        while owed:
            owed &= owed - 1
            count += 1
        top = np.int64(stacks[top * STACK_WIDTH + F_PARENT])
    return count + stacks[top * STACK_WIDTH + F_OWED] if sets[at + A_IS_COUNTED] else count


# ---------------------------------------------------------------- what may be written


@inner_kernel
def _spare(memory: Any, row: Any, top: Any) -> Any:
    """How many members may be written that are not owed."""
    at = row * SET_WIDTH
    sets, stacks = i32(memory[SETS]), i32(memory[STACKS])
    if not sets[at + A_IS_COUNTED]:
        return np.int64(UNBOUNDED)
    for _ in range(sets[at + A_NUM_WORDS]):
        top = np.int64(stacks[top * STACK_WIDTH + F_PARENT])
    return np.int64(stacks[top * STACK_WIDTH + F_COUNT])


@inner_kernel
def is_any_open(memory: Any, row: Any, top: Any, first: Any, end: Any) -> Any:
    """Whether one of the members first .. end - 1 of a set may be written."""
    spare = _spare(memory, row, top)
    stacks = i32(memory[STACKS])
    word = np.int64(i32(memory[SETS])[row * SET_WIDTH + A_NUM_WORDS]) - 1
    while word >= 0 and (word + 1) * WORD_BITS > first:
        frame = top * STACK_WIDTH
        begin = word * WORD_BITS
        if begin < end:
            wanted = (np.int64(1) << min(end - begin, WORD_BITS)) - (np.int64(1) << max(first - begin, 0))
            may = ~np.int64(stacks[frame + F_COUNT]) if spare > 0 else np.int64(stacks[frame + F_OWED])
            if may & wanted:
                return True
        top = np.int64(stacks[frame + F_PARENT])
        word -= 1
    return False


@inner_kernel
def may_write_others(memory: Any, row: Any, top: Any) -> Any:
    """Whether something that is no member may be written: not after a member without a text of its own."""
    at = row * SET_WIDTH
    sets, stacks = i32(memory[SETS]), i32(memory[STACKS])
    if sets[at + A_NUM_OTHERS] == 0 or _spare(memory, row, top) <= 0:
        return False
    lists = i32(memory[LISTS])
    for word in range(sets[at + A_NUM_WORDS] - 1, -1, -1):
        frame = top * STACK_WIDTH
        begin = max(np.int64(sets[at + A_NUM_TEXTS]) - word * WORD_BITS, np.int64(0))
        if begin < WORD_BITS:
            written = np.int64(stacks[frame + F_COUNT]) & ~np.int64(lists[sets[at + A_WORDS] + 2 * word])
            if written >> begin:
                return False
        top = np.int64(stacks[frame + F_PARENT])
    return True


@inner_kernel
def may_end(memory: Any, row: Any, top: Any) -> Any:
    """Whether nothing more is demanded."""
    at = row * SET_WIDTH
    sets, stacks = i32(memory[SETS]), i32(memory[STACKS])
    for _ in range(sets[at + A_NUM_WORDS] + sets[at + A_IS_COUNTED]):
        frame = top * STACK_WIDTH
        if stacks[frame + F_OWED]:
            return False
        top = np.int64(stacks[frame + F_PARENT])
    return True


@inner_kernel
def write_member(memory: Any, row: Any, top: Any, member: Any) -> Any:
    """The set once a member, which may be, is written; `member` -1: something that is no member."""
    below = unpack(memory, row, top)
    scratch, members, lists = i32(memory[SCRATCH]), i32(memory[MEMBERS]), i32(memory[LISTS])
    at, bit = 2 + 2 * (member // WORD_BITS), np.int32(1) << np.int32(member % WORD_BITS)
    if member >= 0 and scratch[at + 1] & bit:
        scratch[at + 1] ^= bit
    else:
        if scratch[0] != UNBOUNDED:
            scratch[0] -= 1
        scratch[1] = max(scratch[1] - 1, 0)
    if member >= 0:
        scratch[at] |= bit
        record = (np.int64(i32(memory[SETS])[row * SET_WIDTH + A_MEMBERS]) + member) * MEMBER_WIDTH
        begin = members[record + M_IMPLIED]
        for j in range(begin, begin + members[record + M_NUM_IMPLIED]):
            at, bit = 2 + 2 * (np.int64(lists[j]) // WORD_BITS), np.int32(1) << np.int32(lists[j] % WORD_BITS)
            if not scratch[at] & bit:
                scratch[at + 1] |= bit
        begin = members[record + M_EXCLUDED]
        for j in range(begin, begin + members[record + M_NUM_EXCLUDED]):
            scratch[2 + 2 * (lists[j] // WORD_BITS)] |= np.int32(1) << np.int32(lists[j] % WORD_BITS)
    return pack(memory, row, below)
