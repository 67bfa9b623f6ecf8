"""The threads of the CPU's loops: how many there may be, and the one team of the process.

One caller at a time has the team; a caller that finds it busy, for instance with another engine, computes on its own
thread. Results never depend on that. Its helpers know nothing of Python and end with the process (`core/team.h`).

A caller that uses these loops only should set torch to one thread: torch's threads spin while they wait for work, on
processors that the team could use, and on a busy machine each of torch's loops waits for the slowest of them.
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
    """Sets how many threads loops may use, in the whole process; None: the number that torch uses."""
    ONE_TEAM.num_threads = number or 0


def num_cpu_threads() -> int:
    """Threads that a loop may use."""
    return ONE_TEAM.num_threads or torch.get_num_threads()
