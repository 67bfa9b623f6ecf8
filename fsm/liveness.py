"""Liveness: can the text be finished in tokens, and in how many?

Where every byte is a token this is settled by the automaton alone: whatever can be finished in n bytes can be
finished in n tokens. A vocabulary without byte fallback is different: a state may be alive byte by byte and still
have no token that leads on. Then the tokens themselves are searched, best first by the bytes that are left, and what
was found is kept: a way for the states on it, "never" for everything that was seen if there is none.

Costs nothing for complete vocabularies. Otherwise a search looks at all tokens of each state it visits, usually one
state per token of the way out.
"""

from __future__ import annotations

import heapq

import numpy as np

from ..errors import ConstraintTooLarge
from .alphabet import Ints
from .automaton import Automaton
from .memory import NEVER

MAX_VISITED = 20_000


class Liveness:
    """Bounds on the number of tokens to acceptance, for the states of one automaton."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self.is_by_bytes = automaton.vocabulary.is_complete
        self._bounds: dict[int, int] = {0: NEVER}

    def bound(self, state: int) -> int:
        """A number of tokens that surely suffices to reach acceptance; NEVER (1 << 29) if none does."""
        if self.is_by_bytes:
            return self._automaton.min_bytes(state)
        found = self._bounds.get(state)
        return self._search(state) if found is None else found

    def advance(self, state: int, token_id: int) -> int:
        """As `Automaton.advance`, but 0 if the text could not be finished any more."""
        target = self._automaton.advance(state, token_id)
        return target if target and self.bound(target) < NEVER else 0

    def keep_within(self, state: int, bits: Ints, limit: int) -> None:
        """Clears the bits of the tokens after which `limit` further tokens are not known to suffice."""
        targets = self._automaton.targets(state, bits)
        bounds = {target: self.bound(target) for target in np.unique(targets[targets > 0]).tolist()}
        for token_id in np.flatnonzero(targets).tolist():
            if bounds[int(targets[token_id])] > limit:
                bits[token_id >> 5] &= ~np.uint32(1 << (token_id & 31)).astype(np.int32)

    def _search(self, start: int) -> int:
        automaton, bounds = self._automaton, self._bounds
        parents = {start: -1}
        frontier = [(automaton.min_bytes(start), start)]
        while frontier:
            _, state = heapq.heappop(frontier)
            known = bounds.get(state)
            if known is None and automaton.is_accepting(state):
                known = 0
            if known is not None:
                if known < NEVER:
                    self._note_way(state, known, parents)
                    return bounds[start]
                continue
            row = np.zeros(automaton.vocabulary.num_words, np.int32)
            automaton.walk(state, NEVER, row)
            for target in np.unique(automaton.targets(state, row)).tolist():
                if target and target not in parents:
                    parents[target] = state
                    heapq.heappush(frontier, (automaton.min_bytes(target), target))
            if len(parents) > MAX_VISITED:
                raise ConstraintTooLarge(
                    "this vocabulary has no token for some bytes, and no way to finish the text was found in time"
                )
        for state in parents:
            bounds[state] = NEVER
        return NEVER

    def _note_way(self, state: int, bound: int, parents: dict[int, int]) -> None:
        """Notes the bounds of the states on the way that ends at `state`."""
        while state >= 0:
            known = self._bounds.get(state, NEVER)
            bound = min(bound, known)
            self._bounds[state] = bound
            bound += 1
            state = parents[state]
