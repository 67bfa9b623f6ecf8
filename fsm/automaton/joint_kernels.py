"""Joint stacks: a rule that is called in several ways at once is entered once, on all their stacks (Tomita 1985).

Where a text can be read in two ways at every depth of a recursion, there are 2^depth stacks, and yet few frames:

    one stack each        a a a   a a b   a b a   a b b   b a a   b a b   b b a   b b b
    joint                 {a, b} on {a, b} on {a, b}

A joint is a list of frames of calls, newest first: (JOINT, stack with the frame, 0) on top of the rest of the list. So
equal lists are one stack, and a list that has grown shares what it was. Whoever returns on a joint returns on each of
its stacks. As calls are the only way to recur, there are few stacks for each place in the text at which a rule began.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..array_kernels import sort_beginning
from ..compiled import inner_kernel
from ..memory import CAP_WORK, F_COST, FOUND, STACK_ID_MASK, STACK_WIDTH, STACKS, i32, i64
from ..network.stack_kernels import JOINT, push_frame


@inner_kernel
def sort_calls(memory: Any, first: Any) -> None:
    """Sorts the calls in FOUND[first:CAP_WORK], each entry << NODE_SHIFT | stack: those of a rule then lie together."""
    if memory[CAP_WORK] - first > 1:
        sort_beginning(i64(memory[FOUND] + 8 * first), memory[CAP_WORK] - first)


@inner_kernel
def join(memory: Any, calls: Any, begin: Any, end: Any) -> Any:
    """The stack that stands for those of the sorted calls[begin:end], all of one rule; or a code for help."""
    stacks = i32(memory[STACKS])
    stack = calls[begin] & STACK_ID_MASK
    for index in range(begin + 1, end):
        other = calls[index] & STACK_ID_MASK
        if calls[index] != calls[index - 1]:
            cost = min(stacks[other * STACK_WIDTH + F_COST], stacks[stack * STACK_WIDTH + F_COST])
            stack = push_frame(memory, np.int64(JOINT), other, np.int64(0), stack, np.int64(cost))
            if stack < 0:
                return stack
    return stack
