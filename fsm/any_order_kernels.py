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

from .compiled import inner_kernel, kernel
from .memory import (
    A_IS_COUNTED,
    A_KEY,
    A_MEMBERS,
    A_MISSING,
    A_NODE,
    A_NUM_MEMBERS,
    A_NUM_OTHERS,
    A_NUM_TEXTS,
    A_NUM_WORDS,
    A_OTHERS,
    A_OTHERS_COST,
    A_SEPARATOR,
    A_SEPARATOR_COST,
    A_SPARE,
    A_TRIE,
    A_WORDS,
    COST,
    EDGES,
    F_COST,
    F_COUNT,
    F_OWED,
    F_PARENT,
    K_DEPTH,
    K_EDGES,
    K_END,
    K_ENDS,
    K_FIRST,
    K_NUM_EDGES,
    LISTS,
    M_CHEAP,
    M_COST,
    M_ENTRY,
    M_EXCLUDED,
    M_HEAD,
    M_IMPLIED,
    M_IS_REQUIRED,
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
    TRIE_WIDTH,
    TRIES,
    UNBOUNDED,
    WORD_BITS,
    i32,
)
from .stack_kernels import push_frame

# ---------------------------------------------------------------- once per network


@kernel
def place_sets(sets: Any, members: Any, options: Any, num_sets: Any) -> None:
    """Fills in the nodes of the sets from the network's options (see `SetBuilder.add`)."""
    for row in range(num_sets):
        option = sets[row, A_NODE]
        sets[row, A_NODE], sets[row, A_KEY], sets[row, A_SEPARATOR] = (
            options[option],
            options[option + 1],
            options[option + 2],
        )
        entries = sets[row, A_OTHERS] + sets[row, A_NUM_OTHERS]
        for i in range(sets[row, A_NUM_MEMBERS]):
            members[sets[row, A_MEMBERS] + i, M_ENTRY] = options[entries + i]


@inner_kernel
def _sum(a: Any, b: Any) -> Any:
    """a + b; NEVER if one of them is, and less otherwise: too long to be written is not the same as impossible."""
    return np.int64(NEVER) if a >= NEVER or b >= NEVER else min(np.int64(a) + np.int64(b), np.int64(NEVER - 1))


@inner_kernel
def _member_cost(sets: Any, members: Any, row: Any, member: Any, cost: Any) -> Any:
    """Bytes for a separator and a member."""
    head = np.int64(cost[sets[row, A_SEPARATOR]]) + members[member, M_HEAD]
    return _sum(head, cost[members[member, M_ENTRY]])


@inner_kernel
def least_cost(sets: Any, members: Any, lists: Any, options: Any, row: Any, cost: Any) -> Any:
    """Bytes that suffice for a whole set, its end not counted; NEVER if it cannot be completed.

    That is what all required members need, or else the cheapest member; and the cheapest ones beyond, as far as a
    number is demanded.
    """
    first, count = np.int64(sets[row, A_MEMBERS]), np.int64(sets[row, A_NUM_MEMBERS])
    separator = np.int64(cost[sets[row, A_SEPARATOR]])
    spare, missing = np.int64(sets[row, A_SPARE]), np.int64(sets[row, A_MISSING])
    total, num_required = np.int64(0), 0
    for member in range(first, first + count):
        if members[member, M_IS_REQUIRED]:
            total = _sum(total, _member_cost(sets, members, row, member, cost))
            num_required += 1
    if num_required + missing == 0:
        missing = np.int64(1)
    if spare < missing:
        return np.int64(NEVER)
    others = np.int64(NEVER)
    for at in range(sets[row, A_OTHERS], sets[row, A_OTHERS] + sets[row, A_NUM_OTHERS]):
        others = min(others, _sum(separator, cost[options[at]]))
    last, last_member = np.int64(-1), np.int64(-1)  # the picks go up by (cost, member)
    while missing > 0 and total < NEVER:
        best, best_member = others, np.int64(-1)
        for member in range(first, first + count):
            if not members[member, M_IS_REQUIRED]:
                value = _member_cost(sets, members, row, member, cost)
                begin = members[member, M_IMPLIED]
                for at in range(begin, begin + members[member, M_NUM_IMPLIED]):
                    value = _sum(value, _member_cost(sets, members, row, first + lists[at], cost))
                if value < best and (value > last or (value == last and member > last_member)):
                    best, best_member = value, np.int64(member)
        total = _sum(total, best)
        last, last_member = best, best_member
        missing -= 1
    return total - separator if total < NEVER else np.int64(NEVER)


