"""Closures: the configurations that a network leads to as far as it goes without reading, which are one state.

What a configuration is: see `state_kernels`.

Results below zero ask for help: NEED_SPACE, NEED_WORK (grow and call again: what was found so far is kept),
TOO_LARGE (more stacks than an integer has room for) and OUT_OF_WORK (the allowance is used up).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel
from ..memory import (
    A_KEY,
    A_MEMBERS,
    A_NUM_MEMBERS,
    A_NUM_OTHERS,
    A_NUM_TEXTS,
    A_OTHERS,
    A_SEPARATOR,
    ALLOWANCE,
    ARG,
    CAP_WORK,
    COST,
    F_COST,
    F_COUNT,
    F_PARENT,
    F_RETURN,
    FIRST_TEXT_STATE,
    FOUND,
    K_BYTES,
    K_CALL,
    K_KEY,
    K_LOOP,
    K_RETURN,
    K_SET,
    K_SPLIT,
    K_TEXT,
    KIND,
    LOOPS,
    M_ENTRY,
    MEMBER_WIDTH,
    MEMBERS,
    NEED_WORK,
    NEVER,
    NEXT,
    NODE_SHIFT,
    OPTIONS,
    SEEN_KEYS,
    SEEN_MASK,
    SEEN_STAMPS,
    SET_WIDTH,
    SETS,
    STACK_BITS,
    STACK_ID_MASK,
    STACK_WIDTH,
    STACKS,
    SUB_MASK,
    T_ACCEPTS,
    T_MAX,
    T_MIN,
    T_NODES,
    T_START,
    TEXT_WIDTH,
    TEXTS,
    WORK,
    i32,
    i64,
    u8,
)
from ..network.any_order_kernels import is_any_open, may_end, may_write_others, open_set, stack_below, write_member
from ..network.key_kernels import cost_of_going_on, goes_on, member_that_ends
from ..network.stack_kernels import JOINT, push_count, push_frame
from ..text.counted_kernels import counted_alive
from ..text.text_kernels import text_alive
from .joint_kernels import join, sort_calls
from .state_kernels import intern


@inner_kernel
def forget_visits(memory: Any) -> None:
    """Begins a closure: visits carry a stamp, which is counted up behind the last of them."""
    i64(memory[SEEN_STAMPS])[memory[SEEN_MASK] + 1] += 1


@inner_kernel
def visit(memory: Any, key: Any, num_work: Any) -> Any:
    """Adds a configuration to the work list unless this closure has met it; the new length of the list."""
    if i32(memory[COST])[key >> NODE_SHIFT] >= NEVER:
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
def close(memory: Any, num_work: Any) -> Any:
    """The state of the configurations in WORK[:num_work] (already visited) and all they lead to without reading.

    Rules are entered when nothing else is left to do, each for all that have called it till then (see `joint_kernels`):
    else a chain of rules that call the next one in two places would be followed in 2^length ways.
    """
    kinds, args, nexts = i32(memory[KIND]), i32(memory[ARG]), i32(memory[NEXT])
    work, found = i64(memory[WORK]), i64(memory[FOUND])
    num_found, accepts, done = np.int64(0), np.int64(0), np.int64(0)
    last_call = memory[CAP_WORK]  # found[last_call:CAP_WORK] are calls that wait: entry << NODE_SHIFT | stack
    while True:
        if done == num_work:
            if last_call == memory[CAP_WORK]:
                break
            num_work = _enter_rules(memory, last_call, num_work)
            if num_work < 0:
                return num_work
            last_call = memory[CAP_WORK]
            continue
        key = work[done]
        done += 1
        node, stack = key >> NODE_SHIFT, key & STACK_ID_MASK
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
                    stack = push_count(memory, node, np.int64(0), stack)
                    if stack < 0:
                        return stack
                key = node << NODE_SHIFT | sub << STACK_BITS | stack
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
                    num_work = visit(memory, np.int64(nexts[node]) << NODE_SHIFT | outer, num_work)
        elif kind == K_SPLIT:
            options = i32(memory[OPTIONS])
            for option in range(args[node], args[node] + nexts[node]):
                num_work = visit(memory, np.int64(options[option]) << NODE_SHIFT | stack, num_work)
                if num_work < 0:
                    return num_work
        elif kind == K_CALL:
            if kinds[nexts[node]] != K_RETURN:
                stack = _push_call(memory, np.int64(nexts[node]), stack)
                if stack < 0:
                    return stack
                last_call -= 1
                found[last_call] = np.int64(args[node]) << NODE_SHIFT | stack
            else:
                num_work = visit(memory, np.int64(args[node]) << NODE_SHIFT | stack, num_work)
        elif kind == K_LOOP:
            num_work = _turn(memory, node, np.int64(0), stack, num_work)
        elif kind == K_SET:
            row = np.int64(args[node])
            stack = open_set(memory, row, stack)
            if stack < 0:
                return stack
            first_key = np.int64(i32(memory[SETS])[row * SET_WIDTH + A_KEY])
            num_work = visit(memory, first_key << NODE_SHIFT | stack, num_work)
        elif kind == K_KEY:
            row, place = np.int64(args[node]), ((key >> STACK_BITS) & SUB_MASK) - 1
            if place < 0:
                num_work = _begin_member(memory, row, stack, num_work)
            else:
                if goes_on(memory, row, stack, place):
                    found[num_found] = key
                    num_found += 1
                member = member_that_ends(memory, row, stack, place)
                if member >= 0:
                    num_work = enter_member(memory, row, stack, member, num_work)
        elif stack == 0:
            accepts = np.int64(1)
        else:
            num_work = _return(memory, node, stack, num_work)
        if num_work < 0:
            return num_work
    memory[ALLOWANCE] -= num_work
    return intern(memory, num_found, accepts)


@inner_kernel
def _enter_rules(memory: Any, first: Any, num_work: Any) -> Any:
    """Visits the rules that are called in FOUND[first:CAP_WORK], each on all its stacks at once."""
    calls, end = i64(memory[FOUND]), memory[CAP_WORK]
    sort_calls(memory, first)
    while first < end and num_work >= 0:
        entry, behind = calls[first] >> NODE_SHIFT, first + 1
        while behind < end and calls[behind] >> NODE_SHIFT == entry:
            behind += 1
        stack = join(memory, calls, first, behind)
        if stack < 0:
            return stack
        num_work = visit(memory, entry << NODE_SHIFT | stack, num_work)
        first = behind
    return num_work


@inner_kernel
def _push_call(memory: Any, node: Any, stack: Any) -> Any:
    """The stack on which a rule will return to `node`."""
    total = np.int64(i32(memory[COST])[node]) + i32(memory[STACKS])[stack * STACK_WIDTH + F_COST]
    return push_frame(memory, node, np.int64(0), np.int64(0), stack, total)


@inner_kernel
def _return(memory: Any, end: Any, stack: Any, num_work: Any) -> Any:
    """Goes on behind what has ended at the node `end`: a rule, a turn of a loop, a member of a set, or a separator."""
    frame = i32(memory[STACKS] + stack * (STACK_WIDTH * 4))
    node, parent = np.int64(frame[F_RETURN]), np.int64(frame[F_PARENT])
    if node == JOINT:  # the calls that other joints have in common with this one are returned to once
        num_work = visit(memory, end << NODE_SHIFT | parent, num_work)
        if num_work < 0:
            return num_work
        frame = i32(memory[STACKS] + np.int64(frame[F_COUNT]) * (STACK_WIDTH * 4))
        return visit(memory, np.int64(frame[F_RETURN]) << NODE_SHIFT | frame[F_PARENT], num_work)
    kind = i32(memory[KIND])[node]
    if kind == K_LOOP:
        return _turn(memory, node, np.int64(frame[F_COUNT]), parent, num_work)
    if kind == K_SET:
        return _after_member(memory, node, stack, num_work)
    return visit(memory, node << NODE_SHIFT | parent, num_work)


@inner_kernel
def _turn(memory: Any, node: Any, count: Any, stack: Any, num_work: Any) -> Any:
    """A loop after `count` turns: may end if that is enough, may turn again if that is allowed."""
    loops = i32(memory[LOOPS])
    loop = i32(memory[ARG])[node] * 4
    minimum, maximum = loops[loop + 1], loops[loop + 2]
    if count >= minimum:
        num_work = visit(memory, np.int64(i32(memory[NEXT])[node]) << NODE_SHIFT | stack, num_work)
        if num_work < 0:
            return num_work
    if maximum < 0 or count < maximum:
        turns = count + 1 if maximum >= 0 else min(count + 1, minimum)  # beyond the minimum all turns are alike
        total = np.int64(i32(memory[COST])[i32(memory[NEXT])[node]]) + i32(memory[STACKS])[stack * STACK_WIDTH + F_COST]
        total += max(minimum - turns, 0) * np.int64(loops[loop + 3])
        frame = push_frame(memory, node, turns, np.int64(0), stack, total)
        if frame < 0:
            return frame
        num_work = visit(memory, np.int64(loops[loop]) << NODE_SHIFT | frame, num_work)
    return num_work


@inner_kernel
def _after_member(memory: Any, node: Any, top: Any, num_work: Any) -> Any:
    """A set after a member: may end if nothing is owed, may go on if something can be written."""
    row = np.int64(i32(memory[ARG])[node])
    at = row * SET_WIDTH
    sets = i32(memory[SETS])
    if may_end(memory, row, top):
        behind = np.int64(i32(memory[NEXT])[node])
        num_work = visit(memory, behind << NODE_SHIFT | stack_below(memory, row, top), num_work)
        if num_work < 0:
            return num_work
    if is_any_open(memory, row, top, np.int64(0), np.int64(sets[at + A_NUM_MEMBERS])) or may_write_others(
        memory, row, top
    ):
        total = cost_of_going_on(memory, row, top)
        frame = push_frame(memory, np.int64(sets[at + A_KEY]), np.int64(0), np.int64(0), top, total)
        if frame < 0:
            return frame
        num_work = visit(memory, np.int64(sets[at + A_SEPARATOR]) << NODE_SHIFT | frame, num_work)
    return num_work


@inner_kernel
def _begin_member(memory: Any, row: Any, top: Any, num_work: Any) -> Any:
    """Where something must be written: the root of the trie, members without a text, and others."""
    at = row * SET_WIDTH
    sets, options = i32(memory[SETS]), i32(memory[OPTIONS])
    num_texts, num_members = np.int64(sets[at + A_NUM_TEXTS]), np.int64(sets[at + A_NUM_MEMBERS])
    if is_any_open(memory, row, top, np.int64(0), num_texts):
        num_work = visit(memory, np.int64(sets[at + A_KEY]) << NODE_SHIFT | np.int64(1) << STACK_BITS | top, num_work)
    for member in range(num_texts, num_members):
        if num_work >= 0 and is_any_open(memory, row, top, member, member + 1):
            num_work = enter_member(memory, row, top, member, num_work)
    if num_work >= 0 and may_write_others(memory, row, top):
        stack = write_member(memory, row, top, np.int64(-1))
        if stack < 0:
            return stack
        for other in range(sets[at + A_OTHERS], sets[at + A_OTHERS] + sets[at + A_NUM_OTHERS]):
            if num_work >= 0:
                num_work = visit(memory, np.int64(options[other]) << NODE_SHIFT | stack, num_work)
    return num_work


@inner_kernel
def enter_member(memory: Any, row: Any, top: Any, member: Any, num_work: Any) -> Any:
    """What follows the head of a member, on top of the set with it."""
    stack = write_member(memory, row, top, member)
    if stack < 0:
        return stack
    record = (np.int64(i32(memory[SETS])[row * SET_WIDTH + A_MEMBERS]) + member) * MEMBER_WIDTH
    return visit(memory, np.int64(i32(memory[MEMBERS])[record + M_ENTRY]) << NODE_SHIFT | stack, num_work)
