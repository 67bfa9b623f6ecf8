"""Drafts by a model: a smaller one of the same vocabulary says what may come next, and the model verifies it.

What is drafted of a request is a *shadow* of it: a request with the same text, parameters and place in the constraint,
which the draft model takes some tokens further, one forward each for all that draft::

    request     known tokens │ forced text
    shadow      known tokens   forced text  d0  d1  d2 …

A shadow's tokens are chosen as the request's are: masked by its constraint and its rules, with its temperature, and
with the noise of its seed at their positions. So where both models believe the same they say the same, greedy or
sampled. Nothing depends on that but how often drafts are right: the model decides every position by itself.

The draft model's KV lies in the request's blocks (`DraftKV`). What is missing of it is computed first, in chunks that
take no longer than a step should.

The model's own MTP layer drafts in the same way, but it needs the model's hidden states (`models/mtp.py`). So it drafts
only where nothing else is drafted, and computes the KV of drafted tokens again once the model has verified them.

A drafted token costs its place in the verifying step and a forward of the draft model; if it is right it saves its
request's share of a step. Both are measured, and how often drafted tokens are right is learnt
(`acceptance_rates.MODEL`). A draft goes on while its next token is expected to save more than it costs. None is made
where that holds for no token, or where too few are left to pay for what is missing.

Knows requests, the forward and the sampler. All that it changes of a request is its draft, with the evidence for that
(`Request.guess`).
"""

from __future__ import annotations

import dataclasses
import logging
import math
from array import array
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from ...errors import ConstraintTooLarge
from ...fsm import Cursor, Guess
from ..execute.batch import Batch, Extend
from ..execute.draft_kv import DraftKV
from ..execute.model_runner import ModelRunner
from ..execute.prefill_cost import PrefillCost
from ..moving_average import moved
from ..request import Phase, Request
from ..sample.sampler import Sampler
from ..sample.sampler_output import SamplerOutput
from .acceptance_rates import MODEL
from .step_costs import MAX_TRIED_TOKENS, TRY_EVERY, step_costs

logger = logging.getLogger("phloem")

MODEL_MARGIN = 1.2  # less than `MARGIN`, since what both cost is measured
MAX_TRIED_MISSING = 128  # what seems not to pay is tried (`TRY_EVERY`) where no more tokens are missing
MANY_TOKENS = 32  # if more are missing, their forward tells what a prompt costs, and not what a drafted token does
WEIGHT = 0.1  # of a step in the averages of what steps and drafts take


@dataclass(slots=True)
class Turn:
    """What the draft model does for a request in a step.

    Attributes:
        shadow: the request with what is drafted.
        start: tokens that the draft model has computed.
        end: as many it computes first.
        limit: tokens that it may add then; 0: more is missing.
        num_computed: tokens of the shadow that it has computed in the end.
    """

    request: Request
    shadow: Request
    start: int
    end: int
    limit: int
    num_computed: int = 0

    @property
    def num_added(self) -> int:
        return self.shadow.num_tokens - self.request.num_tokens - len(self.request.draft)

    @property
    def num_needed(self) -> int:
        """Tokens that need a place in the request's blocks; the last one drafted is not computed."""
        return self.end + max(0, self.limit - 1)


