"""Room: the memory of one automaton, bounded in bytes, which grows when a compiled loop says that it needs more.

    call(loop) ── loop runs ── done: its result
                            └─ below zero: it needs something ── room is made, or more work allowed ── loop runs again

Lasting are states and stacks, which are never given up; rows, which remember steps, have what these leave of the bound,
and at least a sixteenth of it. Beside memory, work is bounded: for how long one thread may go on is an allowance.

Thread-safe: compiled functions hold the interpreter lock from beginning to end, and whatever moves memory that they
have the address of does so in one step of the interpreter (`_enlarge`), so that none of them meets a stale address.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import call
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import ConstraintTooLarge
from .. import memory as k
from ..network import stack_kernels
from ..text.alphabet import Ints
from ..vocabulary.vocabulary import work_arrays
from . import opening_kernels, state_kernels
from .rows import SEGMENT_BYTES, Rows, max_rows

ENDLESS = opening_kernels.ENDLESS
LAST_WORK = 1 << 20  # what is allowed at one go for what cannot be made in parts: a tenth of a second
FIRST_BREATH = 1 << 16  # configurations: some milliseconds
TOO_MUCH_WORK = "which tokens may come next takes too much work to find out; nest fewer repetitions"
LARGE_STEP = 1 << 20  # bytes
LEAST_HALVED = 1 << 20  # a bound on memory below which nothing is saved
MAX_CLOSURE = 1 << 16  # configurations that one byte may lead to, with those on the way to them
FIRST_STACKS, FIRST_STATES, FIRST_CONFIGURATIONS = 64, 128, 512  # room at the beginning
STACK_BYTES = 4 * (k.STACK_WIDTH + 2)  # with its slots
FIRST_BYTES = STACK_BYTES * FIRST_STACKS + 4 * (k.STATE_WIDTH + 2) * FIRST_STATES + 8 * FIRST_CONFIGURATIONS
UNUSED_AUTOMATON_BYTES = FIRST_BYTES + SEGMENT_BYTES
DEFAULT_MAX_BYTES = 256 << 20


class OutOfWork(Exception):
    """The allowance of this thread is used up; see `Room.allow`."""


class Room:
    """See the module's docstring.

    Args:
        num_words: the most words that a set of members takes on a stack (`AnyOrder`), to unpack them.
        max_bytes: bound on the memory that lasts; beyond it ConstraintTooLarge.

    Attributes:
        memory: counters and addresses, as compiled loops are given it; see `memory`.
        arrays: those behind the addresses, by index in the memory; rows: those of rows.
        lasting_bytes: the memory that cannot be forgotten: all but the rows. It is this that the bound is on.
    """

    __slots__ = ("_bounded_thread", "_breath", "_lock", "arrays", "lasting_bytes", "max_bytes", "memory", "rows")

    def __init__(self, num_words: int, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.memory: npt.NDArray[np.int64] = np.zeros(k.MEMORY_SIZE + 1 + num_words, np.int64)
        self.arrays: dict[int, npt.NDArray[Any]] = {
            k.STACKS: np.zeros(FIRST_STACKS * k.STACK_WIDTH, np.int32),
            k.STACK_SLOTS: np.zeros(2 * FIRST_STACKS, np.int32),
            k.STATES: np.zeros(FIRST_STATES * k.STATE_WIDTH, np.int32),
            k.STATE_SLOTS: np.zeros(2 * FIRST_STATES, np.int32),
            k.POOL: np.empty(FIRST_CONFIGURATIONS, np.int64),
        }
        self.rows = Rows()
        self.lasting_bytes = FIRST_BYTES
        self._lock = threading.Lock()
        self._bounded_thread = 0
        self._breath = FIRST_BREATH

    # ---------------------------------------------------------------- how full it is

    @property
    def num_bytes(self) -> int:
        """Memory of what was found so far."""
        return self.lasting_bytes + 4 * k.ROW_WIDTH * int(self.memory[k.CAP_ROWS])

    @property
    def is_half_full(self) -> bool:
        """Whether half of the bound on memory (and some) is used up: then states should be made for the text alone."""
        return 2 * self.lasting_bytes > max(self.max_bytes, LEAST_HALVED)

    def is_filled(self, share: float) -> bool:
        """Whether more than this share of the bound on memory, or of the numbers of stacks, is used up."""
        lasting_bytes = self.lasting_bytes
        if lasting_bytes > share * self.max_bytes:
            return True
        may_be = lasting_bytes > share * k.STACK_ID_MASK * STACK_BYTES
        return may_be and bool(self.memory[k.NUM_STACKS] > share * k.STACK_ID_MASK)

    @property
    def num_forgotten(self) -> int:
        """How many rows have given way to others so far."""
        return int(self.memory[k.NUM_FORGOTTEN])

    # ---------------------------------------------------------------- work

    def call(self, function: Callable[[], Any]) -> int:
        """Calls until nothing more is needed."""
        while True:
            work = int(self.memory[k.CAP_WORK])
            result = int(function())
            if result >= 0:
                return result
            self._grow(result, work)

    def allow(self, work: int) -> None:
        """Lets this thread look at so many configurations not yet met before it gets `OutOfWork`; see `ENDLESS`.

        Whatever raised it may be called again: the transitions found are kept, unless `num_forgotten` has grown.
        100,000 configurations take 10 to 30 ms. One thread at a time may be bounded, and does not bound the others.
        """
        self._bounded_thread = threading.get_ident() if work < ENDLESS else 0
        self.memory[k.ALLOWANCE] = work

    def breathe(self) -> None:
        """Lets long compiled loops of this thread, if it has no allowance, come up now and then to let others run.

        Others wait for the interpreter's lock as long as a loop runs. A loop that comes up goes on where it was, or
        begins anew; so its breath is twice as long each time, unless it has gone on (`make`).
        """
        if self._bounded_thread == 0:
            self._breath = FIRST_BREATH
            self.memory[k.ALLOWANCE] = FIRST_BREATH

    def give_up(self) -> int:
        """What is left of this thread's allowance, or `ENDLESS` if it has none; from now on it has none here."""
        left = int(self.memory[k.ALLOWANCE]) if self._bounded_thread == threading.get_ident() else ENDLESS
        self.memory[k.ALLOWANCE] = ENDLESS
        return left

    def charge(self, work: int) -> bool:
        """Takes work done elsewhere from the allowance; whether some is left."""
        self.memory[k.ALLOWANCE] -= work
        return bool(self.memory[k.ALLOWANCE] >= 0)

    def spend(self, work: int) -> None:
        """Before work elsewhere whose result is kept: takes it from the allowance.

        Raises:
            OutOfWork: nothing is left of this thread's allowance.
        """
        if not self.charge(0) and self._bounded_thread == threading.get_ident():
            raise OutOfWork
        self.charge(work)

    # ---------------------------------------------------------------- memory

    def make(self, need: int, *, has_gone_on: bool = False) -> None:
        """Answers a compiled loop's code for help, after which it is called again.

        has_gone_on: since the last time, for loops that go on where they were.

        Raises:
            ConstraintTooLarge: the bound on memory is passed.
        """
        if has_gone_on and need == k.OUT_OF_WORK:
            self._breath = FIRST_BREATH >> 1
        self._grow(need)

    def _grow(self, need: int, work: int = 0) -> None:
        """Makes room wherever less than half is left; `work`: for how many configurations there was room before.

        Raises:
            ConstraintTooLarge: there is too much of it already.
            OutOfWork: it is not room that is missing, see `allow`.
        """
        if need == k.OUT_OF_WORK:
            if self._bounded_thread == threading.get_ident():
                raise OutOfWork
            # another thread's allowance, which gets more than it asked for; or this thread's breath, which gets longer
            self._breath = min(2 * self._breath, ENDLESS)
            self.memory[k.ALLOWANCE] = self._breath
            return
        with self._lock:
            memory = self.memory
            if need == k.TOO_LARGE or self.lasting_bytes > self.max_bytes:
                raise ConstraintTooLarge(
                    f"the automaton of the constraint has passed its bound of {self.max_bytes >> 10} KiB "
                    "(max_constraint_bytes): raise it, or let less nest in itself and be open at once"
                )
            if need == k.NEED_WORK:
                if work not in (0, memory[k.CAP_WORK]):
                    return  # another thread has asked for the same
                if memory[k.CAP_WORK] >= MAX_CLOSURE:
                    raise ConstraintTooLarge(
                        f"some byte can be read in more than {MAX_CLOSURE} ways at once; nest fewer repetitions, "
                        "and let alternatives begin differently"
                    )
                capacity = 4 * int(memory[k.CAP_WORK])
                arrays = work_arrays(capacity)
                k.place_work(memory, capacity, *(array for _, array in arrays))
                self.arrays.update(arrays)
                self._weigh()
                return
            if 2 * memory[k.NUM_STACKS] >= memory[k.CAP_STACKS]:
                self._enlarge(k.STACKS, k.CAP_STACKS, k.STACK_WIDTH)
                self._rehash(k.STACK_SLOTS, k.CAP_STACKS, stack_kernels.rehash_stacks)
            if 2 * memory[k.NUM_STATES] >= memory[k.CAP_STATES]:
                self._enlarge(k.STATES, k.CAP_STATES, k.STATE_WIDTH)
                self._rehash(k.STATE_SLOTS, k.CAP_STATES, state_kernels.rehash_states)
            while memory[k.CAP_POOL] - memory[k.POOL_USED] < 2 * memory[k.CAP_WORK]:
                self._enlarge(k.POOL, k.CAP_POOL, 1)
            self._weigh()
            self.rows.fit(memory, max_rows(self.max_bytes, self.lasting_bytes))

    def _weigh(self) -> None:
        self.lasting_bytes = sum(array.nbytes for array in self.arrays.values())

    def _enlarge(self, index: int, capacity: int, width: int) -> None:
        """Doubles an array, or adds a megabyte if it is large already; nothing is copied.

        Between the move and the new address in memory no other thread may run. The interpreter changes threads
        between two steps of Python code only: `map` takes both calls in one.
        """
        array = self.arrays[index]
        held = int(self.memory[capacity])
        added = min(held, max(LARGE_STEP // (array.itemsize * width), 1))
        size = (held + added) * width
        k.place_grown(self.memory, index, array, capacity, 0)  # compiled from here on: that would be Python code
        move = partial(array.resize, size, refcheck=False)
        deque(map(call, (move, partial(k.place_grown, self.memory, index, array, capacity, added))), maxlen=0)

    def _rehash(self, slots: int, capacity: int, rehash: Callable[[Any, Ints], None]) -> None:
        size = len(self.arrays[slots])
        if size < 2 * int(self.memory[capacity]):
            array = np.zeros(2 * size, np.int32)
            rehash(self.memory, array)
            self.arrays[slots] = array
