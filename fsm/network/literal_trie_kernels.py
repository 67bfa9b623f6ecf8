"""Many literals as nodes that share their beginnings, compiled; `positions` is the only user.

::

    "car" "cart" "cat"        'ca' -> split -> 'r' -> split -> end
                                        |                `--> 't' -> end
                                        `----> 't' -> end
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import unlocked_kernel
from ..memory import K_BYTE, K_SPLIT


@unlocked_kernel
def literal_trie(data: Any, lens: Any, end: Any, first_node: Any, first_option: Any) -> Any:
    """Nodes that together spell exactly these literals, from the last to the first; linear in their length.

    Args:
        data: uint8, the literals one after the other, sorted and distinct; lens: int64, how long each is.
        end: the node behind all of them.
        first_node, first_option: the numbers that the first node and the first option of a split will have.

    Returns:
        nodes int64[num_nodes, 3], kind, arg and next of each (see `network`); spans int64[.., 2], where in `data` the
        bytes of each node of kind BYTE begin and end; options int64[..] of the splits; entries int64[..], the nodes at
        which a literal begins.
    """
    num_literals = lens.shape[0]
    nodes = np.empty((3 * num_literals + 1, 3), np.int64)
    spans = np.empty((2 * num_literals + 1, 2), np.int64)
    options = np.empty(3 * num_literals + 1, np.int64)
    # frames on a stack: their depth, and where their nodes begin on a second one; the last is open
    depths, begins = np.empty(num_literals + 2, np.int64), np.empty(num_literals + 2, np.int64)
    waiting = np.empty(2 * num_literals + 2, np.int64)
    depths[0], begins[0], num_frames, num_waiting = 0, 0, 1, 0
    num_nodes, num_spans, num_options = 0, 0, 0
    total = np.int64(data.shape[0])
    previous, previous_len = total, np.int64(0)
    for turn in range(num_literals + 1):
        shared, length, at = np.int64(0), np.int64(0), np.int64(0)
        if turn < num_literals:
            length = lens[num_literals - 1 - turn]
            at = previous - length
            limit = min(length, previous_len)
            while shared < limit and data[at + shared] == data[previous + shared]:
                shared += 1
        while depths[num_frames - 1] > shared:
            num_frames -= 1
            below, begin = depths[num_frames], begins[num_frames]
            node = waiting[begin]
            if num_waiting - begin > 1:
                nodes[num_nodes, 0], nodes[num_nodes, 1] = K_SPLIT, first_option + num_options
                nodes[num_nodes, 2] = num_waiting - begin
                for index in range(num_waiting - 1, begin - 1, -1):
                    options[num_options] = waiting[index]
                    num_options += 1
                node = first_node + num_nodes
                num_nodes += 1
            num_waiting = begin
            upper = max(shared, depths[num_frames - 1])
            nodes[num_nodes, 0], nodes[num_nodes, 1], nodes[num_nodes, 2] = K_BYTE, 0, node
            spans[num_spans, 0], spans[num_spans, 1] = previous + upper, previous + below
            num_spans += 1
            if depths[num_frames - 1] < upper:
                depths[num_frames], begins[num_frames] = upper, num_waiting
                num_frames += 1
            waiting[num_waiting] = first_node + num_nodes
            num_waiting += 1
            num_nodes += 1
        if turn < num_literals:
            if depths[num_frames - 1] != length:
                depths[num_frames], begins[num_frames] = length, num_waiting
                num_frames += 1
            waiting[num_waiting] = end
            num_waiting += 1
            previous, previous_len = at, length
    return nodes[:num_nodes], spans[:num_spans], options[:num_options], waiting[:num_waiting]
