"""Completions: how many tokens suffice to complete a text.

Every byte that is needed is a token (`missing_bytes`), so whatever can be finished in n bytes can be finished in n
tokens, and mostly in a third of that: each state has one shortest completion in bytes, and the least number of tokens
that spell it is found by dynamic programming along it (`fsm/core/completions.h`). It is asked only where bytes do not
settle the matter, so it costs nothing while many tokens are left; then some microseconds for each state that the
completion passes through, once.

`bound` is a promise: from a state whose bound is n > 0 some token leads to a state whose bound is below n.
"""

from __future__ import annotations

import threading

from ..._core import fsm as core
from ..automaton.automaton import Automaton
from ..columns import NEVER
from ..text.alphabet import Ints


class Completions:
    """Bounds on the number of tokens to acceptance, for the states of one automaton."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._lock = threading.Lock()  # one call at a time
        self.core = core.CompletionBounds(automaton)

    @property
    def num_bytes(self) -> int:
        """Memory of what is known so far."""
        return self.core.num_bytes

    def bound(self, state: int) -> int:
        """A number of tokens that suffices to reach acceptance; NEVER (1 << 29) if none does."""
        known = self.core.known(state)
        if known >= 0 or not state:
            return known if state else NEVER
        with self._lock:
            return self.core.tokens(state)

    def num_keys(self, state: int) -> int:
        """How many keys and strings that have to be remembered the completion writes."""
        with self._lock:
            return self.core.keys(state)

    def later_keys(self, state: int) -> int:
        """The same without the key or string that the state is in."""
        with self._lock:
            return self.core.later_keys(state)

    def is_within(self, state: int, limit: int) -> bool:
        """Whether `limit` tokens suffice to reach acceptance."""
        return self._automaton.min_bytes(state) <= limit or self.bound(state) <= limit

    def most_bytes(self, state: int, limit: int) -> int:
        """Tokens that leave more bytes to the end are not looked at, where `limit` tokens are left after one of them.

        At the edge of the budget only tokens of shortest completions lead on, nearly always: to find out that of all
        others, over and over, takes more states than anything else.
        """
        return self._automaton.min_bytes(state) - 1 if limit < self.bound(state) else NEVER

    def keep_within(self, state: int, bits: Ints, limit: int, judged: core.Judged) -> None:
        """Clears the bits of the tokens after which `limit` further tokens are not known to suffice.

        `judged` and bits know how far that is done, if an error ends it.
        """
        most = self.most_bytes(state, limit)
        with self._lock:
            self.core.keep_within(state, bits, limit, most, judged)

    def worst(self, state: int, bits: Ints, judged: core.Judged) -> int:
        """The greatest bound after one of the tokens, all of which may follow; -1 without tokens."""
        with self._lock:
            return self.core.keep_within(state, bits, -1, NEVER, judged) - 1
