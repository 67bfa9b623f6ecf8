"""Drafts: runs of tokens believed to come next, and what becomes of them.

A draft rides along with the next forward; the sampler decides every row by itself, and the drafted tokens that were
decided the same are kept::

    forward      known[-1]   d0   d1   d2
    decided          d0      d1    x          d0 and d1 were right, x is the token after them
    accepted         2

The sources are the constraint's forced text, canonically tokenised (the compressed FSM of SGLang, without its
retokenisation), and between such runs what earlier requests wrote at the same places of the same constraint; and with
or without a constraint what followed the same tokens before (`lookup`). The law of the output does not depend on any.

A drafted token costs a row of the forward, and finding it costs time as well. What both cost is measured (`step_cost`),
what they bring is learnt (`odds`), and drafts are made only where they are expected to save more than they cost. This
module knows requests and cursors, no tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..fsm.guess import CERTAIN
from .batch import Batch
from .cache.prefix_cache import PrefixCache
from .config import JumpMode
from .lookup.lookup import Lookups
from .odds import MARGIN, Allowance, Attempt, Experience, Odds
from .request import Request
from .step_cost import StepCost

# As `MARGIN`; that a draft looked worth it is more often luck here, and the first row more may cost more than the next.
LOOKUP_MARGIN = 2.0
MAX_TRIAL_TOKENS = 2  # drafted to find out how they fare


class Drafter:
    """Proposes drafts for all requests of an engine, and learns from what becomes of them.

    Args:
        lookups: finds what texts repeat; None: nobody looks.
        prefix_cache: knows what followed the tokens of a request when others wrote them.
        max_draft_tokens: of one draft.
        stopwatch: seconds; what steps and guesses take is measured by it.

    Attributes:
        seconds: that guesses have taken in the step under way.
    """

    def __init__(
        self,
        jump: JumpMode,
        lookups: Lookups | None,
        prefix_cache: PrefixCache,
        max_draft_tokens: int,
        device_type: str,
        stopwatch: Callable[[], float],
    ) -> None:
        self._jump = jump
        self._lookups = lookups
        self._prefix_cache = prefix_cache
        self._measures = jump == "verified" or lookups is not None
        self._max_draft_tokens = max_draft_tokens
        self._stopwatch = stopwatch
        self._cost = StepCost(device_type)
        self._experience = Experience.of_all()
        self._allowance = Allowance()
        self._set_prices(1)
        self._begin = 0.0  # of the step under way
        self.seconds = 0.0

    def begin(self, request: Request) -> None:
        """Readies a request that is new, and drafts for its first step."""
        if self._jump == "verified" and request.cursor is not None and request.odds is None:
            request.odds = Odds(self._experience)
        self._force(request)  # a look-up would take up memory while the request waits

    def may_draft(self, request: Request) -> bool:
        """Whether there may be drafts for the request, now or soon."""
        if self._jump != "off" and request.cursor is not None:
            return True
        return request.lookup is not None and request.lookup.pays

    def draft(self, request: Request) -> None:
        """Sets what to verify in the request's next forward: what its constraint says, or what its text repeats."""
        self._force(request)
        request.num_predicted = 0
        expected = self._expected(request)
        draft = request.draft
        if len(expected) > len(draft) and expected[: len(draft)] == draft:
            if request.cursor is not None:
                expected = expected[: request.cursor.count_allowed(expected, request.remaining_tokens)]
            if len(expected) > len(draft):
                request.draft = expected
                if request.prediction and request.lookup is not None:
                    request.num_predicted = request.lookup.num_predicted

    def _force(self, request: Request) -> None:
        """Sets what the request's constraint says that is to be verified.

        Canonical forced text joins the output at once instead, unseen. But stop strings, `min_tokens` and
        log-probabilities need every token decided, so with them it goes the verified way.
        """
        request.draft = []
        if self._jump == "off":
            return
        if self._jump == "verified":
            request.draft = self._guess(request)
            return
        sampling = request.sampling
        draft = propose(request, self._max_draft_tokens)
        needs_decisions = sampling.stop or sampling.min_tokens or sampling.logprobs is not None
        request.draft = draft if needs_decisions else _take(request, draft)

    def drop(self, request: Request) -> None:
        """Proposes nothing for the request's next forward."""
        request.draft, request.attempt = [], None
        self._expected(request)

    def settle(self, request: Request, decided: Sequence[int], num_new: int) -> None:
        """Learns from a step of the request: `decided` is what follows, and `num_new` tokens joined the output."""
        cursor, odds, attempt = request.cursor, request.odds, request.attempt
        if odds is None or cursor is None:
            return
        if attempt is not None:
            begin = self._stopwatch()
            odds.observe(attempt, decided)
            self._experience.seconds += self._stopwatch() - begin
        cursor.remember(num_new)

    def begin_step(self) -> None:
        """From here on time counts as a step's."""
        if self._measures:
            self._begin, self.seconds = self._stopwatch(), 0.0

    def end_step(self, batch: Batch) -> None:
        """Learns what the step cost that ends here, with the drafts for the next one apart."""
        if not self._measures:
            return
        num_requests = len(batch.extends)
        if batch.only_decodes:
            seconds = self._stopwatch() - self._begin
            self._cost.observe(num_requests, len(batch.token_ids), seconds - self.seconds)
        self._set_prices(num_requests)

    def _set_prices(self, num_requests: int) -> None:
        """What a drafted token costs and, if it is right, saves in steps of so many requests."""
        self._row, self._saving = self._cost.row, self._cost.saving(num_requests)
        experience = self._experience
        self._row_price = LOOKUP_MARGIN * self._row / self._saving
        self._price = MARGIN * (self._row + experience.seconds / experience.drafted) / self._saving
        self._allowance.begin_step(self._saving)

    def _expected(self, request: Request) -> list[int]:
        """What may follow since it did before, as far as that is worth it. Learns from what has joined the text."""
        lookup = request.lookup
        if lookup is None:
            if self._lookups is None or request.remaining_tokens < 2:
                return []
            if request.prediction:
                lookup = self._lookups.begin(request.num_prompt_tokens, request.prediction)
            else:
                lookup = self._lookups.begin(len(request.token_ids), self._prefix_cache.continuation(request))
            request.lookup = lookup
        elif len(request.token_ids) < lookup.due:
            return []
        return lookup.expect(request.token_ids, self._row_price, request.remaining_tokens - 1)

    def _guess(self, request: Request) -> list[int]:
        """Likely tokens, as far as they are worth it."""
        cursor, odds, allowance = request.cursor, request.odds, self._allowance
        request.attempt = None
        if cursor is None or odds is None:
            return []
        allowance.seconds += allowance.share
        is_trial = allowance.seconds > 0.0
        if is_trial:
            chances, price, looks = list(CERTAIN), 0.0, True
        else:
            chances, price, looks = odds.chances, self._price, odds.is_look_worth(self._saving, self._row)
        if not cursor.may_guess(chances, price, looks=looks):
            return []
        remaining = request.remaining_tokens
        limit = min(MAX_TRIAL_TOKENS if is_trial else self._max_draft_tokens, remaining - 1)
        begin = self._stopwatch()
        guess = cursor.guess_within(remaining, limit, chances, price, looks=looks)
        seconds = self._stopwatch() - begin
        self.seconds += seconds
        if is_trial:
            allowance.seconds -= seconds + len(guess.token_ids) * self._row
        if not guess.token_ids and not guess.has_looked:
            return []
        # compiled code that is loaded, another process: counts as a step, and not as a reason never to look again
        request.attempt = Attempt(guess, min(seconds, self._saving))
        odds.begin(request.attempt)
        return list(guess.token_ids)


