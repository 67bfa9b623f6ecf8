"""Habits: the token that was last taken in each state of an automaton, as a guess at the next one.

Forced text is certain; much of the rest is only likely: which optional key comes after which, that an object ends, how
a model spells a key that it was never trained on. The token that the last texts of a constraint took in a state is kept
with a saturating counter, like that of a processor's branch predictor::

    seen for the first time     count 1
    the same token again        count + 1, at most 3
    another token               count - 2; a count below 2 is 0 then, and it is the other token that is kept
    back to the same state      the inside of a text: nothing is forced there, and nothing is guessed from then on

A token is guessed while its count is at least 1. So a token that never repeats costs one wrong guess, and a place where
two tokens alternate costs one at times. Equal states have equal futures, so requests can share habits.
The speed of a reply shows what was guessed, and so what others wrote: habits are shared only within a cohort, the
requests that may know of each other's text. It knows no probabilities and no model.

Cost: one dictionary look-up per token learnt and per token guessed. At most MAX_KEPT states and MAX_COHORTS cohorts.
"""

from __future__ import annotations

from .trail import Trail

MAX_KEPT = 1 << 14
MAX_COHORTS = 16
ENTRY_BYTES = 140  # of a dictionary, with two integers
MAX_COUNT = 3
LOSS = 2
FREE, NEW = -1, -2
NO_GUESS = (-1, False)


class Habits:
    """The token last taken at each state of one automaton, and how reliably."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[int, int] = {}  # state -> 4 * token id + count, or FREE

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, roughly."""
        return ENTRY_BYTES * len(self._kept)

    def learn(self, state: int, token_id: int, target: int) -> None:
        """Records the token taken at a state, and the state it led to."""
        kept = self._kept
        known = kept.get(state, NEW)
        if known == FREE:
            return
        if known == NEW and len(kept) >= MAX_KEPT:
            kept.clear()  # else texts that never occur again would fill it for ever
        if target == state:
            kept[state] = FREE
        elif known == NEW:
            kept[state] = 4 * token_id + 1
        elif known >> 2 == token_id:
            kept[state] = known + (known & 3 < MAX_COUNT)
        else:
            kept[state] = known - LOSS if known & 3 >= LOSS else 4 * token_id

    def learn_last(self, trail: Trail, start: int, count: int) -> None:
        """Records the last `count` tokens of a trail (since it was forked) that begins in the state `start`."""
        states, tokens = trail.states, trail.tokens
        if count == 1 and len(states) > 1:  # nearly always
            self.learn(states[-2], tokens[-1], states[-1])
            return
        for index in range(max(0, len(tokens) - count), len(tokens)):
            before = states[index - 1] if index else trail.first_state(start)
            self.learn(before, tokens[index], states[index])

    def count(self, state: int) -> int:
        """Of the token that is kept; 0 if it was refuted. FREE inside a text, NEW if none is kept."""
        known = self._kept.get(state, NEW)
        return known & 3 if known >= 0 else known

    def guess(self, state: int) -> tuple[int, bool]:
        """The token that is likely taken next, -1 if none is; and whether it was taken at least twice."""
        known = self._kept.get(state, NEW)
        return (known >> 2, known & 3 > 1) if known >= 0 and known & 3 else NO_GUESS

    def contradicts(self, state: int, token_id: int) -> bool:
        """Whether another token was taken the last time."""
        known = self._kept.get(state, NEW)
        return known >= 0 and known >> 2 != token_id


class Cohorts:
    """The habits of each cohort; with more than MAX_COHORTS, those of the oldest are forgotten."""

    __slots__ = ("_habits",)

    def __init__(self) -> None:
        self._habits: dict[str, Habits] = {}

    @property
    def num_bytes(self) -> int:
        """Memory of what is kept, roughly."""
        return sum(habits.num_bytes for habits in list(self._habits.values()))

    def habits_of(self, cohort: str) -> Habits:
        """Those of a cohort; new ones if it has none. Any thread may call."""
        found = self._habits.get(cohort)
        if found is None:
            for first in list(self._habits)[: -(MAX_COHORTS - 1)]:
                self._habits.pop(first, None)
            found = self._habits.setdefault(cohort, Habits())
        return found
