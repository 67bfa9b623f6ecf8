"""Small compiled helpers on flat arrays.

Numba's own sort and slice assignment are general, and cost seconds of compilation each; these are not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .compiled import inner_kernel


@inner_kernel
def sort_beginning(array: Any, size: Any) -> None:
    """Sorts array[:size] in place (Shell's sort: fine for what fits into a state)."""
    gap = 1
    while gap < size // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, size):
            value = array[i]
            j = i
            while j >= gap and array[j - gap] > value:
                array[j] = array[j - gap]
                j -= gap
            array[j] = value
        gap //= 3


@inner_kernel
def copy_into(target: Any, at: Any, source: Any, count: Any) -> None:
    """target[at : at + count] = source[:count]."""
    for index in range(count):
        target[at + index] = source[index]


@inner_kernel
def grown(array: Any, size: Any) -> Any:
    """The array, or a zero-padded copy of at least twice its length with room for `size` entries."""
    if size <= array.shape[0]:
        return array
    larger = np.zeros(max(size, 2 * array.shape[0]), array.dtype)
    copy_into(larger, 0, array, array.shape[0])
    return larger


@inner_kernel
def grown_rows(table: Any, size: Any) -> Any:
    """The same for the rows of a table."""
    if size <= table.shape[0]:
        return table
    larger = np.zeros((max(size, 2 * table.shape[0]), table.shape[1]), table.dtype)
    for row in range(table.shape[0]):
        for column in range(table.shape[1]):
            larger[row, column] = table[row, column]
    return larger
