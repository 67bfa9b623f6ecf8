"""The threads of the CPU's loops: how many there may be, and the one team of the process.

The team is lent to one caller at a time; a caller that finds it taken, by another engine say, computes alone. Results
never depend on that. Its helpers know nothing of Python and end with the process (`core/team.h`).

A caller that leaves everything to these loops should set torch to one thread: torch's threads wait for work by looking
for it, on processors that the team could use, and on a busy machine each of its loops waits for the last of them.
"""

from __future__ import annotations

import os

import torch

from ..._core import kernels as core

WORTH_SHARING = core.WORTH_SHARING  # multiply-adds of a loop that is shared out
ONE_TEAM = core.Team()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=ONE_TEAM.forget)


def use_threads(number: int | None) -> None:
    """From now on loops may use so many threads, in the whole process; None: as many as torch."""
    ONE_TEAM.num_threads = number or 0


def num_cpu_threads() -> int:
    """Threads that a loop may use."""
    return ONE_TEAM.num_threads or torch.get_num_threads()
