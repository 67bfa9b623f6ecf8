"""Compiled loops that lay a text automaton out; `text_table.py` is their only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel, kernel
from ..memory import ALL_WIDE, NEVER, T_INNER, T_MAX, T_PLAIN, TEXT_WIDTH


@kernel
def pack_text(
    table: Any,
    accepting: Any,
    template: Any,
    reach_bits: Any,
    byte_costs: Any,
    is_wide: Any,
    num_ascii: Any,
    start: Any,
) -> Any:
    """The arrays and fields of a `TextTable`, where the arguments are described.

    Args:
        table: int32[num_states, num_classes], accepting: bool[num_states]; start: the first state.

    Returns:
        accepts, live_bits, costs, plain (zeros), fields, and the greatest cost of a state that can be completed.
    """
    num_states, num_classes = table.shape
    accepts = accepting.astype(np.uint8)
    live_bits = bits_of_rows(table)
    costs = _costs(table, accepts, byte_costs[0])
    max_bytes = 0
    for state in range(1, num_states):
        if costs[state] < NEVER:
            max_bytes = max(max_bytes, costs[state])
    plain = np.zeros(num_states, np.int32)
    fields = np.zeros(TEXT_WIDTH, np.int64)
    fields[0], fields[1], fields[2] = table.ctypes.data, accepts.ctypes.data, template.ctypes.data
    fields[3], fields[4], fields[5] = reach_bits.ctypes.data, live_bits.ctypes.data, costs.ctypes.data
    fields[6], fields[7], fields[8] = byte_costs.ctypes.data, is_wide.ctypes.data, num_ascii.ctypes.data
    fields[9], fields[10], fields[11] = num_classes, template.shape[0], reach_bits.shape[1]
    fields[12], fields[13] = start * template.shape[0], num_states
    fields[T_MAX], fields[T_PLAIN] = -1, plain.ctypes.data  # not counted
    fields[T_INNER] = fields[2]
    return accepts, live_bits, costs, plain, fields, max_bytes


@inner_kernel
def _costs(table: Any, accepts: Any, byte_costs: Any) -> Any:
    """int32[num_states]: least number of bytes from a character boundary to acceptance; NEVER if none.

    Args:
        byte_costs: int32[num_classes], least number of bytes of a character of the class.
    """
    num_states, num_classes = table.shape
    cost = np.full(num_states, NEVER, np.int32)
    changed = True
    forwards = False
    while changed:
        changed = False
        for i in range(1, num_states):
            state = i if forwards else num_states - i
            value = 0 if accepts[state] else NEVER
            for class_id in range(1, num_classes):
                target = table[state, class_id]
                if target:
                    value = min(value, cost[target] + byte_costs[class_id])
            if value < cost[state]:
                cost[state] = value
                changed = True
        forwards = not forwards
    return cost


@kernel
def bits_of_rows(flags: Any) -> Any:
    """Rows of flags (whatever is not 0) as uint64[num_rows, words]."""
    num_rows, num_flags = flags.shape
    bits = np.zeros((num_rows, (num_flags + 63) >> 6), np.uint64)
    for row in range(num_rows):
        for index in range(num_flags):
            if flags[row, index]:
                bits[row, index >> 6] |= np.uint64(1) << np.uint64(index & 63)
    return bits


@kernel
def character_kinds(template: Any, reach: Any, wide_template: Any, kinds: Any, below: Any) -> Any:
    """is_wide uint8[num_classes], num_ascii int32[num_classes] of a spelling, as described in `TextTable`.

    The last three arguments are `WideKinds`. Both templates are followed at once, as far as more than one class meets
    more than one kind.
    """
    num_classes = reach.shape[1]
    is_wide, num_ascii = np.zeros(num_classes, np.uint8), np.zeros(num_classes, np.int32)
    for byte in range(0x80):
        if template[0, byte] < 0:
            num_ascii[-template[0, byte]] += 1
    pairs = np.zeros((4 * 64, 2), np.int32)  # at most 63 wait at each of the three levels
    pairs[0, 0], pairs[0, 1], count = 0, 0, 1
    while count:
        count -= 1
        node, wide = pairs[count]
        only, num_reached = 0, 0
        for class_id in range(num_classes if node else 0):
            if reach[node, class_id]:
                only, num_reached = class_id, num_reached + 1
        if num_reached == 1:
            is_wide[only] |= below[wide]
            continue
        mask = below[wide]
        if node and mask & (mask - 1) == 0:
            for class_id in range(num_classes):
                if reach[node, class_id]:
                    is_wide[class_id] |= mask
            continue
        previous, previous_wide = 0, 0
        for byte in range(0x80, 256):
            entry, wide_entry = template[node, byte], wide_template[wide, byte]
            if entry == previous and wide_entry == previous_wide:
                continue
            previous, previous_wide = entry, wide_entry
            if entry < 0:
                is_wide[-entry] |= kinds[-wide_entry] if node and wide_entry < 0 else np.uint8(ALL_WIDE)
            elif entry > 0 and wide_entry > 0:
                pairs[count, 0], pairs[count, 1] = entry, wide_entry
                count += 1
            elif entry > 0:  # bytes that are no characters
                for class_id in range(num_classes):
                    is_wide[class_id] |= np.uint8(ALL_WIDE if reach[entry, class_id] else 0)
    return is_wide, num_ascii
