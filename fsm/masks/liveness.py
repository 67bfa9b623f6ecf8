"""Liveness: can the text be finished in tokens, and in how many?

Every byte that is needed is a token (`missing_bytes`), so whatever can be finished in n bytes can be finished in n
tokens, and mostly in a third of that: `Search` (`fsm/core/search.h`) counts the tokens of the shortest completions
exactly. It is asked only where bytes do not settle the matter, so it costs nothing while plenty of tokens are left;
then some microseconds for each state that a shortest completion passes through, once. Searches leave half of the memory
to the text.

`bound` is a promise: from a state whose bound is n > 0 some token leads to a state whose bound is below n.
"""

from __future__ import annotations

import threading

from ..._core import fsm as core
from ..automaton.automaton import Automaton
from ..columns import NEVER
from ..text.alphabet import Ints

PARTS_WORK = 1 << 23  # members of sets that may be looked at in search of parts, about a quarter of a second


class Liveness:
    """Bounds on the number of tokens to acceptance, for the states of one automaton.

    Attributes:
        search: for the least number of tokens, where bytes do not settle it.
    """

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._lock = threading.Lock()  # one search at a time
        self.search = core.Search(automaton.core, PARTS_WORK)

    @property
    def num_bytes(self) -> int:
        """Memory of what is known so far."""
        return self.search.num_bytes

    @property
    def is_exact(self) -> bool:
        """Whether shortest completions are still searched for: what was found is then true of all states alike."""
        return self.search.is_exact

    def bound(self, state: int) -> int:
        """A number of tokens that surely suffices to reach acceptance; NEVER (1 << 29) if none does."""
        known = self.search.known(state)
        if known >= 0 or not state:
            return known if state else NEVER
        with self._lock:
            return self.search.least_tokens(state)

    def is_within(self, state: int, limit: int) -> bool:
        """Whether `limit` tokens surely suffice to reach acceptance."""
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
            self.search.keep_within(state, bits, limit, most, judged)

    def worst(self, state: int, bits: Ints, judged: core.Judged) -> int:
        """The greatest bound after one of the tokens, all of which may follow; -1 without tokens."""
        with self._lock:
            return self.search.keep_within(state, bits, -1, NEVER, judged) - 1