def propose(request: Request, max_draft_tokens: int) -> list[int]:
    """Forced tokens from the request's constraint.

    Never so many that no token is left to be decided, or too few to complete the text.
    """
    remaining = request.remaining_tokens
    limit = min(max_draft_tokens, remaining - 1)
    if request.cursor is None or limit <= 0:
        return []
    return request.cursor.draft_within(remaining)[:limit]


def num_accepted(draft: Sequence[int], decided: Sequence[int]) -> int:
    """How many leading tokens of the draft were decided the same."""
    count = 0
    for drafted, token_id in zip(draft, decided, strict=False):
        if drafted != token_id:
            break
        count += 1
    return count


def count_predicted(request: Request, num_drafted: int, num_accepted: int) -> None:
    """Says what became of the drafted tokens that are of the request's prediction."""
    num_predicted = min(num_drafted, request.num_predicted)
    num_right = max(0, min(num_predicted, num_accepted))
    request.usage.accepted_prediction_tokens += num_right
    request.usage.rejected_prediction_tokens += num_predicted - num_right


def _take(request: Request, draft: list[int]) -> list[int]:
    """Appends the draft to the output; returns what is left to be decided, since deciding is what ends a request."""
    for index, token_id in enumerate(draft):
        cursor = request.cursor
        assert cursor is not None and cursor.advance(token_id), "a draft broke its constraint"
        if cursor.must_stop:
            cursor.rollback(1)
            return draft[index:]
        request.token_ids.append(token_id)
        request.output.push(token_id)
        request.usage.completion_tokens += 1
        request.usage.drafted_tokens += 1
        request.usage.jumped_tokens += 1
    return []
