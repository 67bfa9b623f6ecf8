"""Automaton: a network run as a byte automaton whose states and transitions are found when they are first needed.

A *state* is an integer: the interned set of all configurations (position, stack) that the bytes so far allow. 0 is
dead; 1 (END) is accepting and nothing may follow: there is one such state, since all are interned. Regular
constraints have finitely many, recursive ones as many as are visited.
Every state can reach acceptance, so a byte that is not refused is never a dead end.

This class asks; the work is done in `automaton_kernels`, in memory that `Room` owns and grows. It does not know tokens
except as byte strings with ids (the trie). Thread-safe, as `Room` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import memory as k
from ..compiled import callback_address
from ..network.network import Network
from ..network.stack_kernels import JOINT
from ..text.alphabet import Ints
from ..vocabulary.vocabulary import Vocabulary
from . import automaton_kernels, opening_kernels, text_walk_kernels, walk_kernels
from .room import DEFAULT_MAX_BYTES, FIRST_BYTES, Room
from .rows import max_rows

END = opening_kernels.END  # the state in which the text is complete and cannot go on
NO_LIMIT = 1 << 30  # bytes to acceptance: more than any state is away from it
PLACES_HEAD, PLACE_WIDTH = walk_kernels.PLACES_HEAD, automaton_kernels.PLACE_WIDTH
IN_TEXT = walk_kernels.IN_TEXT
_NO_TEXT = bytes(8 * k.TEXT_WIDTH)


class Automaton:
    """The states of one network over one vocabulary.

    Args:
        network: what may be written.
        vocabulary: whose tokens the walks go through.
        max_bytes: bound on the memory of states and stacks; see `Room`.

    Attributes:
        room: its memory, and how much may be done in it.

    Raises:
        ConstraintTooLarge: the bound is passed, by any method that may find new states.
        OutOfWork: as `Room.allow` says.
    """

    def __init__(self, network: Network, vocabulary: Vocabulary, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.network = network
        self.vocabulary = vocabulary
        self.room = room = Room(network.head[k.N_MAX_WORDS], max_bytes)
        self._memory, self._arrays, self._call = room.memory, room.arrays, room.call
        self._shared = vocabulary.shared  # its arrays live as long as their addresses are in the memory
        self._texts = np.frombuffer(bytearray().join([text.packed for text in network.texts]) or _NO_TEXT, np.int64)
        for index in network.key_texts:
            self._texts[index * k.TEXT_WIDTH + k.T_IS_KEY] = k.AN_ITEM if index in network.item_texts else k.A_KEY
        shared, transition = self._shared.memory, callback_address(automaton_kernels.transition)
        start = opening_kernels.open_memory(
            room.memory,
            shared,
            transition,
            network.data,
            network.byte_sets,
            self._texts,
            *room.arrays.values(),  # in the order in which they are made
            room.rows.addresses,
            room.rows.first,
            max_rows(max_bytes, FIRST_BYTES),
        )
        self.start = start if start >= 0 else self._entered(network.start)

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
        return [(key >> k.NODE_SHIFT, key >> k.STACK_BITS & k.SUB_MASK, key & k.STACK_ID_MASK) for key in keys]

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

    def _entered(self, node: int) -> int:
        """The state in which exactly this position has been reached, with nothing to return to."""
        return self._call(lambda: automaton_kernels.ask(self._memory, k.ENTER, node, 0))

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
            self.room.make(target)

    # ---------------------------------------------------------------- walks through the vocabulary

    def walk(self, state: int, bits: Ints) -> int:
        """Sets the bits of the tokens that may follow.

        Returns 1 + the greatest number of bytes to acceptance after any token that may follow; 0 if there is none.
        """
        return self._call(lambda: walk_kernels.walk(self._memory, state, self.vocabulary.shared.live, bits))

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

    def walk_exits(self, trie: int, state: int, exits: Ints, starts: Ints, bits: Ints) -> int:
        """`walk`, but only below the given trie nodes, at which `state` has been reached."""
        return self._call(
            lambda: walk_kernels.walk_exits(self._memory, trie, state, self.vocabulary.shared.live, exits, starts, bits)
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
