"""Compiled loops that lay a text automaton out; `text_table.py` is their only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import inner_kernel, kernel
from .memory import NEVER, T_MAX, TEXT_WIDTH


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
        accepts, live_bits, costs, fields, and the greatest cost of a state that can be completed.
    """
    num_states, num_classes = table.shape
    accepts = accepting.astype(np.uint8)
    live_bits = bits_of_rows(table)
    costs = _costs(table, accepts, byte_costs[0])
    max_bytes = 0
    for state in range(1, num_states):
        if costs[state] < NEVER:
            max_bytes = max(max_bytes, costs[state])
    fields = np.zeros(TEXT_WIDTH, np.int64)
    fields[0], fields[1], fields[2] = table.ctypes.data, accepts.ctypes.data, template.ctypes.data
    fields[3], fields[4], fields[5] = reach_bits.ctypes.data, live_bits.ctypes.data, costs.ctypes.data
    fields[6], fields[7], fields[8] = byte_costs.ctypes.data, is_wide.ctypes.data, num_ascii.ctypes.data
    fields[9], fields[10], fields[11] = num_classes, template.shape[0], reach_bits.shape[1]
    fields[12], fields[13] = start * template.shape[0], num_states
    fields[T_MAX] = -1  # not counted
    return accepts, live_bits, costs, fields, max_bytes


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
def character_kinds(template: Any, reach: Any) -> Any:
    """is_wide uint8[num_classes], num_ascii int32[num_classes] of a spelling, as described in `TextTable`.

    The separators U+2028 and U+2029 are E2 80 A8 and E2 80 A9: on the way to them all but one byte is followed by
    wide characters only.
    """
    num_classes = reach.shape[1]
    is_wide, num_ascii = np.zeros(num_classes, np.uint8), np.zeros(num_classes, np.int32)
    for byte in range(0x80):
        if template[0, byte] < 0:
            num_ascii[-template[0, byte]] += 1
    node, first = 0, 0x80
    for onward in (0xE2, 0x80, -1):
        for byte in range(first, 256):
            entry = template[node, byte]
            if onward < 0 and (byte == 0xA8 or byte == 0xA9):
                if entry < 0:
                    is_wide[-entry] |= 2
            elif entry < 0:
                is_wide[-entry] |= 1
            elif entry > 0 and byte != onward:
                for class_id in range(num_classes):
                    if reach[entry, class_id]:
                        is_wide[class_id] |= 1
        if onward >= 0:
            if template[node, onward] <= 0:
                return is_wide, num_ascii
            node, first = template[node, onward], 0
    return is_wide, num_ascii