class ModelDrafter:
    """Drafts for all requests of an engine.

    Args:
        runner: of the draft model.
        sampler: one of its own, so that what fails here leaves the engine's tables whole.
        kv: the keys and values of the draft model.
        cost: learns what missing tokens cost.
        max_len: tokens that the draft model was made for.
        max_draft_tokens: of one draft, forced text included.
        max_batch_tokens: of one forward.
        target_seconds: that missing tokens may take in a step.
        device_type: of which the costs of a step are.
        eos_ids: nothing is drafted after one of them.
        stopwatch: seconds.

    Attributes:
        num_failed: how often it failed.
        rests: in the last step in which it could draft, no draft would have saved more than it costs.
    """

    def __init__(
        self,
        runner: ModelRunner,
        sampler: Sampler,
        kv: DraftKV,
        cost: PrefillCost,
        *,
        max_len: int,
        max_draft_tokens: int,
        max_batch_tokens: int,
        target_seconds: float,
        device_type: str,
        eos_ids: Collection[int],
        stopwatch: Callable[[], float],
    ) -> None:
        self._runner = runner
        self._sampler = sampler
        self._kv = kv
        self._cost = cost
        self._max_len = max_len
        self._max_draft_tokens = max_draft_tokens
        self._max_batch_tokens = max_batch_tokens
        self._target_seconds = target_seconds
        self._step_costs = step_costs(device_type)
        self._eos_ids = frozenset(eos_ids)
        self._stopwatch = stopwatch
        self._unit = 0.0  # seconds of a token in a step of the model, in which `step_costs` are
        self._draft_unit = 0.0  # as much of the draft model's forwards
        self._saved = 1.0 + sum(self._step_costs)  # units that a token which is right saves its request
        self._num_untried = 0
        self._num_faulty_steps = 0  # that are left without drafts after a fault
        self._num_paying = self._num_not_paying = 0  # requests, in the step that is planned
        self._drafted: dict[Request, Turn] = {}
        self.num_failed = 0
        self.rests = False

    @property
    def is_own_layer(self) -> bool:
        """Whether it is a layer of the model itself."""
        return self._kv.keeps_hidden

    # -- what pays ---------------------------------------------------------------------------------------------

    def observe_step(self, num_requests: int, num_rows: int, seconds: float) -> None:
        """Takes note of what a step of the model took that computed these numbers of requests and tokens, no prompt."""
        fixed, host = self._step_costs
        self._saved = fixed / num_requests + host + 1.0
        self._unit = moved(self._unit or None, seconds / self._num_units(num_requests, num_rows), WEIGHT)

    def may_draft(self, request: Request) -> bool:
        """Whether it would draft for a request now, if nothing were missing."""
        return self._num_faulty_steps == 0 and self._best_length(request, 1.0, self._limit(request)) > 0

    @property
    def _price(self) -> float:
        """What a drafted token costs, of what one saves that is right: its row to verify, and its part of a forward of
        the draft model, which as many requests share as a step."""
        return 1.0 / self._saved + (self._draft_unit / self._unit if self._unit else 0.0)

    def _num_units(self, num_requests: int, num_rows: int) -> float:
        """What a forward costs, in units."""
        fixed, host = self._step_costs
        return fixed + host * num_requests + num_rows

    def _limit(self, request: Request) -> int:
        """How many tokens may be added to the draft of a request."""
        num_drafted = len(request.draft)
        limit = min(self._max_draft_tokens, request.remaining_tokens - 1, self._max_len - request.num_tokens)
        if request.thought is not None and request.thought.max_draft_tokens is not None:
            limit = min(limit, request.thought.max_draft_tokens)
        is_open = request.rates is not None and request.sampling.kv_budget is None
        return limit - num_drafted if is_open else 0

    def _best_length(self, request: Request, chance: float, limit: int) -> int:
        """How many tokens are worth it after a draft that is right with that chance."""
        if request.rates is None:
            return 0
        rate, floor, count = request.rates.chances()[MODEL], MODEL_MARGIN * self._price, 0
        while count < limit and chance * rate >= floor:
            chance *= rate
            count += 1
        return count

    def _pays(self, request: Request, start: int, length: int) -> bool:
        """Whether drafts of that length, in all steps to come, save more than it takes to compute from `start` on."""
        seconds = self._cost.seconds(start, request.num_tokens)
        if not seconds or not self._unit:
            return True
        assert request.rates is not None
        rate = request.rates.chances()[MODEL]
        num_right = sum(rate**index for index in range(1, length + 1))
        num_steps = request.remaining_tokens / (1.0 + num_right)
        return num_steps * (num_right - length * self._price) * self._saved * self._unit > seconds

    # -- drafting ----------------------------------------------------------------------------------------------

    def plan(self, requests: Iterable[Request]) -> list[Turn]:
        """Whose drafts are begun or continued by the model; each needs room for `num_needed` tokens, or is left out."""
        self._drafted.clear()
        if self._num_faulty_steps:
            self._num_faulty_steps -= 1
            return []
        self._num_paying = self._num_not_paying = 0
        turns = []
        room, seconds = self._max_batch_tokens, self._target_seconds
        for request in requests:
            if request.num_uncomputed_tokens - request.num_taken_back != 1 or request.phase is not Phase.RUNNING:
                continue
            turn = self._turn(request, room, seconds)
            if turn is not None and turn.start < turn.end:
                turns.append(turn)
                room -= turn.end - turn.start
                seconds = max(0.0, seconds - self._cost.seconds(turn.start, turn.end))
        if self._num_paying or self._num_not_paying:
            self.rests = not self._num_paying
        return turns

    def _turn(self, request: Request, room: int, seconds: float) -> Turn | None:
        guess, draft, limit = request.guess, request.draft, self._limit(request)
        if limit <= 0 or len(draft) != (len(guess.token_ids) if guess is not None else 0):
            return None  # a look-up says more, or the draft was cut
        if self._kv.keeps_hidden and (draft or not self._kv.has_hidden(request.blocks)):
            return None
        assert request.rates is not None
        chances = request.rates.chances()
        chance = math.prod(chances[kind] for kind in guess.evidence) if guess is not None else 1.0
        length = self._best_length(request, chance, limit)
        end = request.num_tokens + len(draft)
        start = min(self._kv.count(request.blocks), request.num_tokens - 1)
        pays = length > 0 and self._pays(request, start, length)
        self._num_paying += pays
        self._num_not_paying += not pays
        if not pays:
            self._num_untried += 1
            if self._num_untried < TRY_EVERY or request.num_tokens - start > MAX_TRIED_MISSING:
                return None
            self._num_untried, length = 0, min(MAX_TRIED_TOKENS, limit)
        shadow = _shadow(request)
        if shadow is None:
            return None
        num_first = min(end - start, room)
        if num_first > self._max_draft_tokens + 1:  # more than what was decided since it drafted last
            in_time = self._cost.num_tokens(start, seconds, num_first)
            num_first = min(num_first, max(in_time, self._kv.kv_cache.block_size))
        if num_first < end - start:  # known tokens only, and the rest in the next step
            return Turn(request, shadow, start, min(start + num_first, request.num_tokens - 1), 0)
        return Turn(request, shadow, start, end, length)

    def draft(self, turns: list[Turn]) -> None:
        """Sets what the model says as the drafts of the requests, after what was drafted before. What fails costs only
        the drafts."""
        if not turns:
            return
        try:
            self._compute(turns)
        except Exception:
            logger.warning("the draft model failed; for a while nothing is drafted by it", exc_info=True)
            self.num_failed += 1
            self._num_faulty_steps = TRY_EVERY
            self._sampler.forget()
        finally:
            for turn in turns:
                turn.shadow.phase = Phase.FINISHED  # gives up its rows in the sampler's tables

    def _compute(self, turns: list[Turn]) -> None:
        begin = self._stopwatch()
        first = [
            Extend(turn.shadow, turn.start, turn.end - turn.start, [], turn.shadow.num_tokens - 1) for turn in turns
        ]
        going = self._forward(first, turns)
        read, num_first = self._stopwatch(), sum(turn.num_added for turn in turns)
        missing = [(one.start, one.end) for one in turns if not one.limit or one.end - one.start > MANY_TOKENS]
        if missing:
            self._cost.observe_step(missing, len(turns) - len(missing), read - begin)
        num_units = 0.0
        while going:
            num_units += self._num_units(len(going), len(going))
            shadows = [turn.shadow for turn in going]
            extends = [Extend(shadow, shadow.num_tokens - 1, 1, [], shadow.num_tokens - 1) for shadow in shadows]
            going = self._forward(extends, going)
        if num_units:  # forwards after the first, of a token each, have no part in what was missing
            self._draft_unit = moved(self._draft_unit or None, (self._stopwatch() - read) / num_units, WEIGHT)
        elif num_first and not missing:
            num_units = self._num_units(len(turns), sum(turn.end - turn.start for turn in turns))
            self._draft_unit = moved(self._draft_unit or None, (read - begin) / num_units, WEIGHT)
        for turn in turns:
            self._take_over(turn)

    def _forward(self, extends: list[Extend], turns: list[Turn]) -> list[Turn]:
        """Computes what the extends name and adds a token to each shadow; those whose drafts go on."""
        batch = Batch.from_extends(extends, self._kv.kv_cache.block_size)
        outputs = self._sampler.choose(self._runner.forward(batch), batch)
        going = []
        for turn, extend, output in zip(turns, batch.extends, outputs, strict=True):
            turn.num_computed = extend.end
            if turn.limit and self._add(turn.shadow, output) and turn.num_added < turn.limit:
                going.append(turn)
        return going

    def _add(self, shadow: Request, output: SamplerOutput) -> bool:
        """Adds what was chosen to a shadow, if it may follow; whether more may follow it."""
        if not output.token_ids or output.error is not None or output.token_ids[0] < 0:
            return False
        token_id, cursor = output.token_ids[0], shadow.cursor
        if cursor is not None and not _takes(cursor, [token_id]):
            return False
        shadow.token_ids.append(token_id)
        return token_id not in self._eos_ids and (cursor is None or not cursor.must_stop)

    def _take_over(self, turn: Turn) -> None:
        """What was drafted is the request's."""
        request, guess = turn.request, turn.request.guess or Guess()
        num_known, num_added = request.num_tokens, turn.num_added
        self._kv.record(request.blocks, turn.start, min(turn.num_computed, num_known))
        if num_added:
            request.draft = turn.shadow.token_ids[num_known:].tolist()
            request.guess = Guess(request.draft, [*guess.evidence, *[MODEL] * num_added])
        if turn.num_computed > num_known and not self._kv.keeps_hidden:
            self._drafted[request] = turn

    def settle(self, request: Request, num_new: int) -> None:
        """After a step in which `num_new` tokens joined the request: of those that were drafted the KV is there."""
        turn = self._drafted.pop(request, None)
        num_known = request.num_tokens - num_new
        if turn is not None and num_new > 1:
            self._kv.record(request.blocks, num_known, min(turn.num_computed, request.num_tokens - 1))


def _shadow(request: Request) -> Request | None:
    """A request like another, with its draft, that goes on by itself in the same blocks; without its adapter, and
    without the limit of its thought, to which drafts do not reach. None: its constraint has no room to say more."""
    sampling, cursor = request.sampling, request.cursor
    if sampling.logprobs is not None or sampling.prompt_logprobs_from is not None:
        sampling = dataclasses.replace(sampling, logprobs=None, prompt_logprobs_from=None)
    if cursor is not None:
        cursor = cursor.fork()
        if not _takes(cursor, request.draft):
            return None
    return request.copy(
        token_ids=request.token_ids + array("i", request.draft),
        sampling=sampling,
        adapter=None,
        cursor=cursor,
        blocks=request.blocks,
        phase=Phase.RUNNING,
    )


def _takes(cursor: Cursor, token_ids: Iterable[int]) -> bool:
    """Takes tokens as far as they are allowed and there is room to know it; whether that was all of them."""
    try:
        return all(map(cursor.advance, token_ids))
    except ConstraintTooLarge:
        return False
