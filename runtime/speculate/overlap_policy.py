"""When to draft and when to run ahead: a step can do one of them, each saves something, and both savings are measured.

A draft begins where the last token ended, so the step that carries it waits until that one is read; a step that runs
ahead has no drafts. Of B requests D may draft::

    in turn    B + D x jump tokens in busy + gap       gap: the device waits for the host
    ahead      B tokens in max(busy, host)             jump: tokens that drafts add to a request's step
                                                       busy, host: what device and host have to do without drafts

and the step is of the kind that brings more tokens a second. What a step in turn takes and brings is only seen in turn,
so when requests that may draft come up, and from time to time while steps run ahead of them, some steps are a *trial*::

    steps    trial │ ahead ...................... │ trial │ in turn, as long as it pays
             TRIAL   WAIT

Knows counts and seconds, no requests.
"""

from __future__ import annotations

TRIAL = 24  # steps in turn
SETTLING = 2  # of them before drafts are under way
WAIT = 512.0  # steps ahead between two trials, each counting as the share of its requests that may draft
MEMORY = 20  # steps that an average is over


class OverlapPolicy:
    """Averages over the latest steps in turn.

    Attributes:
        busy, gap, host: seconds of a step.
        jump: tokens that drafts add to the step of a request that may draft.
    """

    def __init__(self) -> None:
        self.busy = self.gap = self.host = self.jump = 0.0
        self._num_in_turn = 0
        self._begin_trial()

    def prefers_ahead(self, num_requests: int, num_drafting: int) -> bool:
        """Whether the next step, of `num_requests` requests of which some may draft, had better run ahead."""
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
            host: of these, while the host had work.
            num_drafting: requests that may have drafted, and `num_jumped` drafted tokens that were right.
        """
        self._num_in_turn += 1
        weight = 1.0 / min(self._num_in_turn, MEMORY)
        self.busy += weight * (busy - self.busy)
        self.gap += weight * (seconds - busy - self.gap)
        self.host += weight * (host - self.host)
        if num_drafting:
            self._trial -= self._trial > 0
            if self._trial < TRIAL - SETTLING:
                self._num_drafted += 1
                self.jump += (num_jumped / num_drafting - self.jump) / min(self._num_drafted, MEMORY)

    def observe_ahead(self, num_requests: int, num_drafting: int) -> None:
        """Takes note of a step that ran ahead, of `num_requests` requests of which some would have drafted."""
        self._waited += num_drafting / num_requests
        if self._waited >= WAIT:
            self._begin_trial()

    def _begin_trial(self) -> None:
        self._trial, self._waited, self._num_drafted = TRIAL, 0.0, 0
