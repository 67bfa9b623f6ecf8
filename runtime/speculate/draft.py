"""Drafts: runs of tokens believed to come next, and what becomes of them.

A draft rides along with the next forward; the sampler decides every position by itself, and the drafted tokens that
were decided the same are kept::

    forward      known[-1]   d0   d1   d2
    decided          d0      d1    x          d0 and d1 were right, x is the token after them
    accepted         2

The sources are the constraint's forced text, canonically tokenised (the compressed FSM of SGLang, without its
retokenisation), and between such runs what earlier requests wrote at the same places of the same constraint; and with
or without a constraint what followed the same tokens before (`lookup`). The distribution of the output does not depend
on any.

A drafted token costs as much as any token of the forward, and one that is right saves its request a step. What both
cost depends on the kind of device and on how many requests share a step, and is held to be constant otherwise
(`step_costs`). How often drafted tokens are right is learnt (`acceptance_rates`, and the rate of each look-up), and
drafts are made only where they are expected to save more than they cost. This module knows requests and cursors, no
tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...fsm import Guess
from ...fsm.foresight import count_allowed, forced_tokens_within, guess_within, may_guess, remember
from ...fsm.guess import CERTAIN, WORD
from ..cache.prefix_cache import PrefixCache
from ..config import JumpMode
from ..request import Request, TokenNote
from .acceptance_rates import AcceptanceRates, first_rates
from .draft_counts import DraftCounts
from .lookup import Lookups
from .model_drafter import ModelDrafter
from .step_costs import MARGIN, MAX_TRIED_TOKENS, TRY_EVERY, step_costs

LOOKUP_MARGIN = 2.0  # more than `MARGIN`: a look-up's draft that looks worth it is more often luck
# A request's share of a step from which on forced text is looked for that was not met before: to find its tokens takes
# about 100 us, and they are few and not all right.
LOOK_SECONDS = 500e-6


class Drafter:
    """Proposes drafts for all requests of an engine, and learns from what becomes of them.

    Args:
        lookups: finds what texts repeat; None: nothing is looked up.
        model: drafts what constraint and look-up leave open; None: nothing does.
        prefix_cache: knows what followed the tokens of a request in other requests.
        max_draft_tokens: of one draft.
        device_type: of which the costs are.

    Attributes:
        counts: what was drafted and was right, by what drafted it, of all requests but probes.
    """

    def __init__(
        self,
        jump: JumpMode,
        lookups: Lookups | None,
        prefix_cache: PrefixCache,
        max_draft_tokens: int,
        device_type: str,
        model: ModelDrafter | None = None,
    ) -> None:
        self._jump = jump
        self._lookups = lookups
        self.model = model
        self.counts = DraftCounts(by_own_layer=model is not None and model.is_own_layer)
        self._prefix_cache = prefix_cache
        self._max_draft_tokens = max_draft_tokens
        self.step_costs = step_costs(device_type)
        self._common_rates = first_rates()
        self._num_untried = 0  # steps of requests since the last trial
        self.begin_step(1, 0.0)

    def begin(self, request: Request) -> None:
        """Readies a request that is new, and drafts for its first step."""
        learns = self.model is not None or (self._jump == "verified" and request.cursor is not None)
        if learns and request.rates is None:
            request.rates = AcceptanceRates(self._common_rates)
        self._force(request)  # a look-up would take up memory while the request waits
        self._keep_within_thought(request)

    def may_draft(self, request: Request) -> bool:
        """Whether there may be drafts for the request, now or soon."""
        if self._jump != "off" and request.cursor is not None:
            return True
        if self.model is not None and self.model.may_draft(request):
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
                expected = expected[: count_allowed(request.cursor, expected, request.remaining_tokens)]
            if len(expected) > len(draft):
                request.draft = expected
                if request.prediction and request.lookup is not None:
                    request.num_predicted = request.lookup.num_predicted
        self._keep_within_thought(request)

    def _keep_within_thought(self, request: Request) -> None:
        """Cuts the draft where the limit of the request's thought is to be asked."""
        most = None if request.thought is None else request.thought.max_draft_tokens
        if most is not None and len(request.draft) > most:
            request.draft, request.num_predicted = request.draft[:most], 0
            request.guess = None if request.guess is None else request.guess.until(most)

    def _force(self, request: Request) -> None:
        """Sets what the request's constraint says that is to be verified.

        Canonical forced text joins the output at once instead, unseen. But stop strings, `min_tokens` and
        log-probabilities need every token decided, so with them it goes the verified way.
        """
        request.draft, request.guess = [], None
        if self._jump == "off":
            return
        if self._jump == "verified":
            request.draft = self._guess(request)
            return
        sampling = request.sampling
        draft = propose(request, self._max_draft_tokens)
        needs_decisions = sampling.stop or sampling.min_tokens or sampling.logprobs is not None
        if not needs_decisions:
            num_drafted, draft = len(draft), _take(request, draft)
            if not request.is_probe:
                self.counts.add_forced(num_drafted - len(draft))
        request.draft, request.guess = draft, Guess(draft, [WORD] * len(draft))

    def drop(self, request: Request) -> None:
        """Proposes nothing for the request's next forward."""
        request.draft, request.guess = [], None
        self._expected(request)

    def settle(self, request: Request, num_drafted: int, decided: Sequence[int], num_new: int) -> None:
        """Learns from a step of the request, which verified `num_drafted` tokens of its draft: `decided` is what
        follows, and `num_new` tokens joined the output."""
        if num_drafted and not request.is_probe:
            self.counts.add(request.guess, num_drafted, max(0, num_new - 1))
        if request.rates is not None and request.guess is not None:
            request.rates.observe(request.guess, decided)
        if self._jump == "verified" and request.cursor is not None:
            remember(request.cursor, num_new)
        if self.model is not None:
            self.model.settle(request, num_new)

    def begin_step(self, num_requests: int, seconds: float) -> None:
        """From here on drafts are for steps of as many requests, which take about `seconds`; 0: not known yet."""
        fixed, host = self.step_costs
        self._row_price = 1.0 / (fixed / num_requests + host + 1.0)
        self._looks = seconds == 0.0 or seconds > LOOK_SECONDS * num_requests

    def _expected(self, request: Request) -> list[int]:
        """What may follow since it did before, as far as that is worth it. Learns from what has joined the text."""
        lookup = request.lookup
        if lookup is None:
            if self._lookups is None or request.remaining_tokens < 2:
                return []
            if request.prediction:
                lookup = self._lookups.begin(request.num_prompt_tokens, request.prediction)
            else:
                lookup = self._lookups.begin(len(request.token_ids), self._prefix_cache.view.continuation(request))
            request.lookup = lookup
        elif len(request.token_ids) < lookup.due:
            return []
        return lookup.expect(request.token_ids, LOOKUP_MARGIN * self._row_price, request.remaining_tokens - 1)

    def _guess(self, request: Request) -> list[int]:
        """Likely tokens, as far as they are worth it."""
        cursor, rates, remaining = request.cursor, request.rates, request.remaining_tokens
        if cursor is None or rates is None:
            return []
        chances, price, limit = rates.chances(), MARGIN * self._row_price, self._max_draft_tokens
        self._num_untried += 1
        is_trial = self._num_untried >= TRY_EVERY
        if is_trial:
            chances, price, limit = list(CERTAIN), 0.0, MAX_TRIED_TOKENS
        looks = self._looks or is_trial
        if not may_guess(cursor, chances, price, looks=looks):
            return []
        guess = guess_within(cursor, remaining, min(limit, remaining - 1), chances, price, looks=looks)
        if not guess.token_ids:
            return []
        if is_trial:
            self._num_untried = 0
        request.guess = guess
        return list(guess.token_ids)


def propose(request: Request, max_draft_tokens: int) -> list[int]:
    """Forced tokens from the request's constraint.

    At least one token is left to be decided, and enough to complete the text.
    """
    remaining = request.remaining_tokens
    limit = min(max_draft_tokens, remaining - 1)
    if request.cursor is None or limit <= 0:
        return []
    return forced_tokens_within(request.cursor, remaining)[:limit]


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
        request.usage.jumped_at.append(len(request.token_ids) - request.num_prompt_tokens)
        request.token_ids.append(token_id)
        request.output.push(token_id)
        if request.notes is not None:
            request.notes.append(TokenNote("forced", None))
        if request.thought is not None:
            request.thought.push(token_id)
        request.usage.completion_tokens += 1
        request.usage.drafted_tokens += 1
        request.usage.jumped_tokens += 1
    return []
