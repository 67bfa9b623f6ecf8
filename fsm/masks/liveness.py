"""Liveness: can the text be finished in tokens, and in how many?

Where every byte is a token, or not needed, whatever can be finished in n bytes can be finished in n tokens, and mostly
in a third of that: `budget_kernels` counts the tokens of the shortest completions exactly. It is asked only where bytes
do not settle the matter, so it costs nothing while plenty of tokens are left; then some microseconds for each state
that a shortest completion passes through, once. Searches leave half of the automaton's memory to the text.

Where the text may hold bytes that are no tokens it is different: a state may be alive byte by byte and still have no
token that leads on. Then `completions` says what can be spelt from a state, in tokens that no shorter ones spell.

Either way `bound` is a promise: from a state whose bound is n > 0 some token leads to a state whose bound is below n.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from ..automaton.automaton import Automaton
from ..memory import MEMBER_WIDTH, N_MEMBERS, NEVER
from ..text.alphabet import Ints
from ..vocabulary.trie import MAX_TOKEN_LEN
from . import budget_kernels as search
from . import keep_kernels
from .bytes_read import bytes_of_network, may_lack
from .completions import Completions
from .set_bound_kernels import ASKED, NEED_BOUND, PARTS_LEFT, PARTS_WORK

FIRST_QUEUE = 256

_NOTHING, _NO_QUEUE, _NO_FLAGS = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.uint8)
_NO_WAYS = np.empty(0, np.int16)


def not_walked() -> Ints:
    """What judging the tokens of a row begins with, see `keep_kernels`."""
    return np.zeros(keep_kernels.WALKED_SIZE, np.int32)


class Liveness:
    """Bounds on the number of tokens to acceptance, for the states of one automaton.

    Attributes:
        is_by_bytes: every byte that a text may hold is a token, or another one that is does as well (`may_lack`);
            completions: what is known where that is not so.
    """

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        vocabulary = automaton.vocabulary
        lacking = 0 if vocabulary.is_complete else bytes_of_network(automaton.network) & ~vocabulary.atoms.alone
        self.is_by_bytes = not lacking or may_lack(automaton.network, lacking)
        self.completions = None if self.is_by_bytes else Completions(automaton)
        self._bounds: dict[int, int] = {0: NEVER}
        self._lock = threading.Lock()  # one search at a time
        # room for searches, made when there is one
        self._least = self._path = self._parts = _NOTHING
        self._ways = _NO_WAYS
        self._queue, self._flags, self._work = _NO_QUEUE, _NO_FLAGS, _NO_QUEUE

    @property
    def num_bytes(self) -> int:
        """Memory of what is known so far."""
        found = self._least.nbytes + self._ways.nbytes + self._queue.nbytes + self._parts.nbytes
        if self.completions is not None:
            found += self.completions.num_bytes
        return found + 100 * (len(self._bounds) - 1)  # of the dead state all know

    @property
    def is_exact(self) -> bool:
        """Whether shortest completions are still searched for: what was found is then true of all states alike."""
        return not len(self._work) or bool(self._work[search.TOTAL_LEFT] > 0)

    def bound(self, state: int) -> int:
        """A number of tokens that surely suffices to reach acceptance; NEVER (1 << 29) if none does."""
        if self.completions is None:
            if state < len(self._least) and self._least[state] > 0:
                return int(self._least[state]) - 1
            return self._call(lambda memory, room: search.least_tokens(memory, state, room)) if state else NEVER
        found = self._bounds.get(state)
        if found is None:
            with self._lock:
                found = self._bounds[state] = self.completions.bound(state)
        return found

    def is_within(self, state: int, limit: int) -> bool:
        """Whether `limit` tokens surely suffice to reach acceptance."""
        if self.is_by_bytes and self._automaton.min_bytes(state) <= limit:
            return True
        return self.bound(state) <= limit

    def is_possible(self, state: int) -> bool:
        """Whether acceptance can be reached at all."""
        return state > 0 if self.is_by_bytes else self.bound(state) < NEVER

    def advance(self, state: int, token_id: int) -> int:
        """As `Automaton.advance`, but 0 if the text could not be finished any more."""
        target = self._automaton.advance(state, token_id)
        return target if target and self.bound(target) < NEVER else 0

    def step(self, _: object, state: int, token_id: int) -> int:
        """`advance` as a step of `Moves`."""
        return self.advance(state, token_id)

    def most_bytes(self, state: int, limit: int) -> int:
        """Tokens that leave more bytes to the end are not looked at, where `limit` tokens are left after one of them.

        At the edge of the budget only tokens of shortest completions lead on, nearly always: to find out that of all
        others, over and over, takes more states than anything else.
        """
        return self._automaton.min_bytes(state) - 1 if limit < self.bound(state) else NEVER

    def keep_within(self, state: int, bits: Ints, limit: int, walked: Ints) -> None:
        """Clears the bits of the tokens after which `limit` further tokens are not known to suffice.

        `walked` (see `not_walked`) and bits know how far that is done, if an error ends it.
        """
        if self.is_by_bytes:
            most = self.most_bytes(state, limit)
            self._keep_within(state, bits, limit, most, walked)
            return
        targets = self._automaton.targets(state, bits)
        bounds = {target: self.bound(target) for target in np.unique(targets[targets > 0]).tolist()}
        for token_id in np.flatnonzero(targets).tolist():
            if bounds[int(targets[token_id])] > limit:
                bits[token_id >> 5] &= ~np.uint32(1 << (token_id & 31)).astype(np.int32)

    def worst(self, state: int, bits: Ints, walked: Ints) -> int:
        """The greatest bound after one of the tokens, all of which may follow; -1 without tokens."""
        if self.is_by_bytes:
            return self._keep_within(state, bits, -1, NEVER, walked) - 1
        targets = self._automaton.targets(state, bits)
        return max((self.bound(target) for target in np.unique(targets[targets > 0]).tolist()), default=-1)

    def _keep_within(self, state: int, bits: Ints, limit: int, most_bytes: int, walked: Ints) -> int:
        return self._call(
            lambda memory, room: keep_kernels.keep_within(memory, state, bits, limit, most_bytes, walked, room)
        )

    def _call(self, function: Callable[..., Any]) -> int:
        """Calls with memory and scratch until nothing more is needed."""
        with self._lock:
            if not len(self._queue):
                self._make_scratch()
            self._work[search.CALL_LEFT] = search.MAX_WORK
            self._automaton.room.breathe()
            asked: list[int] = []  # states whose bounds are needed before that of the one before
            while True:
                self._work[search.ASKING] = asked[-1] if asked else -1
                if asked:
                    result = self._called(lambda memory, room: search.least_tokens(memory, asked[-1], room))
                else:
                    result = self._called(function)
                if result == NEED_BOUND:
                    asked.append(int(self._work[ASKED]))
                elif asked:
                    asked.pop()
                else:
                    return result

    def _make_scratch(self) -> None:
        self._queue = np.empty(FIRST_QUEUE, np.int64)
        self._path = np.empty(MAX_TOKEN_LEN + 1, np.int32)
        self._parts = np.zeros(len(self._automaton.network.array(N_MEMBERS)) // MEMBER_WIDTH, np.int32)
        self._flags = np.empty(256, np.uint8)
        self._work = np.zeros(search.WORK_SIZE, np.int64)
        self._work[search.TOTAL_LEFT] = search.TOTAL_WORK
        self._work[PARTS_LEFT] = PARTS_WORK

    def _called(self, function: Callable[..., Any]) -> int:
        """Calls and makes room until there is a result, which may be NEED_BOUND."""
        last: tuple[int, ...] = ()  # how far the search was when it came up
        while True:
            missing = self._automaton.max_states - len(self._least)
            if missing > 0:
                self._ways = np.concatenate((self._ways, np.zeros(missing, np.int16)))
                self._least = np.concatenate((self._least, np.zeros(missing, np.int32)))
            room = (self._least, self._ways, self._parts, self._queue, self._path, self._flags, self._work)
            result = int(function(self._automaton.memory, room))
            if result >= 0 or result == NEED_BOUND:
                return result
            if result == search.NEED_QUEUE:
                self._queue = np.concatenate((self._queue, self._queue))
            elif result != search.NEED_LEAST:
                found = tuple(self._work[search.PHASE : search.FORGOTTEN].tolist())
                self._automaton.room.make(result, has_gone_on=found != last)
                last = found
                if self._automaton.room.is_half_full:  # the other half is for the text itself
                    self._work[search.TOTAL_LEFT] = self._work[PARTS_LEFT] = 0
