"""Odds: how often drafted tokens have come true, and whether looking for drafts has paid.

Two questions are put before a draft is made, and both are answered from what was seen:

* *How far?* A token is worth its row if all up to it are right often enough for what they save. Chances are
  learnt by ground (`fsm/guess.py`): forced words, forced punctuation, what was taken once before, and more often.
* *Whether to look at all?* Forced text that nobody has looked at before has to be spelt by the tokeniser, which can
  take as long as a request's share of a step. It is looked for while the looks so far have, on average, saved more than
  they and the rows of their drafts have cost.

A request's own experience counts together with what all requests have seen, which is worth `COMMON_WEIGHT`
observations: estimate = (own sum + weight x common mean) / (own count + weight). Both fade, since texts change.

What is held not to pay would never be tried again; so a share of the time, `Allowance`, is spent on trying as if
everything paid. Where nothing does, no more than that share is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..fsm import Guess

NUM_GROUNDS = 4
OWN_FADE = 0.98
COMMON_FADE = 0.99
COMMON_WEIGHT = 8.0  # observations
REFRESH_EVERY = 8  # observations of others
FIRST_TOKENS = 4.0  # that were right, by ground, before any was: optimism is put right soon, pessimism is not

# What is saved must exceed what it costs by half: both are estimates, and a step that a request is spared shortens the
# work of all only if another request takes its place.
MARGIN = 1.5


@dataclass(frozen=True, slots=True)
class Attempt:
    """A guess, and the time that it took."""

    guess: Guess
    seconds: float


@dataclass(slots=True)
class Experience:
    """What became of drafts: sums and counts that fade, a little with each observation.

    Attributes:
        fade: what is left of the weight of an observation after the next one.
        right, decided: by ground, how many tokens were right, and of how many.
        drafted, seconds: tokens that were guessed where nobody had to look, and how long that took.
        looks: how many looks for forced text were made.
        look_right, look_drafted, look_seconds: what they brought and cost.
        num_observed: observations, none faded.
    """

    fade: float
    right: list[float]
    decided: list[float]
    drafted: float = 1.0
    seconds: float = 0.0
    looks: float = 0.0
    look_right: float = 0.0
    look_drafted: float = 0.0
    look_seconds: float = 0.0
    num_observed: int = 0

    @staticmethod
    def of_all() -> Experience:
        """Of all requests together, at the beginning: drafts have been right, and looks took no time."""
        first = [FIRST_TOKENS] * NUM_GROUNDS
        return Experience(COMMON_FADE, first, list(first), looks=1.0, look_right=2.0, look_drafted=2.0)

    @staticmethod
    def of_one() -> Experience:
        """Of one request, at its beginning."""
        return Experience(OWN_FADE, [0.0] * NUM_GROUNDS, [0.0] * NUM_GROUNDS)

    def note_token(self, ground: int, is_right: bool) -> None:
        """Takes note of a token that was decided."""
        self.right[ground] = self.fade * self.right[ground] + is_right
        self.decided[ground] = self.fade * self.decided[ground] + 1.0
        self.num_observed += 1

    def note_guess(self, num_drafted: int, seconds: float) -> None:
        """Takes note of a guess without a look."""
        self.drafted = self.fade * self.drafted + num_drafted
        self.seconds = self.fade * self.seconds + seconds

    def note_look(self, seconds: float) -> None:
        """Takes note of a look for forced text; `look_right` and `look_drafted` are added to when they are known."""
        fade = self.fade
        self.looks = fade * self.looks + 1.0
        self.look_right *= fade
        self.look_drafted *= fade
        self.look_seconds = fade * self.look_seconds + seconds
        self.num_observed += 1


class Odds:
    """What to expect of the drafts of one request."""

    __slots__ = ("_chances", "_common", "_look", "_own", "_valid_until")

    def __init__(self, common: Experience, own: Experience | None = None) -> None:
        self._common = common
        self._own = own or Experience.of_one()
        self._valid_until = -1

    def fork(self) -> Odds:
        """The same experience, to go on from apart."""
        own = replace(self._own, right=list(self._own.right), decided=list(self._own.decided))
        return Odds(self._common, own)

    @property
    def chances(self) -> list[float]:
        """How likely a token of each ground is right."""
        if self._common.num_observed > self._valid_until:
            self._refresh()
        return self._chances

    def is_look_worth(self, saving: float, row: float) -> bool:
        """Whether looks for forced text save more than they cost.

        Args:
            saving, row: what a token that is right saves, and what any drafted token costs, in seconds.
        """
        if self._common.num_observed > self._valid_until:
            self._refresh()
        right, drafted, seconds = self._look
        return right * saving >= MARGIN * (drafted * row + seconds)

    def begin(self, attempt: Attempt) -> None:
        """Learns how long a guess took."""
        if attempt.guess.has_looked:
            self._own.note_look(attempt.seconds)
            self._common.note_look(attempt.seconds)
        else:
            self._common.note_guess(len(attempt.guess.token_ids), attempt.seconds)

    def observe(self, attempt: Attempt, decided: Sequence[int]) -> None:
        """Learns from what became of a guess, up to the first token decided otherwise."""
        guess, own, common = attempt.guess, self._own, self._common
        num_right = 0
        for guessed, ground, token_id in zip(guess.token_ids, guess.grounds, decided, strict=False):
            is_right = guessed == token_id
            own.note_token(ground, is_right)
            common.note_token(ground, is_right)
            if not is_right:
                break
            num_right += 1
        if guess.has_looked:
            for experience in (own, common):
                experience.look_right += num_right
                experience.look_drafted += len(guess.token_ids)

    def _refresh(self) -> None:
        own, common = self._own, self._common
        self._chances = [
            (own.right[ground] + COMMON_WEIGHT * common.right[ground] / common.decided[ground])
            / (own.decided[ground] + COMMON_WEIGHT)
            for ground in range(NUM_GROUNDS)
        ]
        weight = COMMON_WEIGHT / common.looks
        self._look = (
            own.look_right + weight * common.look_right,
            own.look_drafted + weight * common.look_drafted,
            own.look_seconds + weight * common.look_seconds,
        )
        self._valid_until = common.num_observed + REFRESH_EVERY


class Allowance:
    """Time that may be spent on finding out: a share of all time.

    Attributes:
        seconds: that may be spent now; less than 0 if the last trial cost more than was there.
        share: of one request's step, to be added whenever one is made.
    """

    __slots__ = ("seconds", "share")

    SHARE = 0.005
    MOST = 400.0  # shares: what is not spent is not saved up for long

    def __init__(self) -> None:
        self.seconds = self.share = 0.0

    def begin_step(self, request_step: float) -> None:
        """From here on a request's step takes so long."""
        self.share = self.SHARE * request_step
        self.seconds = min(self.seconds, self.MOST * self.share)
