"""NearestKeys: the texts of keys that may follow a state inside one, those with the shortest completions first.

They are found one by one, when asked for: best-first over bytes, guided by the number of bytes that the automaton knows
to be missing. That number is exact while nothing is remembered, so that nearly every step leads to a text.

The order is (bytes to the end of the whole text, text). It does not change where a first part of the text is already
written: so whichever key is chosen by it, it is chosen again after each of its bytes.

It knows no objects and what they have; `key_budget` takes the first key that an object does not have. Thread-safe; an
exception of the automaton leaves everything as it was, and the next call goes on from there.
"""

from __future__ import annotations

import threading
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ..._core import fsm as core
from ..._core.fsm import Mode
from .. import columns as k
from ..automaton.automaton import Automaton
from ..bounded_map import BoundedMap
from .repeats import Repeats
from .written import QUOTE

MAX_KEPT = 512  # states


class NearKey(NamedTuple):
    """The rest of a key, without its quote.

    Attributes:
        num_bytes: of the whole completion of the text, through this key.
        state: after the quote.
        is_remembered: whether it has to be remembered; else the schema names it.
    """

    num_bytes: int
    rest: bytes
    state: int
    is_remembered: bool


class _Begun(NamedTuple):
    """A beginning of keys: the byte with this index, among those that may follow a state, is its last."""

    num_bytes: int
    rest: bytes
    before: int
    last: int


class Next(NamedTuple):
    """A byte that may follow a state inside a key, and how many bytes it leaves; `ends`: it is the quote."""

    num_bytes: int
    byte: int
    state: int
    ends: bool


class _Search(NamedTuple):
    """What was found from one state, and what is to be looked at next."""

    found: list[NearKey]
    pending: list[_Begun]


class NearestKeys:
    """The keys of one automaton."""

    def __init__(self, automaton: Automaton, repeats: Repeats) -> None:
        self._automaton = automaton
        self._repeats = repeats
        self._lock = threading.Lock()
        self._searches: BoundedMap[int, _Search] = BoundedMap(MAX_KEPT)
        self._known: BoundedMap[int, list[Next]] = BoundedMap(MAX_KEPT)

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, roughly."""
        num_found = sum(len(search.found) + len(search.pending) for search in list(self._searches.values()))
        return 150 * num_found + 150 * sum(map(len, list(self._known.values())))

    def get(self, state: int, index: int) -> NearKey | None:
        """The key with this index; None if there are fewer."""
        with self._lock:
            search = self._searches.get(state)
            if search is None:
                search = self._searches.keep(state, _Search([], self._begun(state, b"", 0)))
            while index >= len(search.found) and search.pending:
                self._go_on(search)
        return search.found[index] if index < len(search.found) else None

    def _begun(self, state: int, rest: bytes, index: int) -> list[_Begun]:
        """The beginning with one more byte, if so many may follow the state."""
        following = self.following(state)
        if index >= len(following):
            return []
        taken = following[index]
        return [_Begun(len(rest) + 1 + taken.num_bytes, rest + bytes((taken.byte,)), state, index)]

    def _go_on(self, search: _Search) -> None:
        """Takes up the nearest beginning: it is a key, or goes on."""
        begun = search.pending[0]
        taken = self.following(begun.before)[begun.last]
        more = self._begun(begun.before, begun.rest[:-1], begun.last + 1)
        is_remembered = False
        if taken.ends:
            is_remembered = bool(core.follow_keys(self._automaton, begun.before, QUOTE, True)[2])
            core.note_mode(self._automaton, taken.state, Mode.OUTSIDE)
        else:
            more += self._begun(taken.state, begun.rest, 0)
        heappop(search.pending)  # from here on nothing is asked of the automaton
        for other in more:
            heappush(search.pending, other)
        if taken.ends:
            search.found.append(NearKey(begun.num_bytes, begun.rest[:-1], taken.state, is_remembered))

    def following(self, state: int) -> list[Next]:
        """The bytes that may follow a state, in the order of what they leave."""
        found = self._known.get(state)
        if found is None:
            automaton, quote = self._automaton, QUOTE[0]
            found = []
            for byte in np.flatnonzero(automaton.live_bytes(state)).tolist():
                after = automaton.advance_bytes(state, bytes((byte,)))
                ends = byte == quote and self._repeats.place(after) != k.IN_KEY
                found.append(Next(automaton.min_bytes(after), byte, after, ends))
            found.sort()
            self._known.keep(state, found)
        return found
