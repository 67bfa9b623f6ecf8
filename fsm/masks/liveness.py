"""Liveness: can the text be finished in tokens, and in how many?

Where every byte is a token, or not needed, whatever can be finished in n bytes can be finished in n tokens, and mostly
in a third of that: `Search` (`fsm/core/search.h`) counts the tokens of the shortest completions exactly. It is asked
only where bytes do not settle the matter, so it costs nothing while plenty of tokens are left; then some microseconds
for each state that a shortest completion passes through, once. Searches leave half of the memory to the text.

Where the text may hold bytes that are no tokens it is different: a state may be alive byte by byte and still have no
token that leads on. Then `completions` says what can be spelt from a state, in tokens that no shorter ones spell.

Either way `bound` is a promise: from a state whose bound is n > 0 some token leads to a state whose bound is below n.
"""

from __future__ import annotations

import threading

import numpy as np

from ..._core import fsm as core
from ..automaton.automaton import Automaton
from ..columns import NEVER
from ..text.alphabet import Ints
from .bytes_read import bytes_of_network, may_lack
from .completions import Completions

PARTS_WORK = 1 << 23  # members of sets that may be looked at in search of parts, about a quarter of a second


class Liveness:
    """Bounds on the number of tokens to acceptance, for the states of one automaton.

    Attributes:
        is_by_bytes: every byte that a text may hold is a token, or another one that is does as well (`may_lack`);
            completions: what is known where that is not so.
        search: for the least number of tokens, where bytes do not settle it.
    """

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        vocabulary = automaton.vocabulary
        lacking = 0 if vocabulary.is_complete else bytes_of_network(automaton.network) & ~vocabulary.atoms.alone
        self.is_by_bytes = not lacking or may_lack(automaton.network, lacking)
        self.completions = None if self.is_by_bytes else Completions(automaton)
        self._bounds: dict[int, int] = {0: NEVER}
        self._lock = threading.Lock()  # one search at a time
        self.search = core.Search(automaton.core, PARTS_WORK)

    @property
    def num_bytes(self) -> int:
        """Memory of what is known so far."""
        found = self.search.num_bytes
        if self.completions is not None:
            found += self.completions.num_bytes
        return found + 100 * (len(self._bounds) - 1)  # of the dead state all know

    @property
    def is_exact(self) -> bool:
        """Whether shortest completions are still searched for: what was found is then true of all states alike."""
        return self.search.is_exact

    def bound(self, state: int) -> int:
        """A number of tokens that surely suffices to reach acceptance; NEVER (1 << 29) if none does."""
        if self.completions is None:
            known = self.search.known(state)
            if known >= 0 or not state:
                return known if state else NEVER
            with self._lock:
                return self.search.least_tokens(state)
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
        if self.is_by_bytes:
            most = self.most_bytes(state, limit)
            with self._lock:
                self.search.keep_within(state, bits, limit, most, judged)
            return
        targets = self._automaton.targets(state, bits)
        bounds = {target: self.bound(target) for target in np.unique(targets[targets > 0]).tolist()}
        for token_id in np.flatnonzero(targets).tolist():
            if bounds[int(targets[token_id])] > limit:
                bits[token_id >> 5] &= ~np.uint32(1 << (token_id & 31)).astype(np.int32)

    def worst(self, state: int, bits: Ints, judged: core.Judged) -> int:
        """The greatest bound after one of the tokens, all of which may follow; -1 without tokens."""
        if self.is_by_bytes:
            with self._lock:
                return self.search.keep_within(state, bits, -1, NEVER, judged) - 1
        targets = self._automaton.targets(state, bits)
        return max((self.bound(target) for target in np.unique(targets[targets > 0]).tolist()), default=-1)