@kernel
def settle_sets(sets: Any, members: Any, lists: Any, options: Any, num_sets: Any, cost: Any) -> None:
    """Fills in what depends on the costs of the nodes: costs, and the words that a set begins with.

    A member that can never be completed, or that implies one, cannot be written.
    """
    for row in range(num_sets):
        separator = np.int64(cost[sets[row, A_SEPARATOR]])
        sets[row, A_SEPARATOR_COST] = separator
        first, count, words = sets[row, A_MEMBERS], sets[row, A_NUM_MEMBERS], sets[row, A_WORDS]
        for i in range(count):
            member = first + i
            value = _member_cost(sets, members, row, member, cost)
            members[member, M_COST] = value
            place = i
            if sets[row, A_MISSING] > 0:  # sorted by cost, which nobody else needs
                while place > 0 and members[first + members[first + place - 1, M_CHEAP], M_COST] > value:
                    members[first + place, M_CHEAP] = members[first + place - 1, M_CHEAP]
                    place -= 1
            members[first + place, M_CHEAP] = i
        for i in range(count):
            member = first + i
            bit = np.int32(1) << np.int32(i % WORD_BITS)
            at = words + 2 * (i // WORD_BITS)
            is_dead = members[member, M_COST] >= NEVER
            for j in range(members[member, M_IMPLIED], members[member, M_IMPLIED] + members[member, M_NUM_IMPLIED]):
                is_dead = is_dead or members[first + lists[j], M_COST] >= NEVER
            if is_dead:
                lists[at] |= bit
            if members[member, M_IS_REQUIRED]:
                lists[at + 1] |= bit
                _block(lists, members, member, lists, words)
        num_alive = 0
        sets[row, A_OTHERS_COST] = NEVER
        begin = sets[row, A_OTHERS]
        for at in range(begin, begin + sets[row, A_NUM_OTHERS]):
            if cost[options[at]] < NEVER:
                sets[row, A_OTHERS_COST] = min(np.int64(sets[row, A_OTHERS_COST]), _sum(separator, cost[options[at]]))
                options[begin + num_alive] = options[at]
                num_alive += 1
        sets[row, A_NUM_OTHERS] = num_alive


@inner_kernel
def _block(lists: Any, members: Any, member: Any, words: Any, at: Any) -> None:
    """Marks all that a member excludes in words[at :]."""
    begin = members[member, M_EXCLUDED]
    for j in range(begin, begin + members[member, M_NUM_EXCLUDED]):
        words[at + 2 * (lists[j] // WORD_BITS)] |= np.int32(1) << np.int32(lists[j] % WORD_BITS)


# ---------------------------------------------------------------- frames


@inner_kernel
def open_set(memory: Any, row: Any, below: Any) -> Any:
    """The frames of a set of which nothing has been written, on top of a stack."""
    at = row * SET_WIDTH
    sets, lists, scratch = i32(memory[SETS]), i32(memory[LISTS]), i32(memory[SCRATCH])
    scratch[0], scratch[1] = sets[at + A_SPARE], sets[at + A_MISSING]
    for i in range(2 * sets[at + A_NUM_WORDS]):
        scratch[2 + i] = lists[sets[at + A_WORDS] + i]
    return _pack(memory, row, below)


@inner_kernel
def _unpack(memory: Any, row: Any, top: Any) -> Any:
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
def _pack(memory: Any, row: Any, below: Any) -> Any:
    """The frames of the set in SCRATCH; the cost of the topmost is that of everything to the end of the text."""
    at = row * SET_WIDTH
    sets, scratch, stacks = i32(memory[SETS]), i32(memory[SCRATCH]), i32(memory[STACKS])
    node = np.int64(sets[at + A_NODE])
    total = np.int64(stacks[below * STACK_WIDTH + F_COST]) + i32(memory[COST])[i32(memory[NEXT])[node]]
    total += _cost_of_owed(memory, row) + _cost_of_missing(memory, row)[0]
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
def _cost_of_missing(memory: Any, row: Any) -> Any:
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
    below = _unpack(memory, row, top)
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
    return _pack(memory, row, below)


# ---------------------------------------------------------------- texts of members


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
    return np.int64(stacks[top * STACK_WIDTH + F_COST]) - read + _least_extra(memory, row, top, first, end)


@inner_kernel
def _least_extra(memory: Any, row: Any, top: Any, first: Any, end: Any) -> Any:
    """The least number of bytes by which writing one of the members first .. end - 1 exceeds what must be written."""
    _unpack(memory, row, top)
    scratch, members = i32(memory[SCRATCH]), i32(memory[MEMBERS])
    base = np.int64(i32(memory[SETS])[row * SET_WIDTH + A_MEMBERS])
    for member in range(first, end):
        if scratch[3 + 2 * (member // WORD_BITS)] >> (member % WORD_BITS) & 1:
            return np.int64(0)
    best = np.int64(NEVER)
    if scratch[0] == 0:
        return best
    replaced = _cost_of_missing(memory, row)[1]
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
        best = min(best, extra)
    return best


@inner_kernel
def cost_of_going_on(memory: Any, row: Any, top: Any) -> Any:
    """Bytes to the end of the text once a separator has been written, so that something must follow."""
    at = row * SET_WIDTH
    sets = i32(memory[SETS])
    extra = _least_extra(memory, row, top, np.int64(0), np.int64(sets[at + A_NUM_MEMBERS]))
    if extra > 0 and may_write_others(memory, row, top):
        others = np.int64(sets[at + A_OTHERS_COST])
        extra = min(extra, others - min(others, _cost_of_missing(memory, row)[1]))
    whole = np.int64(i32(memory[STACKS])[top * STACK_WIDTH + F_COST])
    return min(whole - sets[at + A_SEPARATOR_COST] + extra, np.int64(NEVER))
