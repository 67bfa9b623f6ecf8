"""Which requests run in the next step, with how many tokens and which blocks.

Continuous batching under one budget (`step_budget`): every running request decodes first (one token and its draft),
what is left goes to prompts, in chunks. Waiting requests are admitted in the order of their tokens (a depth-first walk
of the tree they would form, which reaches the best possible hit rate: SGLang, arXiv 2312.07104, theorem 3.1),
continuing where the last admission stood, so that neighbours follow one another while their prefix is warm. Four bounds
keep that fair:

* those that later arrivals have overtaken `max_overtakes` times are admitted before any other that waits;
* so are those that have waited for `max_wait_seconds`, whatever their priority (see `waiting_line` for both);
* what was preempted comes back before anything new is admitted, oldest first;
* the oldest running request is never preempted, so every step brings something nearer to its end.

A request whose next uncached block is being computed by another (in-batch sharing, see `candidate`), or read from a
tier below the pool, waits for it and hits; if the pool is large enough others are admitted meanwhile (see `detours`).
Which request is admitted is decided by a forecast of the pool (see `admission`). When blocks run out nevertheless, the
running request that is cheapest to resume is preempted *into the tree*: resuming it is a hit unless its blocks were
needed. What a request waits for is evicted last.

After a fault all else is made again from the unfinished requests (`restart`). Knows requests and the prefix cache; it
knows no tensors.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Callable, Iterator, KeysView, Sequence
from functools import partial

from ...radix import pack
from ..cache.prefix_cache import PrefixCache
from ..execute.batch import Batch, Extend
from ..execute.prefill_cost import PrefillCost
from ..request import Phase, Request
from .admission import Outlook, OutputForecast
from .candidate import Candidate, next_candidate
from .detours import Detours
from .outlooks import Outlooks
from .preempted_line import PreemptedLine
from .rope_switch import RopeSwitch, inherit, lengthen, outgrows
from .share import share, share_after, waits_for_rows
from .sharing import cheapest_to_resume, sole_partner
from .step_budget import StepBudget
from .waiting_line import WaitingLine


class Scheduler:
    """Holds every unfinished request, waiting or running.

    Attributes:
        running: requests that hold blocks, oldest first.
        current: the request that was dealt with last, which is charged with what fails then; to be set by all code that
            deals with one.
        max_running_requests: most that run at a time: of the setting, what a step has tokens for, and what there are
            states of recurrent layers for, the least.
        num_preemptions: how often a running request had to give its blocks back.
        num_pins_given_up: pins that ended early, since with them a request could not have run, or in a fault.
    """

    def __init__(
        self,
        prefix_cache: PrefixCache,
        prefill: PrefillCost,
        *,
        max_batch_tokens: int,
        target_step_seconds: float,
        max_running_requests: int,
        max_overtakes: int | None,
        max_wait_seconds: float,
        clock: Callable[[], float],
        rope_switch: RopeSwitch,
    ) -> None:
        self._prefix_cache = prefix_cache
        self._loads = None if prefix_cache.tiers is None else prefix_cache.tiers.loads
        self._prefill = prefill
        self._max_batch_tokens = max_batch_tokens
        self._target_step_seconds = target_step_seconds
        self.max_running_requests = min(max_running_requests, max_batch_tokens)
        self._make_line = partial(
            WaitingLine, max_overtakes=max_overtakes, max_wait_seconds=max_wait_seconds, clock=clock
        )
        self._rope_switch = rope_switch
        self._next_ticket = 0
        self._forecast = OutputForecast()
        self._unfinished: dict[Request, None] = {}
        self.current: Request | None = None
        self.num_preemptions = 0
        self.num_pins_given_up = 0
        self._begin()
        prefix_cache.supply.spare_what(self._count_needed)

    def _begin(self) -> None:
        """With no request in any line."""
        self._waiting: WaitingLine = self._make_line()
        self._preempted = PreemptedLine()
        self._detours = Detours(self._prefix_cache, self._count_needed)
        self._outlooks = Outlooks(self._prefix_cache, self._forecast, self._detours)
        self._late: list[Request] = []
        self.running: list[Request] = []

    @property
    def num_waiting(self) -> int:
        """How many requests wait, the preempted ones included."""
        return len(self._unfinished) - len(self.running)

    @property
    def requests(self) -> KeysView[Request]:
        """Every unfinished request, in the order in which they came."""
        return self._unfinished.keys()

    def restart(self, lost: Request | None) -> None:
        """Puts everything in order after a fault, whatever it has left half done.

        All but the one that is `lost` wait again, and hold nothing; what they have computed is cached if it can be.
        Those that had been admitted come back before any other, as after a preemption.
        """
        if lost is not None:
            self._unfinished.pop(lost, None)
            lost.phase = Phase.FINISHED
        self.num_pins_given_up += self._prefix_cache.reclaim(self.requests)
        self._begin()
        for request in self._unfinished:
            request.phase = Phase.WAITING
            request.draft = []
            lengthen(request)
            if request.admitted_before or request.num_output_tokens:
                self._preempted.add(request)
            else:
                self._waiting.add(request, again=True)

    def add(self, request: Request) -> None:
        """Enqueues a request that fits the pool on its own (the engine has checked)."""
        self._rope_switch.begin(request)
        self._take_up(request)
        self._waiting.add(request)

    def _take_up(self, request: Request) -> None:
        request.ticket = self._next_ticket
        self._next_ticket += 1
        self._unfinished[request] = None

    def fork(self, parent: Request, child: Request) -> None:
        """Takes in a copy of an unfinished request.

        If the parent is past its prompt the child leases what is computed and runs next to it, or waits like a
        preempted request where it finds no seat and no room. Else it waits in the line, and shares the prompt from
        there.
        """
        self._recompute_outgrown()
        inherit(child, parent)
        self._take_up(child)
        is_past_prompt = parent.phase is Phase.RUNNING and parent.num_computed_tokens >= parent.num_prompt_tokens
        if is_past_prompt and self._seat_fork(parent, child):
            child.phase = Phase.RUNNING
            self.running.append(child)
        elif is_past_prompt or parent in self._preempted:
            self._preempted.add(child)
        else:
            self._waiting.add(child)

    def _seat_fork(self, parent: Request, child: Request) -> bool:
        if len(self.running) >= self.max_running_requests or not self._prefix_cache.fork(parent, child):
            return False
        if self._outlooks.has_room([self._outlooks.of(request) for request in (*self.running, child)]):
            return True
        self._prefix_cache.release(child, keep=False)
        return False

    def remove(self, request: Request, *, keep: bool) -> None:
        """Takes a finished or aborted request out; its computed KV goes into the tree if `keep`."""
        if self._loads is not None:
            self._loads.forget(request)
        if request not in self._unfinished:
            pass  # it was never added, since another output of its request failed before
        elif request.phase is Phase.RUNNING:
            self.running.remove(request)
            self._prefix_cache.release(request, keep=keep)
            if not request.length_is_known:
                self._forecast.observe(request.num_output_tokens, request.max_tokens)
        elif request in self._preempted:
            self._preempted.remove(request)
        elif request in self._waiting:
            self._waiting.remove(request)
        request.phase = Phase.FINISHED
        self._unfinished.pop(request, None)

    def take_late(self) -> list[Request]:
        """Requests that have passed their deadlines since the last call. They are unfinished: remove them."""
        late, self._late = self._late, []
        return [request for request in late if request.phase is not Phase.FINISHED]

    def plan(self) -> Batch | None:
        """The next step's batch; None if nothing can run. Leases, evicts, admits and preempts as needed."""
        self._begin_step()
        states = self._prefix_cache.slots.states
        if states is not None:
            states.begin_step()
        decodes = any(request.num_uncomputed_tokens <= 1 for request in self.running)
        budget = self._budget(decodes)
        extends: list[Extend] = []
        for request in self._decodes_first():
            if request.phase is not Phase.RUNNING:
                continue  # it had to make room for one before it
            self.current = request
            extend = share(request, budget.room(request, request.num_computed_tokens))
            if extend is None:
                break
            num_planned = len(extends)
            has_room = self._make_room(extend, extends)
            if len(extends) < num_planned:  # victims gave their shares back
                budget = self._budget(decodes)
                for other in extends:
                    budget.take(other)
            if has_room:
                extends.append(extend)
                budget.take(extend)
        return self._admit_into(extends, budget)

    def plan_ahead(self, batch: Batch, spans: Sequence[slice]) -> Batch | None:
        """The batch of the step after `batch`, whose forward is queued and whose tokens are not known yet.

        It has what goes on for certain: the next chunk of a prompt, the token after one that is being decided (wherever
        it will turn out to have been the last, one token is computed in vain), those newly admitted. None if none does,
        or a request would have to be preempted, which waits until all is known, or no slots are left for its states.

        Args:
            spans: by extend of `batch`, which of the step's tokens are decided for it.
        """
        before = {extend.request: (extend, span) for extend, span in zip(batch.extends, spans, strict=True)}
        if any(map(waits_for_rows, before)):
            return None
        self._begin_step()
        budget = self._budget(any(extend.reaches_end for extend in batch.extends))
        extends: list[Extend] = []
        for request in self._decodes_first():
            self.current = request
            if request in before:
                extend = share_after(*before[request], budget.room(request, before[request][0].end))
            else:
                extend = share(request, budget.room(request, request.num_computed_tokens))
            if extend is None:
                continue
            if not self._prefix_cache.reserve(request, extend.end):
                return None
            extends.append(extend)
            budget.take(extend)
        return self._admit_into(extends, budget, is_ahead=True)

    def _begin_step(self) -> None:
        if self._loads is not None:
            self._loads.take_in(self._prefix_cache.supply.adopt)
        self._late += self._waiting.begin_step()
        self._recompute_outgrown()

    def _recompute_outgrown(self) -> None:
        """Lets requests wait, as if preempted, whose keys are no longer those of their length."""
        for request in [request for request in self.running if outgrows(request)]:
            self.current = request
            self._preempt(request)
            lengthen(request)

    def _budget(self, decodes: bool) -> StepBudget:
        """Of a step in which a request decodes, or none."""
        seconds = self._target_step_seconds if decodes else math.inf
        return StepBudget(self._max_batch_tokens, self._prefill, seconds, self._prefix_cache.block_size)

    def _decodes_first(self) -> list[Request]:
        return sorted(self.running, key=lambda request: request.num_uncomputed_tokens > 1)

    def _admit_into(self, extends: list[Extend], budget: StepBudget, *, is_ahead: bool = False) -> Batch | None:
        """Plans those newly admitted after the others; the whole batch, None if there is none or, ahead, no room."""
        for request in self._admit(budget) if budget.is_open else ():
            extend = share(request, budget.room(request, request.num_computed_tokens))
            if extend is None or not self._reserve(extend):
                break
            extends.append(extend)
            budget.take(extend)
            if not budget.is_open:
                break
        states = self._prefix_cache.slots.states
        if not extends or (is_ahead and states is not None and not states.make_room(len(extends))):
            return None
        self._prefix_cache.slots.plan_states(extends)
        return self._prefix_cache.slots.lay_out(extends, self._prefix_cache.block_size)

    def _reserve(self, extend: Extend) -> bool:
        """Reserves the extend's blocks, giving up its draft if there is no room for that."""
        request, cache = extend.request, self._prefix_cache
        if cache.reserve(request, extend.end):
            return True
        extend.draft = []
        return cache.reserve(request, extend.end)

    def _make_room(self, extend: Extend, extends: list[Extend]) -> bool:
        """Reserves the extend's blocks, giving up its draft first and other requests next.

        Victims that have been planned already are taken out of `extends`. Returns False if the request itself was
        the one to go.
        """
        request = extend.request
        while not self._reserve(extend):
            if len(self.running) == 1:
                assert self._prefix_cache.tree.pins.end_first(), "one request alone must fit the pool"
                self.num_pins_given_up += 1
                continue
            victim = cheapest_to_resume(self.running, self._prefix_cache)
            self._preempt(victim)
            victim.usage.num_preemptions += 1
            self.num_preemptions += 1
            self._forecast.was_wrong()
            if victim is request:
                return False
            extends[:] = [other for other in extends if other.request is not victim]
        return True

    def _preempt(self, request: Request) -> None:
        self.running.remove(request)
        self._prefix_cache.release(request)
        request.phase = Phase.WAITING
        request.draft = []
        self._preempted.add(request)

    # -- admission ---------------------------------------------------------------------------------------------

    def _admit(self, budget: StepBudget) -> Iterator[Request]:
        """Yields newly running requests, their lease taken, while seats, blocks and the step's budget last.

        The caller plans each before it asks for the next, so a request sees what those before it will compute.
        """
        outlooks: dict[Request, Outlook] = {}
        admitted: Candidate | None = None
        while len(self.running) < self.max_running_requests:
            candidate = next_candidate(
                self._waiting, self._preempted, self.running, self._prefix_cache, self._is_coming
            )
            if candidate is None:
                return
            request = self.current = candidate.request
            if admitted is None:
                outlooks = {other: self._outlooks.of(other) for other in self.running}
            else:
                outlooks[admitted.request] = self._outlooks.of_candidate(
                    admitted
                )  # it has the blocks now that were missing
            if request.explain_cache and not request.admitted_before and self._prefix_cache.enabled:
                request.found = self._prefix_cache.explainer.explain(request)
            donor = self._prefix_cache.lease(request, self.running)
            partner = sole_partner(self._prefix_cache, request, self.running)
            if partner is not None:
                outlooks[partner] = self._outlooks.of(partner)  # what it held alone it shares now
            outlooks[request] = self._outlooks.of_candidate(candidate)
            place = self._outlooks.place_for_one(candidate.passed)
            start = request.num_computed_tokens + (0 if donor is None else donor.num_tokens)
            fits = not self.running or self._outlooks.has_room([*outlooks.values(), *place])
            if not fits or budget.room(request, start) == 0:
                self._prefix_cache.release(request, keep=False)
                return
            if donor is not None:
                self._prefix_cache.copy(request, donor)
            self._start(candidate)
            admitted = candidate
            yield request

    def _start(self, candidate: Candidate) -> None:
        request = candidate.request
        if candidate.resume_at is None:
            self._preempted.remove(request)
        else:
            self._waiting.admit(request, candidate.resume_at)
        if candidate.passed:
            self._detours.add(request, pack(request.token_ids))
        num_loaded = self._loads.forget(request) * self._prefix_cache.block_size if self._loads is not None else 0
        if not request.admitted_before:
            request.usage.cached_tokens = min(request.num_computed_tokens, request.num_prompt_tokens)
            request.usage.loaded_tokens = min(num_loaded, request.usage.cached_tokens)
            request.admitted_before = True
        request.phase = Phase.RUNNING
        insort(self.running, request, key=lambda running: running.ticket)

    def _count_needed(self, namespace: str, tokens: bytes) -> int:
        """How many of these tokens some waiting request begins with; of half a block or more, up to its end."""
        num_needed = max(line.count_needed(namespace, tokens) for line in (self._waiting, self._preempted))
        block_size = self._prefix_cache.block_size
        return max(num_needed, (num_needed + block_size // 2) // block_size * block_size)

    def _is_coming(self, request: Request) -> bool:
        """Whether some of what it needs is being read from a tier below the pool; begins that if it pays."""
        if self._loads is None:
            return False
        self.current = request
        room = self._prefix_cache.supply.num_available_blocks
        return self._loads.delays(request, request.namespace, lambda: self._prefix_cache.view.in_pool(request), room)
