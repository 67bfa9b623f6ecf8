"""The subset construction for patterns without assertions, compiled; `subsets.py` is its only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_kernels import copy_into, grown, grown_rows, sort_beginning
from ..compiled import inner_kernel, unlocked_kernel

SET, SPLIT, ASSERT, LOOK, MATCH = range(5)  # kinds of nodes, see `Nfa`
DONE, TOO_MANY_STATES, TOO_MUCH_WORK = 0, 1, 2


@inner_kernel
def _closure(
    kind: Any, next_node: Any, other: Any, universal: Any, node: Any, seen: Any, stamp: Any, found: Any, stack: Any
) -> Any:
    """The SET nodes reachable from a node without reading, into found; (their number, whether MATCH is).

    A universal node accepts whatever follows, so it stands for all the others.
    """
    num_found, num_stack, matches = 0, 1, False
    stack[0] = node
    seen[node] = stamp
    while num_stack:
        num_stack -= 1
        here = stack[num_stack]
        if kind[here] == SET:
            if universal[here]:
                found[0] = here
                return 1, True
            found[num_found] = here
            num_found += 1
        elif kind[here] == MATCH:
            matches = True
        else:
            for target in (next_node[here], other[here]):
                if target >= 0 and seen[target] != stamp:
                    seen[target] = stamp
                    stack[num_stack] = target
                    num_stack += 1
    return num_found, matches


@unlocked_kernel
def subset_construction(
    kind: Any, arg: Any, next_node: Any, other: Any, universal: Any, has_class: Any, max_states: Any, max_work: Any
) -> Any:
    """The Dfa table of a graph of SET, SPLIT and MATCH nodes that starts at node 0.

    Args:
        kind, arg, next_node, other: int32[num_nodes], as in `Nfa`; has_class: bool[num_sets, num_classes].
        universal: bool[num_nodes], SET nodes from which everything is accepted.
        max_states, max_work: bounds; work is counted in nodes looked at.

    Returns:
        (table int32[num_states, num_classes], accepting bool[num_states], status); state 0 is dead, 1 the start.
    """
    num_nodes, num_classes = kind.shape[0], has_class.shape[1]
    seen = np.zeros(num_nodes, np.int64)
    stamp = np.int64(0)
    found, kept = np.empty(num_nodes, np.int32), np.empty(num_nodes, np.int32)
    stack = np.empty(2 * num_nodes + 2, np.int32)
    # closures of the nodes behind SET nodes, made on demand: members[begin[n] : begin[n] + count[n]]
    begin = np.full(num_nodes, -1, np.int64)
    count = np.zeros(num_nodes, np.int32)
    ends = np.zeros(num_nodes, np.bool_)
    members = np.empty(256, np.int32)
    num_members = np.int64(0)
    # states: sorted nodes[first[s] : first[s] + size[s]]
    first, size = np.zeros(64, np.int64), np.zeros(64, np.int32)
    accepting = np.zeros(64, np.bool_)
    table = np.zeros((64, num_classes), np.int32)
    nodes = np.empty(256, np.int32)
    num_kept = np.int64(0)
    slots = np.zeros(256, np.int32)
    num_states, state = 1, 0
    work = np.int64(0)
    while state < num_states:
        for class_id in range(1, num_classes):
            num_found, matches = 0, False
            if state == 0:  # makes the start state, once
                if class_id > 1:
                    break
                stamp += 1
                num_found, matches = _closure(kind, next_node, other, universal, np.int64(0), seen, stamp, found, stack)
                work += num_found
            else:
                stamp += 1
                work += size[state]
                for index in range(first[state], first[state] + size[state]):
                    node = nodes[index]
                    if not has_class[arg[node], class_id]:
                        continue
                    target = next_node[node]
                    while kind[target] == SPLIT and other[target] < 0:
                        target = next_node[target]
                    if begin[target] < 0:
                        stamp += 1
                        copy_into(kept, 0, found, num_found)
                        made, made_ends = _closure(
                            kind, next_node, other, universal, np.int64(target), seen, stamp, found, stack
                        )
                        members = grown(members, num_members + made)
                        copy_into(members, num_members, found, made)
                        begin[target], count[target], ends[target] = num_members, made, made_ends
                        num_members += made
                        work += made
                        stamp += 1
                        copy_into(found, 0, kept, num_found)
                        for known in range(num_found):
                            seen[found[known]] = stamp
                    matches = matches or ends[target]
                    work += count[target]
                    for member in range(begin[target], begin[target] + count[target]):
                        if seen[members[member]] != stamp:
                            seen[members[member]] = stamp
                            found[num_found] = members[member]
                            num_found += 1
                if num_found == 0 and not matches:
                    continue
                for index in range(num_found):
                    if universal[found[index]]:
                        found[0] = found[index]
                        num_found, matches = 1, True
                        break
            if work > max_work:
                return table[:1], accepting[:1], TOO_MUCH_WORK
            sort_beginning(found, num_found)
            hashed = np.uint64(num_found) * np.uint64(2) + np.uint64(matches)
            for index in range(num_found):
                hashed = (hashed ^ np.uint64(found[index])) * np.uint64(0x9E3779B97F4A7C15)
                hashed ^= hashed >> np.uint64(31)
            slot = np.int64(hashed & np.uint64(slots.shape[0] - 1))
            target_state = 0
            while slots[slot] != 0:
                candidate = slots[slot]
                if size[candidate] == num_found and accepting[candidate] == matches:
                    same = True
                    for index in range(num_found):
                        if nodes[first[candidate] + index] != found[index]:
                            same = False
                            break
                    if same:
                        target_state = candidate
                        break
                slot = (slot + 1) & (slots.shape[0] - 1)
            if target_state == 0:
                if num_states >= max_states:
                    return table[:1], accepting[:1], TOO_MANY_STATES
                target_state = num_states
                num_states += 1
                if num_states > table.shape[0]:
                    table = grown_rows(table, num_states)
                    first, size = grown(first, num_states), grown(size, num_states)
                    accepting = grown(accepting, num_states)
                nodes = grown(nodes, num_kept + num_found)
                copy_into(nodes, num_kept, found, num_found)
                first[target_state], size[target_state] = num_kept, num_found
                accepting[target_state] = matches
                num_kept += num_found
                slots[slot] = target_state
                if 2 * num_states > slots.shape[0]:
                    slots = np.zeros(4 * slots.shape[0], np.int32)
                    for known in range(1, num_states):
                        hashed = np.uint64(size[known]) * np.uint64(2) + np.uint64(accepting[known])
                        for index in range(first[known], first[known] + size[known]):
                            hashed = (hashed ^ np.uint64(nodes[index])) * np.uint64(0x9E3779B97F4A7C15)
                            hashed ^= hashed >> np.uint64(31)
                        slot = np.int64(hashed & np.uint64(slots.shape[0] - 1))
                        while slots[slot] != 0:
                            slot = (slot + 1) & (slots.shape[0] - 1)
                        slots[slot] = known
            if state > 0:
                table[state, class_id] = target_state
        state += 1
    return table[:num_states], accepting[:num_states], DONE
