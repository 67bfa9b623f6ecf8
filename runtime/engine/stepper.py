"""One step after another: plan, forward, choose, commit.

::

    batch   = scheduler.plan()               which requests run, how many tokens of each, which blocks
    logits  = runner.forward(batch)          one ragged forward
    outputs = sampler.choose(logits, batch)
    deltas  = _commit(batch, outputs)        advance cursors, verify drafts, extend leases, finish, release

Forward and choice are the part of `Computation`, which may run ahead: the next step's forward is queued before this
one's tokens are read.

Knows the requests that are queued or running, and not where their deltas go. Single-threaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from ...errors import RequestError
from ...fsm.automaton_handover import restart
from ...radix import PinBudgetExceeded, pack
from ..cache.prefix_cache import PrefixCache
from ..execute.batch import Batch, Extend
from ..execute.model_runner import ModelRunner
from ..execute.prefill_cost import PrefillCost
from ..kv_compress.budget import next_compaction
from ..kv_compress.policy import places_kept
from ..kv_policies import NUM_SINKS
from ..request import Delta, FinishReason, Phase, Request
from ..sample.sampler import Sampler
from ..sample.sampler_output import SamplerOutput, cause_of
from ..sample.stopping import append_decided
from ..sample.token_notes import notes_of
from ..schedule.scheduler import Scheduler
from ..speculate.draft import Drafter, count_predicted, num_accepted
from ..speculate.draft_counts import DraftCounts
from ..speculate.model_drafter import ModelDrafter
from ..speculate.overlap_policy import OverlapPolicy
from ..tokenizer.tokenizer import Tokenizer
from .computation import Computation
from .deltas import error_delta, late_error, new_delta

Result = TypeVar("Result")

logger = logging.getLogger("phloem")

LOAD_WAIT_SECONDS = 0.005  # at most, where all wait for a tier: then aborts and new requests are looked at


class Stepper:
    """Moves requests from the queue to their ends.

    Args:
        drafter: proposes what is verified.
        prefill: learns what prompts cost.
        on_finish: called with each request that has ended, and whether what it wrote is kept.
        runs_ahead: whether to queue a forward before the tokens of the step before are read, where that pays.
        stopwatch: seconds, to find out where.

    Attributes:
        num_steps: steps so far that computed anything and came to their end.
        num_ahead: those of them whose forward was queued that early.
        num_recoveries: how often the others went on after an exception.
        num_failed: requests that an exception has ended.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        runner: ModelRunner,
        sampler: Sampler,
        prefix_cache: PrefixCache,
        tokenizer: Tokenizer,
        *,
        drafter: Drafter,
        prefill: PrefillCost,
        on_finish: Callable[[Request, bool], None],
        runs_ahead: bool,
        stopwatch: Callable[[], float],
    ) -> None:
        self._scheduler = scheduler
        self._runner = runner
        self._computation = Computation(scheduler, runner, sampler, prefix_cache, stopwatch)
        self._prefix_cache = prefix_cache
        self._loads = None if prefix_cache.tiers is None else prefix_cache.tiers.loads
        self._tokenizer = tokenizer
        self._eos_ids = tokenizer.eos_ids
        self._drafter = drafter
        self._prefill = prefill
        self._on_finish = on_finish
        self._runs_ahead = runs_ahead
        self._stopwatch = stopwatch
        self._overlap_policy = OverlapPolicy()
        self._deltas: list[Delta] = []  # that no step has returned yet
        self._is_suspicious = False  # the last step had a fault, or was interrupted
        self._is_committing = False  # what requests have said is being changed
        self._drafts = True  # the next step may have drafts, unless it runs ahead
        self._drafting = 0.0  # seconds of the step under way in which the draft model was asked
        self.num_steps = 0
        self.num_ahead = 0
        self.num_recoveries = 0
        self.num_failed = 0

    @property
    def draft_counts(self) -> DraftCounts:
        """What was drafted and was right, by what drafted it."""
        return self._drafter.counts

    @property
    def draft_model_rests(self) -> bool:
        """Whether there is a draft model whose drafts would not pay now."""
        return self._drafter.model is not None and self._drafter.model.rests

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished, or the next step has something to return."""
        return bool(self._scheduler.requests or self._deltas)

    def add(self, request: Request) -> None:
        """Puts a request into the queue."""
        self._drafter.begin(request)
        self.guard(lambda: self._scheduler.add(request), request)

    def fork(self, parent: Request, child: Request) -> None:
        """Takes in a copy of an unfinished request; both go on."""
        self._drafter.draft(child)
        self.guard(lambda: self._scheduler.fork(parent, child), child)

    def abort(self, request: Request) -> None:
        """Ends a request at once, if it has not ended; its blocks are free on return, and what it wrote is cached."""
        if request.phase is not Phase.FINISHED:
            try:
                self._end(request, FinishReason.ABORT)
                self._prefix_cache.end_step()
            except BaseException as error:
                self._recover(request, error)
                if not isinstance(error, Exception):
                    raise

    def step(self) -> list[Delta]:
        """Runs one step; returns what it added to which request. Empty when idle.

        Never raises an `Exception`. What is raised in a step, wherever, costs the request its answer that was dealt
        with last (`Scheduler.current`): it ends with an error, and the others go on (`_recover`). A fault before any
        request was dealt with costs none; if the next step has one too, the youngest, so that sooner or later all end.
        A step that is interrupted (KeyboardInterrupt) costs at most the request that was just being committed, and the
        next one returns what it has added.
        """
        scheduler = self._scheduler
        scheduler.current, self._is_committing = None, False
        try:
            if self._is_suspicious:
                scheduler.current = max(scheduler.requests, key=lambda request: request.ticket, default=None)
            self._is_suspicious = True
            self._step()
            self._prefix_cache.end_step()
            self._is_suspicious = False
        except BaseException as error:
            is_fault = isinstance(error, Exception)
            lost = scheduler.current if is_fault or self._is_committing else None
            if lost is not None and any(delta.is_last_of(lost) for delta in self._deltas):
                lost = None  # it has its answer
            self._recover(lost, error)
            if lost is not None:
                self._report_failed(lost, cause_of("the request", error))
            if not is_fault:
                raise
        deltas, self._deltas = self._deltas, []
        return deltas

    def guard(self, change: Callable[[], Result], request: Request | None = None) -> Result:
        """Changes requests, scheduler or cache between two steps.

        Args:
            request: what the change is about. If it fails, so has the request.

        Raises:
            BaseException: what `change` raised, when everything is in order again.
        """
        try:
            result = change()
            self._prefix_cache.end_step()
            return result
        except PinBudgetExceeded:  # an answer like others: nothing was changed
            raise
        except BaseException as error:
            self._recover(request, error)
            self.num_failed += request is not None
            raise

    def _recover(self, lost: Request | None, error: BaseException) -> None:
        """Logs a fault, puts everything in order after it, wherever it was, and ends the request that is `lost`.

        What the unfinished requests have said is the truth; lines, leases, free blocks and cursors are made again from
        that, whatever the fault has left half done. A step that was not committed is computed again, with the same
        outcome.
        """
        if isinstance(error, Exception):
            self.num_recoveries += 1
            logger.error("a fault; all unfinished requests are scheduled again", exc_info=error)
        self._computation.forget()
        self._scheduler.restart(lost)
        if lost is not None:
            try:
                self._on_finish(lost, False)
            except Exception:
                logger.exception("a fault while a failed request was put away")
        for request in tuple(self._scheduler.requests):
            try:
                if request.cursor is not None:
                    restart(request.cursor, request.token_ids[request.num_prompt_tokens :])
            except Exception as fault:
                self._fail(request, cause_of("the constraint", fault))
        try:
            self._prefix_cache.end_step()
        except Exception:
            logger.exception("a fault while the cache's followers were notified of another fault")

    def _step(self) -> None:
        """Adds to `_deltas`."""
        begin = self._stopwatch()
        self._prefix_cache.tree.pins.end_expired()
        ahead = self._computation.take_ahead()
        self.num_ahead += ahead is not None
        self._drafting = 0.0
        if ahead is None and self._drafts and self._drafter.model is not None:
            self._draft_by_model(self._drafter.model)
            self._drafting = self._stopwatch() - begin
        batch = self._scheduler.plan() if ahead is None else ahead.batch
        if batch is None:
            if self._loads is not None:
                self._loads.wait_for_one(LOAD_WAIT_SECONDS)
        else:
            self._drafter.begin_step(len(batch.extends), self._prefill.decode_seconds)
            num_drafting = 0  # is of interest only where it is weighed against running ahead
            if self._runs_ahead:
                num_drafting = sum(self._drafter.may_draft(extend.request) for extend in batch.extends)
            num_jumped = batch.count_jumped() if num_drafting else 0
            drafts = not self._runs_ahead or not self._overlap_policy.prefers_ahead(len(batch.extends), num_drafting)
            self._drafts = drafts
            outputs = self._computation.run(batch, ahead, drafts=drafts)
            self.num_recoveries += self._computation.was_divided
            self._is_committing = True
            self._commit(batch, outputs, drafts=drafts)
            self._is_committing = False  # from here on an interruption is not charged to the last request
            self.num_steps += 1
            self._computation.drop_unwanted()
            try:
                self._learn(batch, begin, num_drafting, num_jumped, was_ahead=ahead is not None)
            except Exception:  # what steps cost is advice: without it they are only slower
                logger.debug("nothing was learnt from a step", exc_info=True)
            self._compact(batch)
        for request in self._scheduler.take_late():
            self._fail(request, late_error(request))

    def _draft_by_model(self, model: ModelDrafter) -> None:
        """Lets the draft model say what may follow, of all requests that have or find room for it."""
        charged, turns = self._scheduler.current, []
        for turn in model.plan(self._scheduler.running):
            self._scheduler.current = turn.request
            if self._prefix_cache.reserve(turn.request, turn.num_needed):
                turns.append(turn)
        self._scheduler.current = charged
        model.draft(turns)

    def _learn(self, batch: Batch, begin: float, num_drafting: int, num_jumped: int, *, was_ahead: bool) -> None:
        """Learns what a step cost that began at `begin`; num_jumped: accepted drafted tokens of its requests then."""
        seconds = self._stopwatch() - begin
        prompts = [(one.start, one.end) for one in batch.extends if one.num_tokens > 1]
        self._prefill.observe_step(prompts, len(batch.extends) - len(prompts), seconds)
        computed = self._computation
        if was_ahead or computed.is_ahead:
            self._overlap_policy.observe_ahead(len(batch.extends), num_drafting)
            return
        if self._drafter.model is not None and not prompts:
            self._drafter.model.observe_step(len(batch.extends), len(batch.token_ids), seconds - self._drafting)
        if self._runs_ahead:
            num_jumped = batch.count_jumped() - num_jumped if num_drafting else 0
            host = seconds - self._drafting - computed.waited
            self._overlap_policy.observe_in_turn(seconds, computed.busy, host, num_drafting, num_jumped)

    def _end(self, request: Request, reason: FinishReason, *, keeps: bool = True) -> None:
        """Ends a request at once; its blocks are free on return. What it wrote is kept in the tree unless it failed."""
        request.finish_reason = reason
        request.draft = []
        self._scheduler.remove(request, keep=keeps)
        request.cursor = request.lookup = None  # so that a constraint lives only while a request needs it
        if keeps:
            self._pin_prompt(request)
        self._on_finish(request, keeps)

    def _commit(self, batch: Batch, outputs: list[SamplerOutput], *, drafts: bool) -> None:
        for extend, output in zip(batch.extends, outputs, strict=True):
            request = self._scheduler.current = extend.request
            if request.phase is Phase.FINISHED:  # while the step was under way
                continue
            try:
                delta = self._commit_extend(extend, output, drafts=drafts)
            except RequestError as error:  # its constraint, or its logits; nothing else has changed
                self._fail(request, error)
            else:
                if delta is not None:
                    self._deltas.append(delta)

    def _commit_extend(self, extend: Extend, output: SamplerOutput, *, drafts: bool) -> Delta | None:
        """Moves the request's ranges on; returns its delta if the step decided a token (or scored the prompt)."""
        request, draft = extend.request, extend.draft
        request.usage.num_steps += 1
        if output.error is not None:
            raise output.error
        if output.prompt_logprobs:
            request.prompt_logprobs += output.prompt_logprobs
        if output.rows is not None and request.readout is not None:
            request.readout.push(extend.first_wanted, output.rows)
        request.num_computed_tokens = extend.start + extend.num_tokens
        if output.is_postponed:  # the last token is computed once more, for its logits
            request.num_computed_tokens -= 1
        self._prefix_cache.keep_scores(request, extend.start)
        if output.is_postponed or not extend.reaches_end:
            self._prefix_cache.slots.settle(extend)
            self._prefix_cache.commit(request)
            return None
        was_prefill = extend.start < request.num_prompt_tokens
        decided = output.token_ids
        if draft:
            decided = decided[: num_accepted(draft, decided) + 1]
            request.usage.drafted_tokens += len(draft)
        first_output = len(request.token_ids)
        reason = append_decided(request, decided, self._eos_ids)
        num_tokens = len(request.token_ids)
        num_new = num_tokens - first_output
        # The KV of accepted drafts is written; of the last token it is not.
        request.num_computed_tokens = num_tokens - 1 if num_new else num_tokens
        if request.received is not None:
            request.received.settle(request.num_computed_tokens)
        self._prefix_cache.slots.settle(extend)
        if num_new > 1:
            request.usage.jumped_tokens += num_new - 1
            first = first_output - request.num_prompt_tokens
            request.usage.jumped_at += range(first, first + num_new - 1)
        if draft and request.num_predicted:
            count_predicted(request, len(draft), num_new - 1)
        if output.logprobs:
            request.logprobs += output.logprobs[:num_new]
        if request.notes is not None:
            request.notes += notes_of(output.decisions, num_new)
        self._drafter.settle(request, len(draft), decided, num_new)
        if reason is not None:
            request.output.finish()
            self._end(request, reason)
            return new_delta(request, self._tokenizer.show)
        if was_prefill:
            self._prefix_cache.commit(request)
            self._pin_prompt(request)
        if draft:
            self._prefix_cache.shrink(request, num_tokens)
        if drafts:
            self._drafter.draft(request)
        else:
            self._drafter.drop(request)
        return new_delta(request, self._tokenizer.show)

    def _compact(self, batch: Batch) -> None:
        """Drops keys and values of requests that have come to their next compaction (`kv_budget`)."""
        for request in [extend.request for extend in batch.extends]:
            self._scheduler.current = request
            if request.num_computed_tokens == next_compaction(request) and request.phase is Phase.RUNNING:
                places, turn = places_kept(request, self._runner.score_keys), None
                if request.sampling.beyond_context:
                    num_positions = request.num_computed_tokens - request.num_dropped_tokens - places.shape[-1]
                    turn = partial(self._runner.turn_back, first=NUM_SINKS, num_positions=num_positions)
                self._prefix_cache.compact(request, places, turn)

    def _fail(self, request: Request, error: RequestError) -> None:
        self._scheduler.current, self._is_committing = request, True  # between end and delta it must not get lost
        self._end(request, FinishReason.ERROR, keeps=False)
        self._report_failed(request, error)

    def _report_failed(self, request: Request, error: RequestError) -> None:
        self._deltas.append(error_delta(request, error))
        self.num_failed += error.is_fault

    def _pin_prompt(self, request: Request) -> None:
        """Pins what is computed of the prompt, if the request wants that, as far as the budget of pins reaches."""
        ttl, request.pin_ttl = request.pin_ttl, 0.0
        if ttl <= 0:
            return
        prompt, pins = request.token_ids[: request.num_prompt_tokens], self._prefix_cache.tree.pins
        try:
            pin = pins.add(pack(prompt), ttl, request.namespace)
        except PinBudgetExceeded:  # what others pin too is not counted here
            num_tokens = (pins.max_blocks - pins.num_blocks) * self._prefix_cache.tree.block_size
            pin = pins.add(pack(prompt[:num_tokens]), ttl, request.namespace)
        request.usage.pinned_tokens = pin.num_tokens
