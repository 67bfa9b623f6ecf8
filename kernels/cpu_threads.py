"""The threads of the CPU's loops: who may use them, decided per call.

There is one team in a process. It is lent to one caller at a time; a caller that finds it taken, by another engine say,
computes alone. Results never depend on the answer.

It has as many threads as `use_threads` said, or as torch is set to use. Who leaves everything to these loops had better
set torch to one: its threads wait for work by looking for it, on processors that the team could use, and on a busy
machine each of its loops waits for the last of them.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .cpu_atomics import HAS_THREADS
from .cpu_team import TeamMemory, help_out

WORTH_SHARING = 1 << 17  # multiply-adds of a loop: ten to thirty microseconds, some ten times what sharing them takes


class Team:
    """Helpers, started when they are first wanted, and never more than have been.

    Attributes:
        lock: held by whoever has the team.
        num_threads: of the team, the caller among them; None: as torch.
    """

    def __init__(self) -> None:
        self.num_threads: int | None = None
        self.forget()
        atexit.register(self.close)
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """Begins anew, without threads: in a process that was forked there are none."""
        self.lock = threading.Lock()
        self._memory: TeamMemory | None = None
        self._helpers: list[threading.Thread] = []
        self._num_invited = 0

    def gather(self, num_threads: int) -> int:
        """The team's address, ready for so many threads at most, the caller among them. Only with the lock."""
        if self._memory is None:
            self._memory = TeamMemory()
        for index in range(len(self._helpers), num_threads - 1):
            arguments = (self._memory.address, index)
            helper = threading.Thread(target=help_out, args=arguments, name=f"phloem-helper-{index}", daemon=True)
            try:
                helper.start()
            except RuntimeError:  # the system has no more threads for this process: it goes with those that there are
                break
            self._helpers.append(helper)
        num_helpers = min(num_threads - 1, len(self._helpers))
        if self._num_invited != num_helpers:
            self._num_invited = num_helpers
            self._memory.invite(num_helpers)
        return self._memory.address

    def close(self) -> None:
        """Ends the helpers, whose code and memory go with the interpreter; whoever comes later works alone."""
        if self.lock.acquire(timeout=1.0) and self._memory is not None:
            self._memory.disband()
            for helper in self._helpers:
                helper.join(1.0)


ONE_TEAM = Team()


def use_threads(number: int | None) -> None:
    """From now on loops may use so many threads, in the whole process; None: as many as torch."""
    ONE_TEAM.num_threads = number


def num_cpu_threads() -> int:
    """Threads that a loop may use."""
    return (ONE_TEAM.num_threads or torch.get_num_threads()) if HAS_THREADS else 1


@contextmanager
def thread_team(num_multiply_adds: int) -> Iterator[int]:
    """The address of the team, the caller's until the block ends; 0: work alone, for it is little or others have it."""
    num_threads = num_cpu_threads()
    if num_multiply_adds < WORTH_SHARING or num_threads == 1 or not ONE_TEAM.lock.acquire(blocking=False):
        yield 0
        return
    lock = ONE_TEAM.lock
    try:
        yield ONE_TEAM.gather(num_threads)
    finally:
        lock.release()
