"""Whether a compiled loop may use several threads, decided per call.

numba's fallback threading layer aborts the process when two threads enter it at once, so one lock guards the team;
a caller that finds it taken computes alone. Results never depend on the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from numba import config as numba_config
from numba import set_num_threads

WORTH_THREADS = 1 << 22  # multiply-adds of a call: about a millisecond, some fifty times a thread team's start
ONE_TEAM = threading.Lock()


def is_single() -> bool:
    """Whether every call computes alone, whatever its size."""
    return 1 in (torch.get_num_threads(), numba_config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]  # set at run time


@contextmanager
def thread_team(num_multiply_adds: int) -> Iterator[int]:
    """How many threads the call may use, 1 for small work; the team is the caller's until the block ends."""
    num_threads = min(torch.get_num_threads(), numba_config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]  # set at run time
    if num_multiply_adds < WORTH_THREADS or num_threads == 1 or not ONE_TEAM.acquire(blocking=False):
        yield 1
        return
    try:
        set_num_threads(num_threads)
        yield num_threads
    finally:
        ONE_TEAM.release()
