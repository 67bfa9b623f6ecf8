"""The engine as a caller sees it: whole answers, streams, chats and scores over the stepping core.

An engine steps itself inside these calls, which may come from several threads, or one in the middle of another: they
step one at a time (`engine_lock`), each step is for all requests, and each call gets the deltas of its own requests
(`delta_router`). While an `AsyncEngine` *drives* the engine, the calls go through that one instead. Knows no tensors
and no blocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from numbers import Number
from types import TracebackType
from typing import Any, Protocol, Self, TypeGuard, TypeVar, Unpack, cast, overload

from ...errors import ConfigError, EngineStopped, RequestError
from ...radix import Pin
from ..cache.cache_report import CacheReport, what_if
from ..config import EngineConfig, EngineSettings
from ..constrain.spec import ConstraintSpec
from ..execute.loading import LoadedModel, load
from ..option_types import check_seconds
from ..request import Completion, Delta, Request, RequestOptions, SamplingParams, TokenLogprob
from .collector import Collector, scoring_params
from .delta_router import DeltaQueue, DeltaRouter
from .engine_core import EngineCore
from .engine_lock import EngineLock
from .request_factory import Prompt
from .statistics import EngineStatistics

Message = Mapping[str, Any]
Result = TypeVar("Result")
T = TypeVar("T")


class Driver(Protocol):
    """Steps an engine on a thread of its own; `AsyncEngine` does."""

    def run(self, prepared: list[list[Request]], constraints: Sequence[ConstraintSpec | None]) -> list[Completion]: ...

    def submit(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None,
        constraint: ConstraintSpec | None,
        **options: Unpack[RequestOptions],
    ) -> Iterable[Delta]: ...

    def call(self, function: Callable[[], Result]) -> Future[Result]: ...

    def stop(self) -> None: ...


class Engine(EngineCore):
    """A model that answers. Use it as a context manager, or `close` it."""

    def __init__(self, model: str = "nano", **settings: Unpack[EngineSettings]) -> None:
        """Loads `model` and allocates the pool; `settings` are the other fields of `EngineConfig`.

        Raises:
            ConfigError, ModelError: before anything large is allocated.
        """
        super().__init__(*_load(model, settings))
        self._begin()

    @classmethod
    def from_loaded(
        cls,
        config: EngineConfig,
        loaded: LoadedModel,
        clock: Callable[[], float] = time.monotonic,
        stopwatch: Callable[[], float] | None = None,
    ) -> Self:
        """An engine on a model that is in memory already.

        Args:
            clock: seconds; by it requests wait and reach their deadlines, pins end and prefixes age.
            stopwatch: seconds; by it is measured what prompts cost and what running ahead saves. By default the CPU
                time of the thread that steps if the model is on the CPU, where other processes must not count, or else
                `time.monotonic`.
        """
        engine = cls.__new__(cls)
        EngineCore.__init__(engine, config, loaded, clock, stopwatch)
        engine._begin()
        return engine

    def _begin(self) -> None:
        self._driver: Driver | None = None
        self._lock = EngineLock()
        self._router = DeltaRouter()

    def attach(self, driver: Driver) -> None:
        """From now on `driver` alone steps this engine."""
        if self._driver is not None:
            raise ConfigError("the engine is driven by an AsyncEngine already; use that one, or stop it first")
        self._driver = driver

    def detach(self) -> None:
        """Ends `attach`."""
        self._driver = None

    @overload
    def generate(  # type: ignore[overload-overlap]  # a str is a Sequence[str] too; as one prompt it counts
        self,
        prompts: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> Completion: ...

    @overload
    def generate(
        self,
        prompts: Sequence[Prompt],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        constraint: ConstraintSpec | Sequence[ConstraintSpec | None] | None = None,
        **options: Unpack[RequestOptions],
    ) -> list[Completion]: ...

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling: SamplingParams | Sequence[SamplingParams] | None = None,
        constraint: ConstraintSpec | Sequence[ConstraintSpec | None] | None = None,
        **options: Unpack[RequestOptions],
    ) -> Completion | list[Completion]:
        """Runs one prompt (text, or ids in a list, array or tensor) to its `Completion`, or a list of prompts to a list
        of them.

        With a list of prompts `sampling` and `constraint` may be lists of the same length, one for each prompt. With
        `n > 1` a prompt yields n completions and the result is always a list, in order. `options` are those of `add`. A
        request that fails raises its error; the others of the call are aborted.

        Raises:
            RequestError: among others, a list that is not as long as that of the prompts.
        """
        is_one = _is_one_prompt(prompts)
        batch = [cast(Prompt, prompts)] if is_one else cast(Sequence[Prompt], prompts)
        samplings = _for_each(batch, SamplingParams() if sampling is None else sampling, "sampling", is_one=is_one)
        constraints = _for_each(batch, constraint, "constraint", is_one=is_one)
        prepared = [
            self.prepare(prompt, params, wanted, **options)
            for prompt, params, wanted in zip(batch, samplings, constraints, strict=True)
        ]
        completions = self._run(prepared, constraints)
        return completions[0] if is_one and samplings[0].n == 1 else completions

    def _run(self, prepared: list[list[Request]], constraints: Sequence[ConstraintSpec | None]) -> list[Completion]:
        """Enqueues as the queue has room, steps until all are done, keeps order."""
        if self._driver is not None:
            return self._driver.run(prepared, constraints)
        collectors = {
            requests[0].request_id: Collector(len(requests), constraint)
            for requests, constraint in zip(prepared, constraints, strict=True)
        }
        pending = list(reversed(prepared))
        under_way: set[str] = set()
        queue: DeltaQueue = []
        try:
            while pending or under_way:
                if pending:
                    self._enqueue_what_fits(pending, under_way, queue)
                for delta in self._next_deltas(queue, under_way, has_more=bool(pending)):
                    if collectors[delta.request_id].push(delta):
                        under_way.discard(delta.request_id)
                        self._router.unregister(delta.request_id)
            return [completion for collector in collectors.values() for completion in collector.completions()]
        finally:
            for request_id in under_way:
                self.abort(request_id)

    def _enqueue_what_fits(self, pending: list[list[Request]], under_way: set[str], queue: DeltaQueue) -> None:
        """Takes requests off the end of `pending` while the queue has room."""
        with self._lock:
            room = self.config.max_waiting_requests - self._scheduler.num_waiting
            while pending and len(pending[-1]) <= room:
                room -= len(pending[-1])
                request_id = self.enqueue(pending.pop())
                under_way.add(request_id)
                self._router.register(request_id, queue)

    def _next_deltas(self, queue: DeltaQueue, request_ids: Iterable[str], *, has_more: bool = False) -> DeltaQueue:
        """Takes what is in the queue; if it is empty, what a step puts there.

        Raises:
            EngineStopped: the engine was closed meanwhile.
            RequestError: all of these requests were aborted meanwhile, and there are no more.
        """
        with self._lock:
            if not queue:
                self._router.route(super().step())
            found = queue[:]
            queue.clear()
            if not found and self._closed:
                raise EngineStopped("the engine is closed")
            if not found and not has_more and not any(request_id in self._requests for request_id in request_ids):
                raise RequestError("the request was aborted")
            others_wait = self._router.has_queued
        if others_wait:
            time.sleep(0)  # locks are not fair: without this one thread may go on stepping, and the others starve
        return found

    def step(self) -> list[Delta]:
        """Runs one step; returns what it added to requests that were begun with `add`, and what steps of other callers
        had added to them before."""
        with self._lock:
            self._router.route(super().step())
            return self._router.take_unclaimed()

    def enqueue(self, requests: list[Request]) -> str:
        """Puts prepared requests into the queue; returns their common id. `step` reports on them."""
        with self._lock:
            return super().enqueue(requests)

    def fork(self, request_id: str, n: int = 1, sampling: SamplingParams | None = None, *, index: int = 0) -> list[str]:
        """See `EngineCore.fork`."""
        with self._lock:
            return super().fork(request_id, n, sampling, index=index)

    def abort(self, request_id: str) -> bool:
        """Ends a request at once; its blocks are free on return. False if it is unknown or finished."""
        with self._lock:
            self._router.unregister(request_id)
            return super().abort(request_id)

    def stream(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Delta]:
        """Yields one request's deltas as they come; closing the iterator aborts it. An error delta raises."""
        if self._driver is not None:
            yield from self._driver.submit(prompt, sampling, constraint, **options)
            return
        requests = self.prepare(prompt, sampling, constraint, **options)
        num_open, queue = len(requests), DeltaQueue()
        under_way: set[str] = set()
        try:
            with self._lock:
                request_id = self.enqueue(requests)
                under_way.add(request_id)
                self._router.register(request_id, queue)
            while num_open:
                for delta in self._next_deltas(queue, under_way):
                    if delta.error is not None:
                        raise delta.error
                    num_open -= delta.finish_reason is not None
                    yield delta
        finally:
            for request_id in under_way:
                self.abort(request_id)

    def chat(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> Completion:
        """`generate` on the model's chat template; `messages` are `{"role": …, "content": …}`.

        The next turn of a conversation computes only what is new in it, to the token. With `n > 1` the result is a list
        of n completions, as that of `generate`, which types cannot tell.
        """
        namespace, adapter = options.get("namespace", ""), options.get("adapter")
        chat = self.encode_chat(messages, namespace=namespace, adapter=adapter)
        options["conversation"] = chat.text
        return self.generate(chat.token_ids, sampling, constraint, **options)

    def score(
        self,
        prompt: Prompt,
        continuations: Sequence[Sequence[int]],
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> list[list[TokenLogprob]]:
        """Log-probability of every token of each continuation of the prompt; the prompt is computed once."""
        prefix = self.request_factory.token_ids(prompt)
        prepared = [
            self.prepare([*prefix, *continuation], scoring_params(len(prefix)), namespace=namespace, adapter=adapter)
            for continuation in continuations
        ]
        return [list(completion.prompt_logprobs) for completion in self._run(prepared, [None] * len(prepared))]

    def pin(self, prompt: Prompt, *, ttl: float = 600.0, namespace: str = "", adapter: str | None = None) -> Pin:
        """Computes a prefix, if it is not cached, and keeps it for `ttl` seconds, whether it is used or not.

        Whole blocks only (`Pin.num_tokens` of them). All pins together hold at most `max_pinned_blocks`. A pin ends
        early only where a request could otherwise never run. Count `num_pinned_blocks` in `statistics`.

        Raises:
            PinBudgetExceeded: nothing was pinned; end another pin first.
            RequestError: an argument is of another type, or out of range.
        """
        check_seconds("ttl", ttl)
        token_ids = self.request_factory.token_ids(prompt)
        kept = self.request_factory.namespace(namespace, adapter)
        self.generate(token_ids, SamplingParams(max_tokens=0), namespace=namespace, adapter=adapter)
        return self._on_step_thread(lambda: self._stepper.guard(lambda: self.prefix_cache.pin(token_ids, ttl, kept)))

    def unpin(self, pin: Pin) -> bool:
        """Ends a pin; False if it held nothing or was given up already. Raises RequestError: it is no `Pin`."""
        if not isinstance(pin, Pin):
            raise RequestError(f"pin: expected what `pin` returned, got {pin!r}", param="pin")
        return self._on_step_thread(lambda: self._stepper.guard(lambda: self.prefix_cache.tree.unpin(pin)))

    def _on_step_thread(self, function: Callable[[], Result]) -> Result:
        if self._driver is not None:
            return self._driver.call(function).result()
        with self._lock:
            return function()

    def cache_report(self, *, shows_tree: bool = True, asks_what_if: bool = True) -> CacheReport:
        """What holds the pool, hit rate, evictions, the tree drawn, and what other pools would bring; `print` it.

        `shows_tree` shows prompts: the first tokens of every run as text. `asks_what_if` replays the recent traffic on
        the calling thread, a second or two; steps go on meanwhile.
        """
        report, visits = self._on_step_thread(lambda: self.cache_state(shows_tree=shows_tree))
        if not asks_what_if or not self.config.prefix_cache:
            return report
        curve = what_if(
            visits,
            num_blocks=report.num_blocks,
            block_size=report.block_size,
            policy=report.eviction_policy,
            block_cost=self.block_cost,
        )
        return replace(report, what_if=curve)

    def statistics(self) -> EngineStatistics:
        """State and counters now. Safe on any thread while a driver steps the engine."""
        if self._driver is None:
            with self._lock:
                self.end_expired_pins()
        return super().statistics()

    def flush_cache(self) -> int:
        """Drops every cached prefix that no running request and no pin holds; returns the number of blocks freed."""
        return self._on_step_thread(super().flush_cache)

    def close(self) -> None:
        """Aborts what runs, stops the driver if there is one and drops the cache; `add` raises from now on."""
        if self._driver is not None:
            self._driver.stop()
        with self._lock:
            super().close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _for_each(prompts: Sequence[Prompt], given: T | Sequence[T], name: str, *, is_one: bool) -> Sequence[T]:
    """What was given for each of the prompts; one for all of them, if it is no list."""
    if not isinstance(given, (list, tuple)):
        return [cast(T, given)] * len(prompts)
    if is_one:
        raise RequestError(
            f"{name}: a list of {len(given)}, but there is one prompt; give a list of prompts", param=name
        )
    if len(given) != len(prompts):
        text = f"{name}: a list of {len(given)} for {len(prompts)} prompts; give one for each, or a single one for all"
        raise RequestError(text, param=name)
    return given


def _is_one_prompt(prompts: Prompt | Sequence[Prompt]) -> TypeGuard[Prompt]:
    if isinstance(prompts, str) or not isinstance(prompts, Sequence):  # arrays and tensors are no sequences
        return getattr(prompts, "ndim", 1) == 1
    return len(prompts) > 0 and isinstance(prompts[0], Number)


def _load(model: str, settings: EngineSettings) -> tuple[EngineConfig, LoadedModel]:
    unknown = sorted(set(settings) - set(EngineConfig.field_names()))
    if unknown:
        raise ConfigError(
            f"{unknown[0]}: there is no such engine setting; there are {', '.join(EngineConfig.field_names())}"
        )
    config = EngineConfig(model=model, **settings)
    return config, load(config)
