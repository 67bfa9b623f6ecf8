"""Configurations that others cover: whatever may follow them may follow another one of the same state.

Nested counted repetition, ``(.{1,1000}b?){1,1000}``, can have read the same text in as many ways as there are pairs of
counts. Nearly all of them need not be kept. Two configurations at the same place whose stacks differ in counts only:

    characters read in this turn   3       2         the first has the least number in both, and where a minimum is to
    turns begun                    5 1     5 2       be reached has reached it: it may still do all that the other may

So of a state only the configurations are kept that no other covers: here two, where there were a million. The language
is the same, and with it every mask. Only what is left of a *maximum* is compared; below a minimum counts must be equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inner_kernel
from ..memory import (
    ARG,
    F_COUNT,
    F_OWED,
    F_PARENT,
    F_RETURN,
    K_LOOP,
    KIND,
    LOOPS,
    STACK_BITS,
    STACK_ID_MASK,
    STACK_WIDTH,
    STACKS,
    T_MIN,
    TEXT_WIDTH,
    TEXTS,
    i32,
    i64,
)
from ..network.stack_kernels import JOINT

MAX_COMPARED = 64  # configurations at one place that another is compared with: keeping too many is no fault
MAX_HEIGHT = 32  # frames that are compared


@inner_kernel
def without_covered(memory: Any, found: Any, size: Any) -> Any:
    """Moves those that are kept of the sorted configurations found[:size] to the front; their number."""
    kept, begin = np.int64(0), np.int64(0)  # found[begin:kept] are at the place of the one that is looked at
    for i in range(size):
        key = found[i]
        if kept > begin and found[kept - 1] >> STACK_BITS != key >> STACK_BITS:
            begin = kept
        stack = key & STACK_ID_MASK
        is_covered, holes = False, np.int64(0)
        for j in range(max(begin, kept - MAX_COMPARED), kept):
            other = found[j] & STACK_ID_MASK
            if _covers(memory, other, stack):
                is_covered = True
                break
            if _covers(memory, stack, other):
                found[j] = -1
                holes += 1
        if holes:
            kept = _closed(found, begin, kept)
        if not is_covered:
            found[kept] = key
            kept += 1
    return kept


@inner_kernel
def _closed(found: Any, begin: Any, end: Any) -> Any:
    """Moves found[begin:end] together where there are holes, which are -1; the new end."""
    kept = begin
    for i in range(begin, end):
        if found[i] >= 0:
            found[kept] = found[i]
            kept += 1
    return kept


@inner_kernel
def _covers(memory: Any, stack: Any, other: Any) -> Any:
    """Whether all that may follow on top of the other stack may follow on top of this one; False if they are high."""
    stacks = i32(memory[STACKS])
    for _ in range(MAX_HEIGHT):
        if stack == other:
            return True
        if stack == 0 or other == 0:
            return False
        at, beside = stack * STACK_WIDTH, other * STACK_WIDTH
        node = np.int64(stacks[at + F_RETURN])
        if node == JOINT or stacks[beside + F_RETURN] != node or stacks[beside + F_OWED] != stacks[at + F_OWED]:
            return False
        count = stacks[at + F_COUNT]
        if count != stacks[beside + F_COUNT]:
            if count > stacks[beside + F_COUNT]:
                return False
            if node < 0:  # a counted text
                if count < i64(memory[TEXTS] + i32(memory[ARG])[~node] * (TEXT_WIDTH * 8))[T_MIN]:
                    return False
            elif i32(memory[KIND])[node] != K_LOOP or count < i32(memory[LOOPS])[i32(memory[ARG])[node] * 4 + 1]:
                return False
        stack, other = np.int64(stacks[at + F_PARENT]), np.int64(stacks[beside + F_PARENT])
    return stack == other
