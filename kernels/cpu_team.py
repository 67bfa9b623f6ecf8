"""A team of threads that share out the tasks of a compiled loop, and are worth having on a busy machine too.

::

    caller      publish ─ task ─ task ─ task ─────────── wait ─► next loop, a microsecond later
    helper 1         └─ task ─ task ─ task ─ task ─ done
    helper 2               (has no processor now: claims nothing, nobody waits for it)

A job is the address of a compiled function, the address of its arguments and a number of tasks. Tasks are claimed one
by one, from one word that all threads see; the caller claims like everybody else, so a helper that does not come is not
missed, and what is waited for at the end is only a task that somebody is in the middle of. Teams with a fixed share for
each thread (OpenMP's, and with it numba's `prange`) wait at the end of every loop for the slowest, which on a busy
machine has often not even begun: a decode step of some hundred loops then takes ten times as long as alone.

A helper that has nothing to do looks for a job for a while, some hundred microseconds, and then sleeps. Whether helpers
are any help is measured all the time: what jobs took, beside what the caller would have taken alone on a processor of
its own, at the pace of its own tasks. If they are none it works alone for so many jobs, twice as many each time, and
then tries again.

The word: ``generation << 32 | tasks left``. Claiming is a compare-and-exchange of the whole word, so nobody takes a
task of one job for one of the next; and the job is written before the word, and never while a task of the last is left.

Who does a task never changes what it computes; that is for the tasks to see to. One caller at a time (`cpu_threads`).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from . import cpu_atomics as atomics
from .compiled import compiled

LINE = 64  # bytes that move between processors at once: what different threads write lies on different lines
_TASKS_LEFT = (1 << 32) - 1

# places in a team's memory, in bytes
_JOB, _DONE, _FUNCTION, _ARGUMENTS, _NUM_TASKS, _NUM_HELPERS = 0, LINE, *(2 * LINE + 8 * i for i in range(4))
_NUM_SLEEPING, _IS_OVER = 3 * LINE, 3 * LINE + 8
_TOOK, _ALONE, _NUM_JOBS, _REST, _LAST_REST = (4 * LINE + 8 * i for i in range(5))  # the caller's own
_MUTEX, _CONDITION = 5 * LINE, 6 * LINE  # a line is at least what either takes on any POSIX system
NUM_BYTES = 7 * LINE

_LOOKS = 4000  # for a job, before a helper sleeps: 0.1 to 0.2 ms
_PATIENCE = 400  # looks at a task that is not done yet, before the caller gives way
_TRIAL = 32  # jobs after which help is judged,
_LOSS = 2_000_000  # or nanoseconds that it has cost
_FIRST_REST, _LONGEST_REST = 64, 1 << 14  # jobs that are done alone where it was none
_MAX_TASKS = 64  # of a product


@njit
def argument(arguments, index):  # type: ignore[no-untyped-def]  # numba infers
    """Word `index` of the arguments that a task is given."""
    return atomics.load(arguments + atomics.WORD * index)


@njit
def num_tasks_of(team, num_panels, run):  # type: ignore[no-untyped-def]
    """Tasks that a product is cut into; of its panels so many stay together as `run` says."""
    return 1 if team == 0 else min(_MAX_TASKS, (num_panels + run - 1) // run)


@njit
def panels_of_task(index, num_tasks, num_panels, run):  # type: ignore[no-untyped-def]
    """The panels of a task, from the first up to the end: whole runs."""
    num_runs = (num_panels + run - 1) // run
    return num_runs * index // num_tasks * run, min(num_panels, num_runs * (index + 1) // num_tasks * run)


@njit
def share(team, function, words, num_tasks):  # type: ignore[no-untyped-def]
    """Has tasks 0 … num_tasks - 1 of a function done, and returns when all are; with team 0 the caller does them.

    words: the arguments, int64.
    """
    arguments = np.int64(words.ctypes.data)
    if team == 0 or num_tasks == 1 or _is_resting(team):
        for index in range(num_tasks):
            atomics.call(function, arguments, index)
    else:
        _share(team, function, arguments, num_tasks)
    words[0] = 0  # so that they are still there: only here does numba see the last of them


@njit
def _is_resting(team):  # type: ignore[no-untyped-def]
    left = atomics.load(team + _REST)
    if left > 0:
        atomics.store(team + _REST, left - 1)
    return left > 0


@compiled()
def _share(team, function, arguments, num_tasks):  # type: ignore[no-untyped-def]
    begin, own_begin = atomics.nanoseconds(), atomics.own_nanoseconds()
    atomics.store(team + _FUNCTION, function)
    atomics.store(team + _ARGUMENTS, arguments)
    atomics.store(team + _NUM_TASKS, num_tasks)
    atomics.store(team + _DONE, 0)
    generation = ((atomics.load(team + _JOB) >> 32) + 1) & 0x3FFFFFFF
    atomics.store(team + _JOB, generation << 32 | num_tasks)
    if atomics.load(team + _NUM_SLEEPING) > 0:
        atomics.lock(team + _MUTEX)
        atomics.wake_all(team + _CONDITION)
        atomics.unlock(team + _MUTEX)
    num_own = 0
    while True:
        index = _claim(team, num_tasks)
        if index < 0:
            break
        atomics.call(function, arguments, index)
        num_own += 1
    worked = atomics.own_nanoseconds() - own_begin
    looks = 0
    while atomics.load(team + _DONE) < num_tasks - num_own:
        looks += 1
        if looks < _PATIENCE:
            atomics.pause()
        else:
            atomics.give_way()
    if num_own > 0:
        _judge(team, atomics.nanoseconds() - begin, worked * num_tasks // num_own)


@njit
def _claim(team, num_tasks):  # type: ignore[no-untyped-def]
    """The next task of the job under way; -1 if there is none left."""
    while True:
        job = atomics.load(team + _JOB)
        left = job & _TASKS_LEFT
        if left == 0:
            return -1
        if atomics.replace(team + _JOB, job, job - 1):
            return num_tasks - left


@njit
def _judge(team, took, alone):  # type: ignore[no-untyped-def]
    """After some jobs: whether they took less, by a tenth at least, than the caller alone would have taken."""
    took += atomics.load(team + _TOOK)
    alone += atomics.load(team + _ALONE)
    num_jobs = atomics.load(team + _NUM_JOBS) + 1
    if num_jobs == _TRIAL or took - alone > _LOSS:
        last = atomics.load(team + _LAST_REST)
        if 10 * took > 9 * alone:
            last = min(_LONGEST_REST, max(_FIRST_REST, 2 * last))
            atomics.store(team + _REST, last)
        else:
            last //= 4
        atomics.store(team + _LAST_REST, last)
        took, alone, num_jobs = 0, 0, 0
    atomics.store(team + _TOOK, took)
    atomics.store(team + _ALONE, alone)
    atomics.store(team + _NUM_JOBS, num_jobs)


@njit
def _has_work(team, index):  # type: ignore[no-untyped-def]
    return atomics.load(team + _JOB) & _TASKS_LEFT != 0 and index < atomics.load(team + _NUM_HELPERS)


@compiled()
def help_out(team, index):  # type: ignore[no-untyped-def]
    """What helper `index` does from its first day to its last."""
    looks = 0
    while atomics.load(team + _IS_OVER) == 0:
        job = atomics.load(team + _JOB)
        left = job & _TASKS_LEFT
        if left != 0 and index < atomics.load(team + _NUM_HELPERS):
            function, arguments = atomics.load(team + _FUNCTION), atomics.load(team + _ARGUMENTS)
            num_tasks = atomics.load(team + _NUM_TASKS)
            if atomics.replace(team + _JOB, job, job - 1):  # so all that was read is of this job
                atomics.call(function, arguments, num_tasks - left)
                atomics.add(team + _DONE, 1)
            looks = 0
        elif looks < _LOOKS:
            atomics.pause()
            looks += 1
        else:
            atomics.lock(team + _MUTEX)
            atomics.add(team + _NUM_SLEEPING, 1)  # whoever publishes from here on wakes us
            while not _has_work(team, index) and atomics.load(team + _IS_OVER) == 0:
                atomics.wait(team + _CONDITION, team + _MUTEX)
            atomics.add(team + _NUM_SLEEPING, -1)
            atomics.unlock(team + _MUTEX)
            looks = 0


@compiled()
def _found(team):  # type: ignore[no-untyped-def]
    atomics.init(team + _MUTEX, team + _CONDITION)


@compiled()
def _invite(team, num_helpers):  # type: ignore[no-untyped-def]
    atomics.store(team + _NUM_HELPERS, num_helpers)


@compiled()
def _disband(team):  # type: ignore[no-untyped-def]
    atomics.lock(team + _MUTEX)
    atomics.store(team + _IS_OVER, 1)
    atomics.wake_all(team + _CONDITION)
    atomics.unlock(team + _MUTEX)


class TeamMemory:
    """What the threads of a team share; it must outlive them.

    Attributes:
        address: of the memory, which the compiled functions call `team`.
    """

    def __init__(self) -> None:
        self._words = np.zeros((NUM_BYTES + LINE) // atomics.WORD, np.int64)
        self.address = -(-self._words.ctypes.data // LINE) * LINE
        _found(self.address)

    def invite(self, num_helpers: int) -> None:
        """From now on, helpers 0 … num_helpers - 1 take part; not while a job is under way."""
        _invite(self.address, num_helpers)

    def disband(self) -> None:
        """Helpers come back from `help_out`, as soon as they have done the task that they are at."""
        _disband(self.address)
