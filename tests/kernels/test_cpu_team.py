"""Teams: every task is done once, on its own job's arguments, whoever comes, sleeps, rests or is away."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.kernels import cpu_atomics, cpu_threads, ops
from phloem.kernels.compiled import Task, compiled
from phloem.kernels.cpu_team import TeamMemory, argument, help_out, share


@Task
def COUNT(at, index):  # type: ignore[no-untyped-def]  # numba infers
    """Adds 1 + the job's number to the cell of the index."""
    cpu_atomics.add(argument(at, 0) + 8 * index, 1 + argument(at, 1))


@Task
def DAWDLE(at, index):  # type: ignore[no-untyped-def]
    """The same, but slower by the number of words that the job says."""
    for i in range(argument(at, 2)):
        cpu_atomics.add(argument(at, 0) + 8 * index, i - i)
    cpu_atomics.add(argument(at, 0) + 8 * index, 1 + argument(at, 1))


@compiled()
def run_jobs(team, function, cells, num_jobs, num_tasks, work):  # type: ignore[no-untyped-def]
    for job in range(num_jobs):
        words = np.array((cells[job].ctypes.data, job, work), np.int64)
        share(team, function, words, num_tasks)


@pytest.fixture(scope="module")
def team() -> Iterator[TeamMemory]:
    memory = TeamMemory()
    helpers = [threading.Thread(target=help_out, args=(memory.address, index), daemon=True) for index in range(3)]
    for helper in helpers:
        helper.start()
    memory.invite(3)
    yield memory
    memory.disband()
    for helper in helpers:
        helper.join(120)
        assert not helper.is_alive()


def counted(team: int, num_jobs: int, num_tasks: int, *, function: Task = COUNT, work: int = 0) -> bool:
    """Whether each task of each job has been done once, with the job's own arguments."""
    cells = np.zeros((num_jobs, num_tasks), np.int64)
    run_jobs(team, function.address, cells, num_jobs, num_tasks, work)
    return bool((cells == 1 + np.arange(num_jobs)[:, None]).all())


@settings(deadline=None, max_examples=50)
@given(num_jobs=st.integers(1, 300), num_tasks=st.integers(1, 70), work=st.integers(0, 300), helpers=st.integers(0, 3))
def test_every_task_is_done_once(team: TeamMemory, num_jobs: int, num_tasks: int, work: int, helpers: int) -> None:
    team.invite(helpers)
    assert counted(team.address, num_jobs, num_tasks, function=DAWDLE, work=work)


def test_helpers_that_went_to_sleep_come_back(team: TeamMemory) -> None:
    team.invite(3)
    for _ in range(20):
        time.sleep(0.005)
        assert counted(team.address, 3, 40)


def test_without_a_team_the_caller_does_it_all() -> None:
    assert counted(0, 5, 9)


def test_a_team_whose_helpers_never_come_is_no_trouble() -> None:
    memory = TeamMemory()
    memory.invite(3)
    assert counted(memory.address, 500, 7)


@pytest.fixture
def four_threads() -> Iterator[None]:
    cpu_threads.use_threads(4)
    yield
    cpu_threads.use_threads(None)


@pytest.mark.usefixtures("four_threads")
def test_callers_at_the_same_time_get_the_same_bits() -> None:
    weight, x = ops.pack_linear(torch.randn(1000, 300)), torch.randn(40, 300)
    expected, wrong = ops.linear(x, weight), []

    def compute() -> None:
        for _ in range(30):
            if not torch.equal(ops.linear(x, weight), expected):
                wrong.append(1)

    callers = [threading.Thread(target=compute) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
    assert not cpu_threads.ONE_TEAM.lock.locked()


@pytest.mark.parametrize("num_granted", [0, 1])
def test_a_team_goes_with_the_threads_that_the_system_grants(monkeypatch: pytest.MonkeyPatch, num_granted: int) -> None:
    weight, x = ops.pack_linear(torch.randn(1000, 300)), torch.randn(40, 300)
    expected = ops.linear(x, weight)
    team, start, asked = cpu_threads.Team(), threading.Thread.start, []

    def grant(thread: threading.Thread) -> None:
        asked.append(thread)
        if len(asked) > num_granted:
            raise RuntimeError("can't start new thread")
        start(thread)

    team.num_threads = 4
    monkeypatch.setattr(cpu_threads, "ONE_TEAM", team)
    monkeypatch.setattr(threading.Thread, "start", grant)
    for _ in range(20):
        assert torch.equal(ops.linear(x, weight), expected)
    assert len(asked) > num_granted
    team.close()


ALONE = """
    import os, sys, warnings
    import torch
    warnings.simplefilter("ignore")
    from phloem.kernels import ops, use_threads
    use_threads(3)
    torch.manual_seed(0)
    weight, x = ops.pack_linear(torch.randn(600, 400)), torch.randn(9, 400)
    before = ops.linear(x, weight)
"""
FORKED = """
    child = os.fork()
    if not child:
        os._exit(0 if torch.equal(ops.linear(x, weight), before) else 1)
    sys.exit(os.waitpid(child, 0)[1])
"""
AT_WORK = """
    import threading
    def work():
        for _ in range(3000):
            ops.linear(x, weight)
    threading.Thread(target=work).start()
"""


@pytest.mark.parametrize("rest", [FORKED, AT_WORK, ""], ids=["forked", "at work", "idle"])
def test_processes_fork_and_end_as_without_a_team(rest: str) -> None:
    script = textwrap.dedent(ALONE) + textwrap.dedent(rest)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=900, check=False)
    assert (done.returncode, done.stderr) == (0, "")
