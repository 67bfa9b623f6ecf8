"""Acceptance rates: how often drafted tokens were right, by the evidence on which they were guessed.

Kinds of evidence are those of `fsm/guess.py`, for constraints: forced words, forced punctuation, what was taken once
before, and more often; and what a draft model says. For each there is a moving average of the request and one of all
requests, and what is expected is the mean of both: many requests that begin together learn from each other at once. All
begin high, since optimism is put right soon and pessimism is not. Knows no costs.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...fsm import Guess
from ...fsm.guess import KINDS

MODEL = len(KINDS)  # the kind of evidence that a draft model gives: the first that constraints do not
NUM_KINDS = MODEL + 1
FIRST_RATE = 0.8
OWN_WEIGHT, COMMON_WEIGHT = 0.15, 0.05  # of a token in the averages


class AcceptanceRates:
    """Of one request."""

    __slots__ = ("_common", "_own")

    def __init__(self, common: list[float], own: Sequence[float] | None = None) -> None:
        """common: averages of all requests, from `first_rates`; shared, and changed. own: of the request."""
        self._common = common
        self._own = list(common if own is None else own)

    def fork(self) -> AcceptanceRates:
        """The same experience, to go on from apart."""
        return AcceptanceRates(self._common, self._own)

    def chances(self) -> list[float]:
        """How likely a token is right, for each kind of evidence."""
        return [(own + common) / 2.0 for own, common in zip(self._own, self._common, strict=True)]

    def observe(self, guess: Guess, decided: Sequence[int]) -> None:
        """Learns from what became of a guess, up to the first token decided otherwise."""
        for guessed, kind, token_id in zip(guess.token_ids, guess.evidence, decided, strict=False):
            is_right = guessed == token_id
            for rates, weight in ((self._own, OWN_WEIGHT), (self._common, COMMON_WEIGHT)):
                rates[kind] += weight * (is_right - rates[kind])
            if not is_right:
                break


def first_rates() -> list[float]:
    """Averages of all requests, before there was any."""
    return [FIRST_RATE] * NUM_KINDS
