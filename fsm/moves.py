"""Moves: a cache of the steps that cursors have taken, so that taking one again costs one dictionary look-up.

A compiled step costs a microsecond, most of it for the call into compiled code and back. Texts under one constraint
repeat themselves (keys, punctuation, the values of enums), and the same token in the same state always leads to the
same state: states are never renumbered, so a cached step stays right.

    Steps of state 3                     Steps of state 7
      token  912 ───────────────────────>  token 5 ──> ..        what is known beyond a step is linked, so a cursor
      token 4402 ──> Steps of state 9      is_free: no           that goes on holds what it needs next
      is_free: no

Inside a text almost every token leads back to the state it was taken in, and the tokens differ each time. Such a state
has a flag instead: every token of plain characters (`Vocabulary.is_plain`) leads back to it.

It knows numbers only: what a step is, and whether it depends on the state alone, is decided by the function that it is
given. At most MAX_MOVES; then all are dropped, else texts that never occur again would fill it for ever.
"""

from __future__ import annotations

from collections.abc import Callable

MAX_MOVES = 1 << 13
MOVE_BYTES = 500  # of one step, the `Steps` it leads to and all that is kept with them

TakeToken = Callable[[int, int], int]
"""f(state, token id) -> the state after the token; below 1: there is none to be kept."""


class Steps(dict[int, "Steps | None"]):
    """The steps known from one state: by token, those known from the state after it; None where that, or what else
    happens, does not depend on the state alone. Written by `Moves` alone.

    Attributes:
        state: that they are taken from.
        is_free: whether every token of plain characters leads back to it; None: not known yet.
    """

    __slots__ = ("is_free", "state")

    def __init__(self, state: int) -> None:
        self.state = state
        self.is_free: bool | None = None


class Moves:
    """Known steps of one automaton.

    Args:
        step: what is done where a step is not known.
        stays: whether every token of plain characters leads from a state back to it.
    """

    __slots__ = ("_known", "_num_moves", "_stays", "_step")

    def __init__(self, step: TakeToken, stays: Callable[[int], bool]) -> None:
        self._step = step
        self._stays = stays
        self._known: dict[int, Steps] = {}
        self._num_moves = 0

    def __del__(self) -> None:
        self._forget()  # steps refer to each other in cycles, which would wait for the garbage collector

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, roughly, and never less."""
        return MOVE_BYTES * self._num_moves

    def steps(self, state: int) -> Steps:
        """The steps known from a state."""
        found = self._known.get(state)
        return self._known.setdefault(state, Steps(state)) if found is None else found

    def step(self, state: int, token_id: int) -> int:
        """What the function says of a step."""
        return self._step(state, token_id)

    def take(self, steps: Steps, token_id: int) -> Steps | None:
        """Takes a step that is not known, and keeps it; None if it leads to no state, or that alone does not say it."""
        if token_id in steps or steps.state < 0:
            return None
        target = self._step(steps.state, token_id)
        return self._kept(steps, token_id, target) if target > 0 else None

    def learn(self, state: int, token_id: int, target: int) -> None:
        """Keeps a step."""
        self._kept(self.steps(state), token_id, target)

    def learn_that_it_depends(self, state: int, token_id: int) -> None:
        """Keeps that a step does not depend on the state alone."""
        self._count()
        self.steps(state)[token_id] = None

    def _kept(self, steps: Steps, token_id: int, target: int) -> Steps:
        self._count()
        after = self._known.get(target)
        if after is None:
            after = self._known.setdefault(target, Steps(target))
        steps[token_id] = after
        if after is steps and steps.is_free is None:
            steps.is_free = self._stays(target)
        return after

    def _count(self) -> None:
        if self._num_moves >= MAX_MOVES:
            self._forget()
        self._num_moves += 1

    def _forget(self) -> None:
        """Drops all. A cursor in dropped steps goes on to new ones; none of these lead back to the dropped ones."""
        for steps in list(self._known.values()):
            steps.clear()
        self._known = {}
        self._num_moves = 0
