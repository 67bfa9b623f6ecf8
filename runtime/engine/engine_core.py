"""The engine's core: requests in, deltas out, one step at a time.

Single-threaded: all of it belongs to one thread, but for what says that it is safe on any. `prepare` (tokenising,
compiling a constraint) only reads. `Stepper` does the steps. `Engine` has a thread that steps; a program that wants to
step by itself, as tests and measurements do, makes a core and needs no engine::

    core = EngineCore(config, load(config))
    request_id = core.add("Hello", SamplingParams(max_tokens=8))
    while core.has_work:
        for delta in core.step():
            ...
    core.close()
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Unpack

from ...errors import EngineStopped, QueueFull, RequestError
from ...fsm import Compiler, Limits
from ..config import EngineConfig
from ..constrain.spec import ConstraintSpec
from ..execute.loading import LoadedModel
from ..execute.prefill_cost import PrefillCost
from ..execute.runner_setup import make_adapters, make_runner
from ..execute.warmup_batches import WarmupBatches
from ..parallel.ranks import RankLost
from ..request import Delta, Phase, Request, RequestOptions, SamplingParams
from ..sample.sampler import Sampler
from ..schedule.recompute_cost import recompute_cost
from ..schedule.rope_switch import RopeSwitch
from .chats import Chats
from .engine_setup import Allocated, make_drafter, make_prefix_cache, make_request_factory, make_scheduler, stopwatch_of
from .follower_setup import make_followers
from .monitor import Monitor
from .pins import Pins
from .prompts import Prompt
from .statistics import EngineStatistics, Totals
from .stepper import Stepper
from .vectors import Vectors


class EngineCore:
    """A model, its tokenizer, its KV pool and its queue.

    Attributes:
        config, model_config, tokenizer, compiler, request_factory, adapters, chats: read-only; safe to use from any
            thread.
        monitor: what is counted; safe on any thread, but for `reset` and `cache_state`.
        generates: whether the checkpoint has logits, and not only hidden states.
        vectors: how vectors are made of texts; safe on any thread.
        pins: prefixes that are kept for a time.
        processes: of the other ranks; None: there are none.
        draft_share: the share of the memory for KV that a draft model has; None: there is none.
        block_cost: FLOPs of computing the block that ends at a token; see `recompute_cost`.
    """

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel,
        clock: Callable[[], float] = time.monotonic,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        """
        Args:
            loaded: a model that is in memory already (`load`).
            clock: seconds; by it requests wait and reach their deadlines, pins end and prefixes age.
            stopwatch: seconds; by it is measured what prompts cost and what running ahead saves. By default the CPU
                time of the thread that steps if the model is on the CPU, where other processes must not count, or else
                `time.monotonic`.
        """
        self.config, self._device, self._closed = config, loaded.device, False
        model, tensors = loaded.decoder.config, Allocated.of(config, loaded)
        self.draft_share = None if tensors.draft_kv is None else tensors.draft_kv.share_beside(tensors.kv_cache)
        self.model_config = whole = model if loaded.cut is None else loaded.cut.whole
        self.processes, self.tokenizer, self.generates = loaded.processes, loaded.tokenizer, loaded.generates
        self.vectors = Vectors(loaded.tokenizer, loaded.vectors, model.hidden_size)
        limits = Limits(config.max_constraint_bytes, config.max_compile_seconds)
        self.compiler = Compiler(loaded.tokenizer.vocabulary(), limits=limits)
        self.max_model_len = min(config.max_model_len or model.max_position_embeddings, model.max_position_embeddings)
        self.adapters = make_adapters(loaded, whole)
        self.block_cost = recompute_cost(model, config.block_size)
        prefill = PrefillCost(self.block_cost, config.block_size)
        followers = make_followers(config, loaded, tensors.pool, prefill, self.adapters, tensors.slots.rules)
        self.prefix_cache = make_prefix_cache(config, tensors, followers, self.block_cost, clock)
        self.request_factory = make_request_factory(
            config, loaded, self.compiler, self.adapters, tensors, self.max_model_len
        )
        rope_switch = RopeSwitch(loaded.switches_at)
        self._scheduler = make_scheduler(config, loaded, self.prefix_cache, prefill, tensors, rope_switch, clock)
        self._runner = make_runner(config, loaded, tensors.kv_cache, tensors.states)
        self._sampler = Sampler(model.vocab_size, tuple(loaded.tokenizer.eos_ids), loaded.device)
        stopwatch = stopwatch or stopwatch_of(loaded)
        drafting = tensors.draft_kv, stopwatch
        self._stepper = Stepper(
            self._scheduler,
            self._runner,
            self._sampler,
            self.prefix_cache,
            loaded.tokenizer,
            drafter=make_drafter(config, loaded, self.compiler.vocabulary, self.prefix_cache, *drafting),
            prefill=prefill,
            on_finish=self._settle,
            runs_ahead=loaded.device.type == "cuda" if config.run_ahead is None else config.run_ahead,
            stopwatch=stopwatch,
        )
        self.pins = Pins(self._stepper, self.prefix_cache, rope_switch, clock)
        self._requests: dict[str, list[Request]] = {}
        self._totals = Totals()
        self.chats = Chats(loaded.tokenizer, self.request_factory, config.reply_memory_bytes)
        self.monitor = Monitor(
            self._scheduler,
            self._stepper,
            self._runner,
            self._sampler,
            self.prefix_cache,
            self._totals,
            config=config,
            chats=self.chats,
            compiler=self.compiler,
            tokenizer=self.tokenizer,
        )

    def run_warmup_batches(self) -> None:
        """Lets a GPU compile, load and capture what steps will need, as `warm_up` does; on the CPU, nothing.

        Takes seconds, or a minute where kernels are not compiled yet. To be called before there are requests.

        Raises:
            ConfigError: no memory is left for the largest steps that the settings allow.
        """
        if self._device.type == "cuda":
            config, windows = self.config, self.prefix_cache.slots.windows
            self._runner.run_warmup_batches(
                WarmupBatches(
                    max_requests=config.max_running_requests,
                    max_tokens=config.max_batch_tokens,
                    max_len=self.max_model_len,
                    num_blocks=self.prefix_cache.pool.num_blocks,
                    block_size=config.block_size,
                    window=0 if windows is None else windows.window,
                    num_slots=0 if windows is None else windows.slots.num_slots,
                )
            )

    # -- requests ----------------------------------------------------------------------------------------------

    def prepare(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> list[Request]:
        """Tokenises, compiles and checks; returns `sampling.n` requests for `enqueue`. Safe on any thread.

        `max_tokens` is cut to what the context and the pool can hold.

        Raises:
            RequestError: empty prompt, ids out of the vocabulary, unknown constraint …
            PromptTooLong: the prompt leaves no room for a token; the message has the numbers.
            ConstraintError: the constraint cannot be enforced, or not within `max_tokens`.
        """
        return self.request_factory.prepare(prompt, sampling or SamplingParams(), constraint, **options)

    def enqueue(self, requests: list[Request]) -> str:
        """Puts prepared requests into the queue; returns their common id."""
        if self._closed:
            raise EngineStopped("the engine is closed")
        request_id = requests[0].request_id
        if request_id in self._requests:
            raise RequestError(f"request_id: {request_id!r} is in use", param="request_id")
        if len(requests) > self.num_free_places:
            raise QueueFull(f"{self._scheduler.num_waiting} requests are waiting; try again later")
        self._requests[request_id] = list(requests)
        try:
            for request in requests:
                self._totals.begin(request)
                self._stepper.add(request)
        except BaseException:
            self.abort(request_id)
            raise
        return request_id

    def add(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> str:
        """`prepare` and `enqueue`; returns the request's id, under which `step` reports."""
        return self.enqueue(self.prepare(prompt, sampling, constraint, **options))

    def fork(self, request_id: str, n: int = 1, sampling: SamplingParams | None = None, *, index: int = 0) -> list[str]:
        """Lets `n` copies of an unfinished request go on from where it stands; returns their ids.

        Nothing is computed or tokenised again: a fork leases the KV of its parent (the block that is not full is
        copied) and takes over ids, text, the place in the constraint and log-probabilities as they are. Its first
        delta brings all of the output, that of the parent included (`usage.forked_tokens` counts it).

        Args:
            sampling: parameters from here on; None: the parent's, under another seed for each fork. `max_tokens` counts
                from the beginning of the output. With a seed, fork i is sampled as output i of `n` would be.
            index: which of the request's outputs.

        Raises:
            RequestError: there is no such request or output or it has ended, or `max_tokens` leaves no room.
            QueueFull: there is no room for all of them.
        """
        if self._closed:
            raise EngineStopped("the engine is closed")
        outputs = self._requests.get(request_id)
        if outputs is None:
            raise RequestError(f"request_id: {request_id!r} is not under way", param="request_id")
        if not 0 <= index < len(outputs) or outputs[index].phase is Phase.FINISHED:
            raise RequestError(f"index: output {index} of {request_id!r} is not under way", param="index")
        if n > self.num_free_places:
            raise QueueFull(f"{self._scheduler.num_waiting} requests are waiting; try again later")
        begun: list[str] = []
        try:
            for child in self.request_factory.fork(outputs[index], n, sampling):
                if child.request_id in self._requests:
                    raise RequestError(f"request_id: {child.request_id!r} is in use", param="request_id")
                begun.append(child.request_id)
                self._requests[child.request_id] = [child]
                self._totals.begin(child)
                self._stepper.fork(outputs[index], child)
        except BaseException:
            for child_id in begun:
                self.abort(child_id)
            raise
        return begun

    def abort(self, request_id: str) -> bool:
        """Ends a request at once; its blocks are free on return. False if it is unknown or finished."""
        requests = self._requests.get(request_id)
        if requests is None:
            return False
        for request in requests:
            self._stepper.abort(request)
        self._requests.pop(request_id, None)
        return True

    # -- the step ----------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished, or the next step has something to return."""
        return self._stepper.has_work

    @property
    def num_free_places(self) -> int:
        """How many more requests the queue takes."""
        return self.config.max_waiting_requests - self._scheduler.num_waiting

    def step(self) -> list[Delta]:
        """Runs one step; returns what it added to which request. Empty when idle.

        Raises:
            EngineStopped: a rank is lost, and nothing more can be computed.
        """
        try:
            if self.processes is not None:
                self.processes.check()
            deltas = self._stepper.step()
        except RankLost as error:
            raise EngineStopped(f"the engine has stopped: {error}") from error
        if self.config.check_invariants:
            self.audit()
        return deltas

    def _settle(self, request: Request, keeps: bool) -> None:
        """Records what a request that has ended leaves: its statistics, tokens and reply."""
        siblings = self._requests.get(request.request_id)
        if siblings is not None and all(other.phase is Phase.FINISHED for other in siblings):
            del self._requests[request.request_id]
        self._totals.end(request)
        if request.admitted_before and not request.is_probe:
            self.prefix_cache.traffic.add(request)
        if keeps:
            self.chats.remember_reply(request)

    # -- the cache ---------------------------------------------------------------------------------------------

    def statistics(self) -> EngineStatistics:
        """State and counters now. Safe on any thread."""
        return self.monitor.statistics()

    def flush_cache(self) -> int:
        """Drops every cached prefix that no running request and no pin holds, and all host memory below the pool;
        returns the number of blocks freed. What is on a disk stays there, as it does when the process ends.
        """
        return self._stepper.guard(lambda: self.prefix_cache.supply.flush(pinned=False))

    def audit(self) -> None:
        """Raises AssertionError if a block is lost or held twice."""
        self.prefix_cache.audit(self._scheduler.requests)

    def close(self) -> None:
        """Aborts what runs and drops the cache; `add` raises `EngineStopped` from now on."""
        if self._closed:
            return
        self._closed = True
        try:
            for request_id in list(self._requests):
                self.abort(request_id)
            self.prefix_cache.supply.flush(pinned=True)
            self.prefix_cache.close()
        except RankLost:  # what was to be ended is gone
            self.prefix_cache.close()
        finally:
            if self.processes is not None:
                self.processes.end_model()
        self.prefix_cache.traffic.clear()
