"""Teams: every task runs on its own job's arguments, whichever threads come, sleep, rest or are away."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem._core import kernels as core
from phloem.kernels import ops
from phloem.kernels.cpu import threads as cpu_threads
from phloem.kernels.grouped import INPUT_LIMIT
from phloem.kernels.linear_weight import LinearWeight

SHAPES = [(64, 130), (1040, 16), (2000, 130), (300, 700)]  # outputs and inputs: one task, tiny ones, long ones
WEIGHTS = [ops.pack_linear(torch.randn(shape)) for shape in SHAPES]
ROWS = 60
INPUTS = [torch.randn(ROWS, depth) for _, depth in SHAPES]


def product(team: core.Team, num_threads: int, weight: LinearWeight, x: torch.Tensor) -> torch.Tensor:
    """Written over what is no number, so that a task that was not done is seen."""
    assert weight.bias is not None
    num_panels, _, width = weight.stored.shape
    out = torch.full((len(x), num_panels * width), torch.nan)
    places = (weight.stored.data_ptr(), weight.packing, weight.bias.data_ptr(), 0, out.data_ptr())
    core.multiply(team, num_threads, 0, x.data_ptr(), x.stride(0), *places, *x.shape, num_panels, -1.0, INPUT_LIMIT)
    return out


ALONE_RESULTS = [product(core.Team(), 1, weight, x) for weight, x in zip(WEIGHTS, INPUTS, strict=True)]


def is_right(team: core.Team, num_threads: int, which: int, rows: int) -> bool:
    return torch.equal(product(team, num_threads, WEIGHTS[which], INPUTS[which][:rows]), ALONE_RESULTS[which][:rows])


@pytest.fixture(scope="module")
def team() -> core.Team:
    return core.Team()


job = st.tuples(st.integers(0, len(SHAPES) - 1), st.integers(0, ROWS))


@settings(deadline=None, max_examples=50)
@given(num_threads=st.integers(1, 5), jobs=st.lists(job, min_size=1, max_size=40))
def test_every_task_is_done(team: core.Team, num_threads: int, jobs: list[tuple[int, int]]) -> None:
    for which, rows in jobs:
        assert is_right(team, num_threads, which, rows)


def test_helpers_that_went_to_sleep_come_back(team: core.Team) -> None:
    for _ in range(20):
        time.sleep(0.005)
        assert is_right(team, 4, 2, ROWS)
    assert team.num_helpers >= 3


def test_a_team_that_has_ended_leaves_no_threads() -> None:
    before = threads_of_this_process()
    for _ in range(30):
        team = core.Team()
        assert is_right(team, 4, 2, ROWS)
        assert team.num_helpers == 3
        del team
    assert threads_of_this_process() <= before + 3  # others may start some meanwhile


def threads_of_this_process() -> int:
    """As the system counts them; 0 where it does not say."""
    try:
        with open("/proc/self/status", encoding="utf-8") as status:
            return int(next(line for line in status if line.startswith("Threads:")).split()[1])
    except OSError:
        return 0


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
    assert cpu_threads.ONE_TEAM.take(2)  # it is free again
    cpu_threads.ONE_TEAM.give_back()


ALONE = """
    import os, sys, warnings
    import torch
    warnings.simplefilter("ignore")
    from phloem.kernels import ops, use_threads
    from phloem.kernels.cpu.threads import ONE_TEAM
    use_threads(3)
    torch.manual_seed(0)
    weight, x = ops.pack_linear(torch.randn(600, 400)), torch.randn(9, 400)
"""
COMPUTED = """
    before = ops.linear(x, weight)
    assert ONE_TEAM.num_helpers == 2
"""
FORKED = """
    child = os.fork()
    if not child:
        same = torch.equal(ops.linear(x, weight), before) and ONE_TEAM.num_helpers == 2
        os._exit(0 if same else 1)
    sys.exit(os.waitpid(child, 0)[1])
