"""Compiled loops over the tables of `AnyOrder` once a network is laid out: nodes, costs, and the words to begin with.

See `any_order` for the tables. Used by `network` and `network_kernels` only.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel
from ..memory import (
    A_KEY,
    A_MEMBERS,
    A_MISSING,
    A_NODE,
    A_NUM_MEMBERS,
    A_NUM_OTHERS,
    A_OTHERS,
    A_OTHERS_COST,
    A_SEPARATOR,
    A_SEPARATOR_COST,
    A_SPARE,
    A_WORDS,
    M_CHEAP,
    M_COST,
    M_ENTRY,
    M_EXCLUDED,
    M_HEAD,
    M_IMPLIED,
    M_IS_REQUIRED,
    M_NUM_EXCLUDED,
    M_NUM_IMPLIED,
    NEVER,
    WORD_BITS,
)


@inner_kernel
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


@inner_kernel
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
