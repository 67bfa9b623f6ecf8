"""Alike: tokens that lead from a state to the same state, told without a look at each of them.

Nearly all tokens that stay inside a JSON string lead to one and the same state of it. Where tokens are judged by the
state behind them, one of these stands for all:

    row of a state   ┌ leave a text, or go on elsewhere        a few thousand: one by one
                     └ stay inside texts alone ┬ large groups  alike in every text that the state stands in
                                               └ others        end inside a character, or near a bound: one by one

In which groups a text automaton takes tokens depends on where it stands in it and on how many characters were counted,
on nothing behind it: so that is found once, by a walk through the vocabulary, and kept.
"""

from __future__ import annotations

import numpy as np

from ..._core import fsm as core
from ..automaton.automaton import Automaton
from ..automaton.room import OutOfWork
from ..text.alphabet import Ints
from .masks import WALK_WORK, Masks
from .unfinished import Unfinished

LEAST_TOKENS = 256  # of a group: fewer are looked at one by one in less time than all words of a row
NUM_SAMPLES = 64  # tokens whose groups are looked at
MAX_KEPT_BYTES = 8 << 20
MAX_STATES = 4  # whose groups are kept, of states that stand in many texts


class Alike:
    """The groups of the states of one automaton."""

    def __init__(self, automaton: Automaton, masks: Masks) -> None:
        self._automaton = automaton
        self._masks = masks
        self._groups: dict[tuple[int, int, int], list[Ints]] = {}
        self._begun: Unfinished[int, tuple[int, list[Ints]]] = Unfinished(MAX_STATES)  # texts done, parts so far

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept."""
        kept = [*self._groups.values(), *(parts for _, parts in self._begun.values())]
        return sum(100 + sum(group.nbytes for group in groups) for groups in kept)

    def groups(self, state: int, bits: Ints) -> list[Ints]:
        """Disjoint parts of some tokens of a row; all tokens of a part lead to the same state. Some are in no part."""
        texts, _ = self._automaton.texts(state)
        if not texts:
            return []
        begun = self._begun.take(state)
        num_done, found = begun or (0, [self._masks.row(state).bits & ~self._masks.outside(state)])
        for number in range(num_done, len(texts)):
            _, text, sub, count = texts[number]
            try:
                groups = self._groups_of(text, sub, count)
            except OutOfWork:
                self._begun.put(state, (number, found))
                raise
            found = _large([part & group for part in found for group in groups])
        if len(texts) > 1:
            self._begun.put(state, (len(texts), found))  # whoever asks may have to ask again
        return _large([part & bits for part in found])

    def _groups_of(self, text: int, sub: int, count: int) -> list[Ints]:
        """The large groups of tokens between which a text makes no difference; those that it refuses are one."""
        same = (text, sub, count)
        found = self._groups.get(same)
        if found is None:
            self._automaton.room.spend(WALK_WORK)
            targets = self._automaton.text_targets(text, sub, count)
            samples = np.unique(targets[:: max(1, len(targets) // NUM_SAMPLES)])
            groups = [np.flatnonzero(targets == target) for target in samples]
            found = [self._automaton.vocabulary.row_of(group) for group in groups if len(group) >= LEAST_TOKENS]
            if self.num_bytes > MAX_KEPT_BYTES:
                self._groups.clear()
            self._groups[same] = found
        return found


def _large(groups: list[Ints]) -> list[Ints]:
    return [group for group in groups if core.num_tokens_in(group) >= LEAST_TOKENS]
