"""Which states of a table behave alike: Hopcroft's algorithm, compiled; `Dfa.minimised` is its only user.

J. Hopcroft, "An n log n algorithm for minimizing states in a finite automaton" (1971). Blocks of states are split by
where their members go; after a block was split only the smaller part need split others, so that a state is looked at
a logarithmic number of times. A long chain (a number of 300 digits, a text of 10,000 characters) costs what it is
long, where refining all blocks round by round costs the square of that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel, unlocked_kernel


@unlocked_kernel
def alike_states(table: Any, accepting: Any) -> Any:
    """The states by behaviour.

    Args:
        table: int32[num_states, num_classes] with dead state 0; every other state can reach an accepting one, so none
            of them is like it. Class 0 leads nowhere.
        accepting: bool[num_states].

    Returns:
        int32[num_states], equal for states from which the same texts are accepted and numbered by the first of them;
        and int32[num_blocks], these first ones.
    """
    num_states, num_classes = table.shape
    begins, sources = _sources(table)
    order, places = np.empty(num_states, np.int32), np.empty(num_states, np.int32)  # states, those of a block together
    blocks = np.zeros(num_states, np.int32)
    first, size = np.zeros(num_states + 2, np.int32), np.zeros(num_states + 2, np.int32)
    marked = np.zeros(num_states + 2, np.int32)  # so many at the beginning of a block are to be split off
    num_blocks, at = 0, 0
    for wanted in range(3):  # the dead state, then those that refuse, then those that accept
        first[num_blocks] = at
        for state in range(num_states):
            if (0 if state == 0 else 2 if accepting[state] else 1) == wanted:
                order[at], places[state], blocks[state] = state, at, num_blocks
                at += 1
        size[num_blocks] = at - first[num_blocks]
        num_blocks += size[num_blocks] > 0
    pending, is_pending = np.empty(num_states + 2, np.int32), np.zeros(num_states + 2, np.bool_)
    num_pending = 0
    for block in range(1, num_blocks):  # where nothing goes is told by where everything else goes
        pending[num_pending], is_pending[block] = block, True
        num_pending += 1
    splitter, touched = np.empty(num_states, np.int32), np.empty(num_states + 2, np.int32)
    while num_pending:
        num_pending -= 1
        block = pending[num_pending]
        is_pending[block] = False
        num_members = size[block]
        for index in range(num_members):
            splitter[index] = order[first[block] + index]
        for class_id in range(1, num_classes):
            num_touched = 0
            for index in range(num_members):
                cell = splitter[index] * num_classes + class_id
                for edge in range(begins[cell], begins[cell + 1]):
                    num_touched = _mark(sources[edge], blocks, first, marked, order, places, touched, num_touched)
            for index in range(num_touched):
                whole = touched[index]
                if marked[whole] < size[whole]:
                    _split(whole, num_blocks, blocks, first, size, marked[whole], order)
                    pending[num_pending], is_pending[num_blocks] = num_blocks, True
                    num_pending += 1
                    num_blocks += 1
                marked[whole] = 0
    return _numbered(blocks, num_blocks)


@inner_kernel
def _sources(table: Any) -> Any:
    """The states that lead to state t by class c: sources[begins[t * num_classes + c] : begins[.. + 1]], t not 0."""
    num_states, num_classes = table.shape
    begins = np.zeros(num_states * num_classes + 2, np.int32)
    for state in range(num_states):
        for class_id in range(1, num_classes):
            if table[state, class_id]:
                begins[table[state, class_id] * num_classes + class_id + 2] += 1
    for cell in range(2, begins.shape[0]):
        begins[cell] += begins[cell - 1]
    sources = np.empty(begins[-1], np.int32)
    for state in range(num_states):
        for class_id in range(1, num_classes):
            if table[state, class_id]:
                cell = table[state, class_id] * num_classes + class_id + 1
                sources[begins[cell]] = state
                begins[cell] += 1
    return begins, sources


@inner_kernel
def _mark(
    state: Any, blocks: Any, first: Any, marked: Any, order: Any, places: Any, touched: Any, num_touched: Any
) -> Any:
    """Puts a state among the first of its block; the number of blocks that have such, of which `touched` is a list."""
    block = blocks[state]
    if marked[block] == 0:
        touched[num_touched] = block
        num_touched += 1
    place, target = places[state], first[block] + marked[block]
    other = order[target]
    order[target], order[place] = state, other
    places[state], places[other] = target, place
    marked[block] += 1
    return num_touched


@inner_kernel
def _split(whole: Any, new: Any, blocks: Any, first: Any, size: Any, num_marked: Any, order: Any) -> None:
    """Makes the smaller part of a block a block of its own."""
    if 2 * num_marked <= size[whole]:
        first[new], size[new] = first[whole], num_marked
        first[whole] += num_marked
        size[whole] -= num_marked
    else:
        first[new], size[new] = first[whole] + num_marked, size[whole] - num_marked
        size[whole] = num_marked
    for index in range(first[new], first[new] + size[new]):
        blocks[order[index]] = new


@inner_kernel
def _numbered(blocks: Any, num_blocks: Any) -> Any:
    """The blocks numbered by their first states, and these."""
    numbers, members = np.full(num_blocks, -1, np.int32), np.empty(num_blocks, np.int32)
    count = 0
    for state in range(blocks.shape[0]):
        if numbers[blocks[state]] < 0:
            numbers[blocks[state]], members[count] = count, state
            count += 1
        blocks[state] = numbers[blocks[state]]
    return blocks, members
