"""Making an alphabet and spelling it in UTF-8 and JSON, compiled; `alphabet.py` is the only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import inner_kernel, kernel

UNREACHABLE = 9  # more bytes than any character has
SHORT_ESCAPES = (
    (0x22, 0x22), (0x5C, 0x5C), (0x08, 0x62), (0x0C, 0x66), (0x0A, 0x6E), (0x0D, 0x72), (0x09, 0x74),
)  # fmt: skip


@inner_kernel
def _share(rows: Any, num_rows: Any, row: Any, slots: Any) -> Any:
    """The number (from 1) of a continuation row (int32[64]), which is added to rows if it is new."""
    empty = True
    hashed = np.uint64(0)
    for value in row:
        empty = empty and value == 0
        hashed = (hashed ^ np.uint64(np.int64(value) + 0x10000)) * np.uint64(0x9E3779B97F4A7C15)
        hashed ^= hashed >> np.uint64(29)
    if empty:
        return 0, num_rows
    slot = np.int64(hashed & np.uint64(slots.shape[0] - 1))
    while slots[slot] != 0:
        same = True
        for index in range(64):
            if rows[slots[slot] - 1, index] != row[index]:
                same = False
                break
        if same:
            return slots[slot], num_rows
        slot = (slot + 1) & (slots.shape[0] - 1)
    for index in range(64):
        rows[num_rows, index] = row[index]
    slots[slot] = num_rows + 1
    return num_rows + 1, num_rows + 1


@kernel
def spell(starts: Any, classes: Any, num_classes: Any) -> Any:
    """The byte trie of an alphabet: template int32[num_nodes, 256], as described in `Alphabet`."""
    num_intervals = starts.shape[0]
    # every block of 64 code points that is not of one class holds a boundary; three levels of nodes above them
    capacity = 3 * (num_intervals + num_classes) + 8 * num_classes + 64
    size = 256
    while size < 4 * capacity:
        size *= 2
    slots = np.zeros(size, np.int32)
    rows = np.zeros((capacity, 64), np.int32)
    uniform = np.zeros((num_classes, 3), np.int32)  # the node of "all of this class", by level; 0: not made yet
    num_rows = 0
    root = np.zeros(256, np.int32)
    low_row, middle_row, high_row = np.zeros(64, np.int32), np.zeros(64, np.int32), np.zeros(64, np.int32)
    interval = 0
    for point in range(0x80):
        while interval + 1 < num_intervals and starts[interval + 1] <= point:
            interval += 1
        root[point] = -classes[interval]
    for lead in range(0xC2, 0xF5):
        levels = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        base = (lead - 0xC0) << 6 if levels == 1 else (lead - 0xE0) << 12 if levels == 2 else (lead - 0xF0) << 18
        least = 0x80 if levels == 1 else 0x800 if levels == 2 else 0x10000
        high_row[:] = 0
        for high in range(64 if levels == 3 else 1):
            middle_row[:] = 0
            for middle in range(64 if levels >= 2 else 1):
                first = base + (high << 12) + (middle << 6)
                if first < least or first > 0x10FFFF:
                    continue
                while interval + 1 < num_intervals and starts[interval + 1] <= first:
                    interval += 1
                class_id = classes[interval]
                if interval + 1 == num_intervals or starts[interval + 1] >= first + 64:
                    if class_id and uniform[class_id, 0] == 0:
                        low_row[:] = -class_id
                        uniform[class_id, 0], num_rows = _share(rows, num_rows, low_row, slots)
                    node = uniform[class_id, 0]
                else:
                    at = interval
                    for low in range(64):
                        while at + 1 < num_intervals and starts[at + 1] <= first + low:
                            at += 1
                        low_row[low] = -classes[at]
                    node, num_rows = _share(rows, num_rows, low_row, slots)
                if levels == 1:
                    root[lead] = node
                else:
                    middle_row[middle] = node
            if levels >= 2:
                node, num_rows = _share(rows, num_rows, middle_row, slots)
                if levels == 2:
                    root[lead] = node
                else:
                    high_row[high] = node
        if levels == 3:
            root[lead], num_rows = _share(rows, num_rows, high_row, slots)
    # rows were numbered children first: turn them round, so that parents come first and the root is 0
    num_nodes = num_rows + 1
    template = np.zeros((num_nodes, 256), np.int32)
    for byte in range(256):
        template[0, byte] = root[byte] if root[byte] <= 0 else num_nodes - root[byte]
    for row in range(num_rows):
        for index in range(64):
            value = rows[row, index]
            template[num_nodes - 1 - row, 0x80 + index] = value if value <= 0 else num_nodes - value
    return template


@kernel
def completions(template: Any, num_classes: Any) -> Any:
    """What can still be completed from each node of a template whose children have greater numbers.

    Returns:
        reach bool[num_nodes, num_classes] and byte_costs int32[num_nodes, num_classes], as in `Alphabet`.
    """
    num_nodes = template.shape[0]
    reach = np.zeros((num_nodes, num_classes), np.bool_)
    costs = np.full((num_nodes, num_classes), UNREACHABLE, np.int32)
    for node in range(num_nodes - 1, -1, -1):
        previous = 0
        for byte in range(256):
            value = template[node, byte]
            if value < 0:
                reach[node, -value] = True
                costs[node, -value] = 1
            elif value > 0 and value != previous:
                previous = value
                for class_id in range(num_classes):
                    reach[node, class_id] |= reach[value, class_id]
                    costs[node, class_id] = min(costs[node, class_id], costs[value, class_id] + 1)
    return reach, costs


@kernel
def cut_out(points: Any) -> Any:
    """starts, classes of the alphabet in which the i-th of the sorted code points has class i + 1.

    The surrogates have class 0, all other characters the class behind those of the points.
    """
    num_points = points.shape[0]
    starts, classes = np.empty(2 * num_points + 3, np.int32), np.empty(2 * num_points + 3, np.int32)
    size, index, following = 0, 0, 0
    while following <= 0x10FFFF:
        starts[size] = following
        if following == 0xD800:
            classes[size], following = 0, 0xE000
        elif index < num_points and points[index] == following:
            index += 1
            classes[size], following = index, following + 1
        else:
            classes[size] = num_points + 1
            end = points[index] if index < num_points else 0x110000
            following = min(end, 0xD800) if following < 0xD800 else end
        size += 1
    return starts[:size].copy(), classes[:size].copy()


@kernel
def with_ascii(template: Any, points: Any) -> Any:
    """A template with one class, in which ASCII characters get classes as in `cut_out`."""
    found = np.empty(template.shape, np.int32)
    for node in range(template.shape[0]):
        for byte in range(256):
            value = template[node, byte]
            found[node, byte] = value if value >= 0 else -1 - points.shape[0]
    for index in range(points.shape[0]):
        found[0, points[index]] = -1 - index
    return found


@kernel
def with_escapes(template: Any, quote: Any) -> Any:
    """A template that spells characters as inside a JSON string; the bare quote has the class `quote`.

    Six more nodes: after the backslash, after u, u0, u00, u000 and u001.
    """
    first = template.shape[0]
    found = np.zeros((first + 6, 256), np.int32)
    found[:first] = template
    for point in range(0x20):
        found[0, point] = 0
        last = point & 15
        found[first + 4 + (point >> 4), last + (0x30 if last < 10 else 0x57)] = template[0, point]
    found[0, 0x22] = -quote
    found[0, 0x5C] = first
    found[first, 0x75] = first + 1
    found[first + 1, 0x30] = first + 2
    found[first + 2, 0x30] = first + 3
    found[first + 3, 0x30] = first + 4
    found[first + 3, 0x31] = first + 5
    for point, letter in SHORT_ESCAPES:
        found[first, letter] = template[0, point]
        if point < 0x20:
            last = point & 15
            found[first + 4 + (point >> 4), last + (0x30 if last < 10 else 0x57)] = 0
    return found
