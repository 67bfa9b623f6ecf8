"""Who runs in the next step, with how many tokens and which blocks.

Continuous batching under one token budget: every running request decodes first (one token and its draft), what is left
goes to prompts, in chunks. Waiting requests are admitted in the order of their tokens (a depth-first walk of the tree
they would form, which reaches the best possible hit rate: SGLang, arXiv 2312.07104, theorem 3.1), continuing where the
last admission stood, so that neighbours follow one another while their prefix is warm. Four bounds keep that fair:

* a request that `max_overtakes` later ones have passed is served before any other that waits;
* so is one that has waited for `max_wait_seconds`, whatever its priority;
* what was preempted comes back before anything new is admitted, oldest first;
* the oldest running request is never preempted, so every step brings something nearer to its end.

A request whose next uncached block is being computed by another waits for it and hits (in-batch sharing). Who is
admitted is decided by a forecast of the pool (see `admission`). When blocks run out nevertheless, the running request
that is cheapest to resume is preempted *into the tree*: resuming it is a hit unless its blocks were needed. What
somebody waits for is evicted last.

Knows requests and the prefix cache; it knows no tensors.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ..errors import DeadlineExceeded
from ..radix import common_prefix, pack
from .admission import Outlook, OutputForecast, peak_demand
from .batch import Batch, Extend
from .prefix_cache import PrefixCache
from .request import Phase, Request


@dataclass(slots=True, order=True)
class _Waiting:
    """A queue entry; entries sort by priority, then by namespace and tokens, so that shared prefixes are neighbours."""

    key: tuple[int, str, bytes, int]
    request: Request = field(compare=False)
    num_admitted_at_arrival: int = field(compare=False)


class Scheduler:
    """Holds every unfinished request, waiting or running.

    Attributes:
        running: requests that hold blocks, oldest first.
        num_preemptions: how often a running request had to give its blocks back.
    """

    def __init__(
        self,
        prefix_cache: PrefixCache,
        *,
        max_batch_tokens: int,
        max_running_requests: int,
        max_overtakes: int,
        max_wait_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._prefix_cache = prefix_cache
        self._max_batch_tokens = max_batch_tokens
        self._max_running_requests = min(max_running_requests, max_batch_tokens)
        self._max_overtakes = max_overtakes
        self._max_wait_seconds = max_wait_seconds
        self._clock = clock
        self._deadlines: list[tuple[float, int]] = []
        self._ordered: list[_Waiting] = []
        self._by_arrival: dict[int, _Waiting] = {}
        self._preempted: list[Request] = []
        self._preempted_tokens: dict[int, bytes] = {}
        self._num_by_priority: Counter[int] = Counter()
        self._last_key: tuple[int, str, bytes, int] | None = None
        self._go_on_at: tuple[int, str, bytes, int] | None = None
        self._next_ticket = 0
        self._num_admitted = 0
        self._forecast = OutputForecast()
        self._failed: list[tuple[Request, Exception]] = []
        self.running: list[Request] = []
        self.num_preemptions = 0
        prefix_cache.spare_what(self._count_needed)

    @property
    def num_waiting(self) -> int:
        return len(self._ordered) + len(self._preempted)

    @property
    def has_work(self) -> bool:
        return bool(self.running or self._ordered or self._preempted)

    def requests(self) -> Iterator[Request]:
        """Every unfinished request."""
        yield from self.running
        yield from self._preempted
        yield from (entry.request for entry in self._ordered)

    def add(self, request: Request) -> None:
        """Enqueues a request that fits the pool on its own (the engine has checked)."""
        request.ticket = self._next_ticket
        request.queued_at = self._clock()
        self._next_ticket += 1
        key = (-request.priority, request.namespace, pack(request.token_ids), request.ticket)
        entry = _Waiting(key, request, self._num_admitted)
        insort(self._ordered, entry)
        self._num_by_priority[key[0]] += 1
        self._by_arrival[request.ticket] = entry
        if request.deadline_seconds is not None:
            heappush(self._deadlines, (request.queued_at + request.deadline_seconds, request.ticket))

    def remove(self, request: Request, *, keep: bool = True) -> None:
        """Takes a finished or aborted request out; its computed KV goes into the tree if `keep`."""
        if request.phase is Phase.RUNNING:
            self.running.remove(request)
            self._let_go(request, keep=keep)
            self._forecast.observe(request.num_output_tokens, request.max_tokens)
        elif request in self._preempted:
            self._preempted.remove(request)
            del self._preempted_tokens[request.ticket]
        elif request.ticket in self._by_arrival:
            self._unqueue(self._by_arrival[request.ticket])
        request.phase = Phase.FINISHED

    def take_failed(self) -> list[tuple[Request, Exception]]:
        """Requests that failed in planning, or passed their deadline, since the last call, and why.

        They are still queued or running: remove them.
        """
        failed, self._failed = self._failed, []
        return failed

    def plan(self) -> Batch | None:
        """The next step's batch; None if nothing can run. Leases, evicts, admits and preempts as needed."""
        self._expire()
        budget = self._max_batch_tokens
        extends: list[Extend] = []
        decodes_first = sorted(self.running, key=lambda request: request.num_uncomputed_tokens > 1)
        for request in decodes_first:
            if request.phase is not Phase.RUNNING:
                continue  # it had to make room for one before it
            extend = self._extend(request, budget)
            if extend is None:
                break
            num_planned = len(extends)
            try:
                has_room = self._make_room(extend, extends)
            except Exception as error:
                self._failed.append((request, error))
                continue
            if len(extends) < num_planned:  # victims gave their shares back
                budget = self._max_batch_tokens - sum(other.end - other.start for other in extends)
            if has_room:
                extends.append(extend)
                budget -= extend.end - extend.start
        for request in self._admit(budget):
            extend = self._extend(request, budget)
            try:
                if extend is None or not self._prefix_cache.reserve(request, extend.end):
                    break
            except Exception as error:
                self._failed.append((request, error))
                break
            extends.append(extend)
            budget -= extend.end - extend.start
            if budget <= 0:
                break
        if not extends:
            return None
        return Batch.from_extends(extends, self._prefix_cache.block_size)

    def _expire(self) -> None:
        """Fails those that were not admitted in time."""
        now = self._clock() if self._deadlines else 0.0
        while self._deadlines and self._deadlines[0][0] <= now:
            _, ticket = heappop(self._deadlines)
            entry = self._by_arrival.get(ticket)
            if entry is not None:
                self._unqueue(entry)
                late = f"deadline_seconds: not begun within {entry.request.deadline_seconds:g} s; the server is busy"
                self._failed.append((entry.request, DeadlineExceeded(late, param="deadline_seconds")))

    def _extend(self, request: Request, budget: int) -> Extend | None:
        """The request's share of the budget; None if nothing is left."""
        num_tokens = min(request.num_uncomputed_tokens, budget)
        if num_tokens <= 0:
            return None
        start = request.num_computed_tokens
        draft: list[int] = []
        if num_tokens == request.num_uncomputed_tokens:
            draft = request.draft[: min(budget - num_tokens, max(0, request.remaining_tokens - 1))]
        logits_from = request.num_tokens - 1
        wanted = request.sampling.prompt_logprobs_from
        if wanted is not None and len(request.prompt_logprobs) < request.num_prompt_tokens - wanted:
            logits_from = min(logits_from, wanted - 1)
        return Extend(request, start, num_tokens, draft, logits_from)

    def _make_room(self, extend: Extend, extends: list[Extend]) -> bool:
        """Reserves the extend's blocks, giving up its draft first and other requests next.

        Victims that have been planned already are taken out of `extends`. Returns False if the request itself was
        the one to go.
        """
        request = extend.request
        if self._prefix_cache.reserve(request, extend.end):
            return True
        extend.draft = []
        while not self._prefix_cache.reserve(request, extend.end):
            if len(self.running) == 1:
                assert self._prefix_cache.tree.give_up_pin(), "one request alone must fit the pool"
                continue
            victim = self._victim(request)
            self._preempt(victim)
            if victim is request:
                return False
            extends[:] = [other for other in extends if other.request is not victim]
        return True

    def _victim(self, in_need: Request) -> Request:
        """The request that is cheapest to resume: of the lowest priority, the one with the fewest blocks of its own.

        The oldest running request is spared, and so is whoever gains nothing by going.
        """
        oldest = self.running[0]
        candidates = [request for request in self.running if request is not oldest]
        useful = [
            (request.priority, num_blocks, -request.ticket, request)
            for request in candidates
            if (num_blocks := self._prefix_cache.num_sole_blocks(request)) > 0
        ]
        # If nobody has a block for itself, the youngest go until what they share is free.
        return min(useful)[3] if useful else candidates[-1]

    def _let_go(self, request: Request, *, keep: bool) -> None:
        """Releases a request's blocks. If its KV cannot be kept it is dropped: nothing else depends on it."""
        try:
            self._prefix_cache.release(request, keep=keep)
        except Exception:
            self._prefix_cache.release(request, keep=False)

    def _preempt(self, victim: Request) -> None:
        self.running.remove(victim)
        self._let_go(victim, keep=True)
        victim.phase = Phase.WAITING
        victim.draft = []
        victim.usage.num_preemptions += 1
        self.num_preemptions += 1
        self._forecast.was_wrong()
        insort(self._preempted, victim, key=lambda request: request.ticket)
        self._preempted_tokens[victim.ticket] = pack(victim.token_ids)

    # -- admission ---------------------------------------------------------------------------------------------

    def _admit(self, budget: int) -> Iterator[Request]:
        """Yields newly running requests, their lease taken, while budget, seats and blocks last.

        The caller plans each before it asks for the next, so a request sees what those before it will compute.
        """
        outlooks: list[Outlook] | None = None
        while budget > 0 and len(self.running) < self._max_running_requests:
            request = self._next_request()
            if request is None:
                return
            try:
                if outlooks is None:
                    outlooks = [self._outlook(other) for other in self.running]
                if request.explain_cache and not request.admitted_before:
                    request.found = self._prefix_cache.explain(request)
                self._prefix_cache.lease(request, self.running)
                outlooks.append(self._outlook(request))
            except Exception as error:
                self._let_go(request, keep=False)
                self._failed.append((request, error))
                return
            if self.running and (
                peak_demand(outlooks, self._prefix_cache.block_size) > self._prefix_cache.num_available_blocks
            ):
                self._let_go(request, keep=False)
                return
            self._start(request)
            budget -= min(budget, request.num_uncomputed_tokens)
            yield request

    def _outlook(self, request: Request) -> Outlook:
        remaining = self._forecast.remaining(request.num_output_tokens, request.max_tokens)
        missing = request.num_tokens - len(request.blocks) * self._prefix_cache.block_size
        return Outlook(remaining, missing, self._prefix_cache.num_sole_blocks(request))

    def _start(self, request: Request) -> None:
        if self._preempted and self._preempted[0] is request:
            self._preempted.pop(0)
            del self._preempted_tokens[request.ticket]
        else:
            entry = self._by_arrival[request.ticket]
            self._last_key = self._go_on_at
            self._unqueue(entry)
            self._num_admitted += 1
        if not request.admitted_before:
            request.usage.cached_tokens = min(request.num_computed_tokens, request.num_prompt_tokens)
            request.admitted_before = True
        request.phase = Phase.RUNNING
        insort(self.running, request, key=lambda running: running.ticket)

    def _unqueue(self, entry: _Waiting) -> None:
        del self._ordered[bisect_left(self._ordered, entry)]
        del self._by_arrival[entry.request.ticket]
        self._num_by_priority[entry.key[0]] -= 1

    def _count_needed(self, namespace: str, tokens: bytes) -> int:
        """With how many of these tokens somebody who waits begins: in the order of tokens it is a neighbour."""
        waiting = [self._preempted_tokens[one.ticket] for one in self._preempted if one.namespace == namespace]
        for priority, number in self._num_by_priority.items():
            if number:
                at = bisect_left(self._ordered, (priority, namespace, tokens, -1), key=lambda entry: entry.key)
                keys = (entry.key for entry in self._ordered[max(0, at - 1) : at + 1])
                waiting += [key[2] for key in keys if key[:2] == (priority, namespace)]
        return max((common_prefix(tokens, other, 0) >> 2 for other in waiting), default=0)

    def _next_request(self) -> Request | None:
        """Whom to admit next: the preempted, the overdue, then the next in tree order that need not wait."""
        if self._preempted:
            return self._preempted[0]
        if not self._ordered:
            return None
        oldest = next(iter(self._by_arrival.values()))
        self._go_on_at = oldest.key
        if self._num_admitted - oldest.num_admitted_at_arrival >= self._max_overtakes:
            return oldest.request
        if self._clock() - oldest.request.queued_at >= self._max_wait_seconds:
            return oldest.request
        prefilling = [request for request in self.running if request.num_uncomputed_tokens > 1]
        first_to_wait: _Waiting | None = None
        for entry in self._in_tree_order():
            if not any(self._shares_next_block(entry, other) for other in prefilling):
                self._go_on_at = first_to_wait.key if first_to_wait is not None else entry.key
                return entry.request
            if first_to_wait is None:
                first_to_wait = entry
        return None

    def _in_tree_order(self) -> Iterator[_Waiting]:
        """Waiting entries of the highest priority, from the last admission onwards, then from the beginning."""
        top = self._ordered[0].key[0]
        first = 0
        if self._last_key is not None and self._last_key[0] == top:
            first = bisect_left(self._ordered, self._last_key, key=lambda entry: entry.key)
        num_entries = len(self._ordered)
        for step in range(num_entries):
            entry = self._ordered[(first + step) % num_entries]
            if entry.key[0] == top:
                yield entry

    def _shares_next_block(self, entry: _Waiting, other: Request) -> bool:
        """Whether `other` is about to compute a whole block that the waiting request needs too."""
        if not self._prefix_cache.enabled or entry.request.namespace != other.namespace:
            return False
        block_size = self._prefix_cache.block_size
        end = (other.num_computed_tokens // block_size + 1) * block_size
        if end > min(other.num_tokens, entry.request.num_tokens - 1):
            return False
        return entry.key[2].startswith(pack(other.token_ids[:end]))
