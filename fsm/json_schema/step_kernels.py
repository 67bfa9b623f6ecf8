"""Trying all short decimals against a step, compiled; `json_schema/steps.py` is the only user."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import kernel


@kernel
def tried(numerator: Any, places: Any, decimals: Any, num_units: Any) -> Any:
    """int32[num_units]: 0 where index / 10**decimals is a multiple of numerator / 10**places for all readers, else -1.

    For those who compute in decimals, and for those who divide floats. There are at most as many decimals as places.
    """
    scale = 10.0**decimals
    step = numerator / 10.0**places
    shift = 10 ** (places - decimals)
    found = np.empty(num_units, np.int32)
    for unit in range(num_units):
        quotient = unit / scale / step
        found[unit] = 0 if unit * shift % numerator == 0 and quotient == np.floor(quotient) else -1
    return found


@kernel
def grouped(numbers: Any) -> Any:
    """Equal rows of ten as one kind.

    Args:
        numbers: int32[10 * n].

    Returns:
        The kinds, int32[num_kinds, 10], in order of their first row, and the kind of each row, int32[n].
    """
    num_rows = numbers.shape[0] // 10
    size = 1
    while size < 2 * num_rows:
        size *= 2
    slots = np.full(size, -1, np.int32)
    firsts = np.empty(num_rows, np.int32)
    kinds = np.empty(num_rows, np.int32)
    num_kinds = 0
    for row in range(num_rows):
        hashed = np.uint64(0)
        for index in range(10):
            hashed = (hashed ^ np.uint64(numbers[10 * row + index] + 2)) * np.uint64(0x9E3779B97F4A7C15)
            hashed ^= hashed >> np.uint64(29)
        slot = np.int64(hashed & np.uint64(size - 1))
        while slots[slot] >= 0:
            other = firsts[slots[slot]]
            same = True
            for index in range(10):
                if numbers[10 * row + index] != numbers[10 * other + index]:
                    same = False
                    break
            if same:
                break
            slot = (slot + 1) & (size - 1)
        if slots[slot] < 0:
            slots[slot] = num_kinds
            firsts[num_kinds] = row
            num_kinds += 1
        kinds[row] = slots[slot]
    rows = np.empty((num_kinds, 10), np.int32)
    for kind in range(num_kinds):
        for index in range(10):
            rows[kind, index] = numbers[10 * firsts[kind] + index]
    return rows, kinds
