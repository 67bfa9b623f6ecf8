"""Automaton: a network run as a byte automaton whose states and transitions are found when they are first needed.

A *state* is an integer: the interned set of all configurations (position, stack) that the bytes so far allow. 0 is
dead; 1 (END) is accepting and nothing may follow: there is one such state, since all are interned. Regular
constraints have finitely many, recursive ones as many as are visited.
Every state can reach acceptance, so a byte that is not refused is never a dead end.

This class owns the memory and grows it; the work is done in `automaton_kernels`. It does not know tokens except as
byte strings with ids (the trie).

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
from ..compiled import callback_address
from ..network import stack_kernels
from ..network.network import Network
from ..network.stack_kernels import JOINT
from ..text.alphabet import Ints
from ..vocabulary.vocabulary import Vocabulary, work_arrays
from . import automaton_kernels, opening_kernels, state_kernels, text_walk_kernels, walk_kernels
from .rows import SEGMENT_BYTES, Rows, max_rows

END = opening_kernels.END  # the state in which the text is complete and cannot go on
NO_LIMIT = walk_kernels.NO_LIMIT
PLACES_HEAD, PLACE_WIDTH = walk_kernels.PLACES_HEAD, automaton_kernels.PLACE_WIDTH
ENDLESS = opening_kernels.ENDLESS
IN_TEXT = walk_kernels.IN_TEXT
LARGE_STEP = 1 << 20  # bytes
LEAST_HALVED = 1 << 20  # a bound on memory below which nothing is saved
MAX_CLOSURE = 1 << 16  # configurations that one byte may lead to, with those on the way to them
FIRST_STACKS, FIRST_STATES, FIRST_CONFIGURATIONS = 64, 128, 512  # room at the beginning
STACK_BYTES = 4 * (k.STACK_WIDTH + 2)  # with its slots
FIRST_BYTES = STACK_BYTES * FIRST_STACKS + 4 * (k.STATE_WIDTH + 2) * FIRST_STATES + 8 * FIRST_CONFIGURATIONS
UNUSED_AUTOMATON_BYTES = FIRST_BYTES + SEGMENT_BYTES
DEFAULT_MAX_BYTES = 256 << 20

_NO_TEXT = bytes(8 * k.TEXT_WIDTH)


class OutOfWork(Exception):
    """The allowance of this thread is used up; see `Automaton.allow`."""


class Automaton:
    """The states of one network over one vocabulary.

    Args:
        network: what may be written.
        vocabulary: whose tokens the walks go through.
        max_bytes: bound on the memory of states and stacks; beyond it ConstraintTooLarge. Rows, which remember steps,
            have what these leave of it, and at least a sixteenth.
    """

    def __init__(self, network: Network, vocabulary: Vocabulary, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.network = network
        self.vocabulary = vocabulary
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._shared = vocabulary.shared  # its arrays live as long as their addresses are in the memory
        self._memory = memory = np.zeros(k.MEMORY_SIZE + 1 + network.head[k.N_MAX_WORDS], np.int64)
        self._texts = np.frombuffer(bytearray().join([text.packed for text in network.texts]) or _NO_TEXT, np.int64)
        for index in network.key_texts:
            self._texts[index * k.TEXT_WIDTH + k.T_IS_KEY] = k.AN_ITEM if index in network.item_texts else k.A_KEY
        stacks, stack_slots = np.zeros(FIRST_STACKS * k.STACK_WIDTH, np.int32), np.zeros(2 * FIRST_STACKS, np.int32)
        states, state_slots = np.zeros(FIRST_STATES * k.STATE_WIDTH, np.int32), np.zeros(2 * FIRST_STATES, np.int32)
        pool = np.empty(FIRST_CONFIGURATIONS, np.int64)
        self._rows = Rows()
        self._arrays: dict[int, npt.NDArray[Any]] = {
            k.STACKS: stacks,
            k.STACK_SLOTS: stack_slots,
            k.STATES: states,
            k.STATE_SLOTS: state_slots,
            k.POOL: pool,
        }
        self._lasting_bytes = FIRST_BYTES
        self._bounded_thread = 0
        shared, transition = self._shared.memory, callback_address(automaton_kernels.transition)
        start = opening_kernels.open_memory(
            memory,
            shared,
            transition,
            network.data,
            network.byte_sets,
            self._texts,
            stacks,
            stack_slots,
            states,
            state_slots,
            pool,
            self._rows.addresses,
            self._rows.first,
            max_rows(max_bytes, FIRST_BYTES),
        )
        self.start = start if start >= 0 else self.enter(network.start, 0)

    # ---------------------------------------------------------------- questions about states

    @property
    def num_states(self) -> int:
        """Number of states found so far, the dead one included."""
        return int(self._memory[k.NUM_STATES])

    @property
    def max_states(self) -> int:
        """Number of states that there is room for."""
        return int(self._memory[k.CAP_STATES])

    @property
    def memory(self) -> npt.NDArray[np.int64]:
        """What compiled loops are given; see `memory`."""
        return self._memory

    @property
    def num_bytes(self) -> int:
        """Memory of what was found so far."""
        return self._lasting_bytes + 4 * k.ROW_WIDTH * int(self._memory[k.CAP_ROWS])

    @property
    def num_lasting_bytes(self) -> int:
        """The part of it that cannot be forgotten: all but the rows. It is this that the bound is on."""
        return self._lasting_bytes

    @property
    def is_half_full(self) -> bool:
        """Whether half of the bound on memory (and some) is used up: then states should be made for the text alone."""
        return 2 * self._lasting_bytes > max(self.max_bytes, LEAST_HALVED)

    def is_filled(self, share: float) -> bool:
        """Whether more than this share of the bound on memory, or of the numbers of stacks, is used up."""
        lasting_bytes = self._lasting_bytes
        if lasting_bytes > share * self.max_bytes:
            return True
        may_be = lasting_bytes > share * k.STACK_ID_MASK * STACK_BYTES
        return may_be and bool(self._memory[k.NUM_STACKS] > share * k.STACK_ID_MASK)

    @property
    def num_forgotten(self) -> int:
        """How many rows have given way to others so far."""
        return int(self._memory[k.NUM_FORGOTTEN])

    def is_accepting(self, state: int) -> bool:
        """Whether the text may end here (EOS is allowed now)."""
        return bool(self._arrays[k.STATES][state * k.STATE_WIDTH + k.S_ACCEPTS])

    def key_place(self, state: int) -> int:
        """NO_KEY, or BEFORE_KEY or IN_KEY: whether a key, or item, to be remembered may begin here, or has begun."""
        return int(self._arrays[k.STATES][state * k.STATE_WIDTH + k.S_KEY]) & k.PLACE_MASK

    def has_bytes(self, state: int) -> bool:
        """Whether anything at all may follow."""
        return bool(self._arrays[k.STATES][state * k.STATE_WIDTH + k.S_SIZE])

    def min_bytes(self, state: int) -> int:
        """Number of bytes that surely suffice to reach acceptance."""
        return int(self._arrays[k.STATES][state * k.STATE_WIDTH + k.S_COST])

    def configurations(self, state: int) -> list[tuple[int, int, int]]:
        """(node, text state, stack) of every configuration."""
        states, pool, at = self._arrays[k.STATES], self._arrays[k.POOL], state * k.STATE_WIDTH
        offset = int(states[at + k.S_OFFSET])
        # element by element, since a view would not survive another thread's growth
        keys = [int(pool[offset + index]) for index in range(int(states[at + k.S_SIZE]))]
        return [(key >> 43, key >> k.STACK_BITS & k.SUB_MASK, key & k.STACK_ID_MASK) for key in keys]

    def texts(self, state: int) -> tuple[list[tuple[int, int, int, int]], bool]:
        """Where a state stands inside texts, and whether it also stands elsewhere.

        Configurations that stand alike are one entry: (for `after_text`, index of the text, state in it, characters
        read if they are counted).
        """
        size = int(self._arrays[k.STATES][state * k.STATE_WIDTH + k.S_SIZE])
        found = np.empty((size, PLACE_WIDTH), np.int64)
        num_groups, num_others = automaton_kernels.text_groups(self._memory, state, found.reshape(-1))
        return list(map(tuple, found[:num_groups, :4].tolist())), num_others > 0

    def frame(self, stack: int) -> list[int]:
        """The topmost frame of a stack (`memory.F_RETURN` ..)."""
        found: list[int] = self._arrays[k.STACKS][stack * k.STACK_WIDTH : (stack + 1) * k.STACK_WIDTH].tolist()
        return found

    def frames(self, stack: int) -> list[tuple[int, int]]:
        """(node to go on at, turns done) of every frame of a stack, the top first; of a joint, of its newest stack."""
        stacks, found = self._arrays[k.STACKS], []
        while stack:
            at = stack * k.STACK_WIDTH
            if stacks[at + k.F_RETURN] == JOINT:
                stack = int(stacks[at + k.F_COUNT])
                continue
            found.append((int(stacks[at + k.F_RETURN]), int(stacks[at + k.F_COUNT])))
            stack = int(stacks[at + k.F_PARENT])
        return found

    def live_bytes(self, state: int) -> npt.NDArray[np.uint8]:
        """uint8[256], 1 for every byte that may follow. A fresh array."""
        live = np.zeros(256, np.uint8)
        automaton_kernels.live_bytes(self._memory, state, live)
        return live

    # ---------------------------------------------------------------- moving

    def advance(self, state: int, token_id: int) -> int:
        """The state after a token of the vocabulary; 0 if it is refused."""
        target = int(automaton_kernels.advance(self._memory, state, token_id))
        if target < 0:
            return self._call(lambda: automaton_kernels.advance(self._memory, state, token_id))
        return target

    @property
    def step(self) -> Callable[[Any, int, int], int]:
        """The compiled f(memory, state, token_id), for callers to whom a microsecond matters; below zero: `advance`."""
        step: Callable[[Any, int, int], int] = automaton_kernels.advance
        return step

    def advance_bytes(self, state: int, data: bytes) -> int:
        """The state after some bytes; 0 if they are refused."""
        array = np.frombuffer(data, np.uint8)
        return self._call(lambda: automaton_kernels.advance_bytes(self._memory, state, array))

    def enter(self, node: int, stack: int) -> int:
        """The state in which exactly this position has been reached."""
        return self._call(lambda: automaton_kernels.ask(self._memory, k.ENTER, node, stack))

    def after_text(self, state: int, configuration: int) -> int:
        """The state in which a text of `texts` has ended."""
        return self._call(lambda: automaton_kernels.ask(self._memory, k.AFTER_TEXT, state, configuration))

    def without_texts(self, state: int) -> int:
        """The state without its configurations inside text automata, not accepting; 0 if none is left."""
        return self._call(lambda: automaton_kernels.ask(self._memory, k.WITHOUT_TEXTS, state, 0))

    def without_items(self, state: int) -> int:
        """The state without its configurations inside items to be remembered, not accepting; 0 if none is left."""
        return self._call(lambda: automaton_kernels.ask(self._memory, k.WITHOUT_TEXTS, state, k.AN_ITEM))

    def stays_on_plain(self, state: int) -> bool:
        """Whether every token of plain characters (`Vocabulary.is_plain`) leads back to the state."""
        return bool(text_walk_kernels.stays_on_plain(self._memory, state))

    def forced_run(self, state: int, max_bytes: int) -> tuple[bytes, int]:
        """The bytes that must come next whatever is chosen, and the state behind them."""
        run = np.empty(max_bytes, np.uint8)
        while True:
            count, target = automaton_kernels.forced_run(self._memory, state, run, self.vocabulary.shared.live)
            if target >= 0:
                return run[:count].tobytes(), int(target)
            self._grow(target)

    # ---------------------------------------------------------------- walks through the vocabulary

    def walk(self, state: int, limit: int, bits: Ints) -> int:
        """Sets the bits of the tokens that may follow and leave at most `limit` bytes to acceptance.

        Returns 1 + the greatest number of bytes to acceptance after any token that may follow; 0 if there is none.
        """
        return self._call(lambda: walk_kernels.walk(self._memory, state, self.vocabulary.shared.live, limit, bits))

    def begin_row(self, state: int, bits: Ints, places: npt.NDArray[np.int64]) -> int:
        """Writes the row of a state, EOS included; returns as `walk`. IN_TEXT: it stands in texts, see `begin_row`."""
        shared = self.vocabulary.shared
        eos = self.vocabulary.eos_words
        return self._call(lambda: walk_kernels.begin_row(self._memory, state, shared.live, eos, bits, places))

    def row_in_text(
        self,
        state: int,
        after: int,
        rest: int,
        trie: int,
        inside: Ints,
        exits: Ints | None,
        starts: Ints | None,
        bits: Ints,
    ) -> int:
        """Writes the row of a state that stands in one text, EOS included; see `walk_kernels.row_in_text`."""
        live, eos = self.vocabulary.shared.live, self.vocabulary.eos_words
        return self._call(
            lambda: walk_kernels.row_in_text(
                self._memory, state, after, rest, trie, inside, exits, starts, live, eos, bits
            )
        )

    def targets(self, state: int, bits: Ints) -> Ints:
        """int32[vocabulary size]: the state after each token whose bit is set, 0 for the others."""
        found = np.empty(self.vocabulary.size, np.int32)
        self._call(lambda: walk_kernels.token_targets(self._memory, state, bits, found))
        return found

    def walk_exits(self, trie: int, state: int, exits: Ints, starts: Ints, limit: int, bits: Ints) -> int:
        """`walk`, but only below the given trie nodes, at which `state` has been reached."""
        return self._call(
            lambda: walk_kernels.walk_exits(
                self._memory, trie, state, self.vocabulary.shared.live, exits, starts, limit, bits
            )
        )

    def walk_text(
        self, fields: npt.NDArray[np.int64], sub: int, count: int, limit: int, bits: Ints, exits: Ints
    ) -> tuple[int, int, int]:
        """`walk` inside one text automaton, bits being overwritten; see `text_walk_kernels.walk_text`."""
        shared = self.vocabulary.shared
        num_exits, worst, trie = text_walk_kernels.walk_text(
            self._memory, fields, sub, count, limit, bits, exits, shared.known, shared.safe
        )
        return num_exits, worst, trie

    def text_targets(self, text: int, sub: int, count: int) -> npt.NDArray[np.int64]:
        """int64[vocabulary size]: where each token ends that stays inside a text; see `text_walk_kernels`."""
        targets = np.empty(self.vocabulary.size, np.int64)
        text_walk_kernels.text_targets(self._memory, self.network.texts[text].fields, sub, count, targets)
        return targets

    def group_exits(self, trie: int, exits: Ints, num_exits: int) -> tuple[Ints, Ints]:
        """The first exits grouped by their byte, and int32[257], where each group begins."""
        starts = np.empty(257, np.int32)
        return text_walk_kernels.group_exits(self._memory, trie, exits, num_exits, starts), starts

    # ---------------------------------------------------------------- memory

    def _call(self, function: Callable[[], Any]) -> int:
        """Calls until nothing more is needed."""
        while True:
            work = int(self._memory[k.CAP_WORK])
            result = int(function())
            if result >= 0:
                return result
            self._grow(result, work)

    def allow(self, work: int) -> None:
        """Lets this thread look at so many configurations not yet met before it gets `OutOfWork`; see `ENDLESS`.

        Whatever raised it may be called again: the transitions found are kept, unless `num_forgotten` has grown.
        100,000 configurations take 10 to 30 ms. One thread at a time may be bounded, and does not bound the others.
        """
        self._bounded_thread = threading.get_ident()
        self._memory[k.ALLOWANCE] = work

    def charge(self, work: int) -> bool:
        """Takes work done elsewhere from the allowance; whether some is left."""
        self._memory[k.ALLOWANCE] -= work
        return bool(self._memory[k.ALLOWANCE] >= 0)

    def spend(self, work: int) -> None:
        """Before work elsewhere whose result is kept: takes it from the allowance.

        Raises:
            OutOfWork: nothing is left of this thread's allowance.
        """
        if not self.charge(0) and self._bounded_thread == threading.get_ident():
            raise OutOfWork
        self.charge(work)

    def make_room(self, need: int) -> None:
        """Answers a compiled loop's code for help, after which it is called again.

        Raises:
            ConstraintTooLarge: the bound on memory is passed.
        """
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
            self._memory[k.ALLOWANCE] = ENDLESS  # it was another thread's allowance, which gets more than it asked for
            return
        with self._lock:
            memory = self._memory
            if need == k.TOO_LARGE or self.num_lasting_bytes > self.max_bytes:
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
                self._arrays.update(arrays)
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
            self._rows.fit(memory, max_rows(self.max_bytes, self._lasting_bytes))

    def _weigh(self) -> None:
        self._lasting_bytes = sum(array.nbytes for array in self._arrays.values())

    def _enlarge(self, index: int, capacity: int, width: int) -> None:
        """Doubles an array, or adds a megabyte if it is large already; nothing is copied.

        Between the move and the new address in memory no other thread may run. The interpreter changes threads
        between two steps of Python code only: `map` takes both calls in one.
        """
        array = self._arrays[index]
        held = int(self._memory[capacity])
        added = min(held, max(LARGE_STEP // (array.itemsize * width), 1))
        size = (held + added) * width
        k.place_grown(self._memory, index, array, capacity, 0)  # compiled from here on: that would be Python code
        move = partial(array.resize, size, refcheck=False)
        deque(map(call, (move, partial(k.place_grown, self._memory, index, array, capacity, added))), maxlen=0)

    def _rehash(self, slots: int, capacity: int, rehash: Callable[[Any, Ints], None]) -> None:
        size = len(self._arrays[slots])
        if size < 2 * int(self._memory[capacity]):
            array = np.zeros(2 * size, np.int32)
            rehash(self._memory, array)
            self._arrays[slots] = array