"""
AT_WORK = """
    import threading
    def work():
        for _ in range(3000):
            ops.linear(x, weight)
    threading.Thread(target=work).start()
"""
# by the loop alone: a thread that Python ends within an operation of torch's ends the process with it
LEFT_AT_WORK = """
    import threading
    from phloem._core import kernels as core
    out = torch.empty(9, 608)
    places = (weight.stored.data_ptr(), weight.packing, weight.bias.data_ptr(), 0, out.data_ptr())
    def work():
        while True:
            core.multiply(ONE_TEAM, 3, 0, x.data_ptr(), 400, *places, 9, 400, 38, -1.0, 127.5)
    threading.Thread(target=work, daemon=True).start()
"""
# no memory for the stack of another thread
NO_THREADS = """
    import resource, time
    use_threads(1)
    before = ops.linear(x, weight)
    use_threads(3)
    with open("/proc/self/statm") as sizes:
        size = int(sizes.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + (4 << 20), resource.RLIM_INFINITY))
    for _ in range(20):
        assert torch.equal(ops.linear(x, weight), before)
    assert ONE_TEAM.num_helpers == 0, ONE_TEAM.num_helpers
"""


# no memory for what a task needs: in the caller and in helpers
NO_MEMORY = """
    import resource
    import numpy as np
    from phloem.kernels import plan_attention
    from phloem.kernels.ops import attention
    q, caches = torch.randn(2, 6, 256), torch.randn(2, 20, 3, 16, 256)
    starts, lens = np.array([0, 1, 2], np.int32), np.array([150, 160], np.int32)
    tables = np.arange(20, dtype=np.int32).reshape(2, 10)
    plan = plan_attention(starts, lens, tables, num_heads=6, num_kv_heads=3, head_dim=256, block_size=16)
    before = attention(q, *caches, plan, scale=0.1)
    assert ONE_TEAM.num_helpers == 2
    num_failed = 0
    for attempt in range(400):  # how much a task finds in spite of the ballast differs from machine to machine
        if num_failed == 6:
            break
        with open("/proc/self/statm") as sizes:
            size = int(sizes.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        ballast = []  # what the process has and does not use, in pieces that a task might take
        try:
            while True:
                ballast.append(bytearray(10_000 * (1 + attempt % 8)))
        except MemoryError:
            pass
        try:
            attention(q, *caches, plan, scale=0.1)
        except MemoryError:
            num_failed += 1
        except RuntimeError as error:  # torch's own word for it, before there is a task
            assert "can't allocate memory" in str(error)
        finally:
            ballast.clear()
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert torch.equal(attention(q, *caches, plan, scale=0.1), before)
        assert ONE_TEAM.take(2)
        ONE_TEAM.give_back()
    assert num_failed == 6, num_failed
"""


@pytest.mark.parametrize(
    "rest",
    [COMPUTED + FORKED, COMPUTED + AT_WORK, COMPUTED + LEFT_AT_WORK, COMPUTED],
    ids=["forked", "at work", "left at work", "idle"],
)
def test_processes_fork_and_end_as_without_a_team(rest: str) -> None:
    assert run(rest) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory the process has")
def test_a_team_goes_with_the_threads_that_the_system_grants() -> None:
    assert run(NO_THREADS) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux how much memory the process has")
def test_a_task_without_memory_is_a_memory_error_and_the_team_works_on() -> None:
    assert run(NO_MEMORY) == (0, "")


def test_a_team_that_cannot_be_as_large_as_wanted_is_not_lost() -> None:
    team = core.Team()
    assert is_right(team, 1 << 62, 2, ROWS)
    assert team.num_helpers == 0
    assert is_right(team, 4, 2, ROWS)
    assert team.num_helpers == 3


def run(rest: str) -> tuple[int, str]:
    """Exit status and errors of a process, in which large pieces of memory are asked of the system."""
    script = textwrap.dedent(ALONE) + textwrap.dedent(rest)
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    env = {**plain, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=900, check=False
    )
    return done.returncode, done.stderr
