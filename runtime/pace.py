"""Drafting or running ahead: a step can do one of them, each saves something, and both savings are measured.

A draft begins where the last token ended, so the step that carries it waits until that one is read; a step that runs
ahead has no drafts. Of B requests D may draft::

    in turn    B + D x jump tokens in busy + gap       gap: the device waits for the host
    ahead      B tokens in max(busy, host)             jump: tokens that drafts add to a request's step
                                                       busy, host: what device and host have to do without drafts

and the step is of the kind that brings more tokens a second. What a step in turn takes and brings is only seen in turn,
so when requests that may draft come up, and from time to time while steps run ahead of them, some steps are a *trial*::

    steps    trial │ ahead ............ │ trial │ ahead ........................ │ trial │ in turn, as long as it pays
                     FIRST_WAIT                   twice as long

Knows counts and seconds, no requests.
"""

from __future__ import annotations

TRIAL = 24  # steps in turn
SETTLING = 2  # of them before drafts are under way
# Between two trials: steps ahead, each counting as the share of its requests that may draft, for so much is at stake.
FIRST_WAIT, LONGEST_WAIT = 64.0, 1024.0
FADE = 0.95  # of what is known, with each step


class Pace:
    """Averages over the latest steps in turn.

    Attributes:
        busy, gap, host: seconds of a step.
        jump: tokens that drafts add to the step of a request that may draft.
    """

    def __init__(self) -> None:
        self.busy = self.gap = self.host = self.jump = 0.0
        self._weight = self._jump_weight = 0.0
        self._wait = FIRST_WAIT
        self._waited = 0.0  # since the last trial
        self._trial = 0  # steps that are left of this one
        self._begin_trial()

    def prefers_ahead(self, num_requests: int, num_drafting: int) -> bool:
        """Whether the next step, of so many requests of which some may draft, had better run ahead."""
        if num_drafting == 0:
            return True
        if self._trial > 0:
            return False
        tokens_in_turn = num_requests + num_drafting * self.jump
        return tokens_in_turn * max(self.busy, self.host) < num_requests * (self.busy + self.gap)

    def observe_in_turn(self, seconds: float, busy: float, host: float, num_drafting: int, num_jumped: int) -> None:
        """Takes note of a step in turn.

        Args:
            seconds: from its beginning to its end.
            busy: of these, while the device had work.
            host: of these, while the host had work that it would have ahead as well.
            num_drafting: requests that may have drafted, and `num_jumped` drafted tokens that were right.
        """
        self._weight = FADE * self._weight + 1.0
        share = 1.0 / self._weight
        self.busy += share * (busy - self.busy)
        self.gap += share * (seconds - busy - self.gap)
        self.host += share * (host - self.host)
        if num_drafting:
            if self._trial > 0:
                self._trial -= 1
            else:
                self._wait = FIRST_WAIT
            if self._trial < TRIAL - SETTLING:
                self._jump_weight = FADE * self._jump_weight + 1.0
                self.jump += (num_jumped / num_drafting - self.jump) / self._jump_weight

    def observe_ahead(self, num_requests: int, num_drafting: int) -> None:
        """Takes note of a step that ran ahead, of so many requests of which some would have drafted."""
        self._waited += num_drafting / num_requests
        if self._waited >= self._wait:
            self._wait = min(2.0 * self._wait, LONGEST_WAIT)
            self._begin_trial()

    def _begin_trial(self) -> None:
        self._trial, self._waited, self._jump_weight = TRIAL, 0.0, 0.0
