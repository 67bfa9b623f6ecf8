"""Small compiled helpers on flat arrays.

Numba's own sort and slice assignment are general, and cost seconds of compilation each; these are not.
"""

from __future__ import annotations

from typing import Any

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
