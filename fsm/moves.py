"""Moves: the steps that cursors have taken before, so that taking one again costs two looks into dictionaries.

A compiled step costs a microsecond, most of it for the way into compiled code and back. Texts under one constraint
repeat themselves (keys, punctuation, the values of enums), and whoever walks on from the same state with the same
token comes to the same state: states are never renumbered, so what is known stays true.

Inside of a text almost every token leads back to the state it was taken in, and it is another one each time. Such a
state is known by a flag: every token of plain characters (`Vocabulary.is_plain`) leads back to it.

It knows numbers only: what a step is, and whether it depends on the state alone, is for the function to say that it is
given. At most MAX_MOVES; then it begins anew, else texts that never come again would fill it for good.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

MAX_MOVES = 1 << 13
DEPENDS = 0
MOVE_BYTES = 340  # of a dictionary with one token and the state after it, which is more than a second token costs

TakeToken = Callable[[npt.NDArray[np.int64], int, int], int]
"""f(memory of the automaton, state, token id) -> the state after the token; below 1: there is none to be kept."""


class Moves:
    """Known steps of one automaton.

    Args:
        step: what is done where a step is not known; memory: its first argument.
        stays: whether every token of plain characters leads from a state back to it.

    Attributes:
        targets: by state, the states after tokens that were taken there; DEPENDS where that, or what else happens, does
            not depend on the state alone. To be read by others, not written.
        free: states of which it is known that such tokens lead back. Likewise.
    """

    __slots__ = ("_asked", "_memory", "_num_moves", "_stays", "_step", "free", "targets")

    def __init__(self, step: TakeToken, memory: npt.NDArray[np.int64], stays: Callable[[int], bool]) -> None:
        self._step = step
        self._memory = memory
        self._stays = stays
        self.targets: dict[int, dict[int, int]] = {}
        self.free: set[int] = set()
        self._asked: set[int] = set()
        self._num_moves = 0

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, roughly, and never less."""
        return MOVE_BYTES * self._num_moves

    def take(self, state: int, token_id: int) -> int:
        """Takes a step that is not known, which is kept from then on if it leads to a state."""
        target = self._step(self._memory, state, token_id)
        if target > 0:
            self.learn(state, token_id, target)
        return target

    def learn(self, state: int, token_id: int, target: int) -> None:
        """Keeps a step, or that it DEPENDS."""
        if self._num_moves >= MAX_MOVES:
            self.targets.clear()
            self.free.clear()
            self._asked.clear()
            self._num_moves = 0
        self._num_moves += 1
        known = self.targets.get(state)
        if known is None:
            self.targets[state] = {token_id: target}
        else:
            known[token_id] = target
        if target == state and state not in self._asked:
            self._asked.add(state)
            if self._stays(state):
                self.free.add(state)
