"""The engine's core: requests in, deltas out, one step at a time.

Single-threaded: `enqueue`, `step` and `abort` belong to one thread. `prepare` (tokenising, compiling a constraint) only
reads and may run on any thread. `Stepper` does the steps; `Engine` puts whole answers on top, `AsyncEngine` a thread
and streams.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from ...errors import EngineStopped, QueueFull, RequestError
from ...fsm import Compiler, Limits
from ...radix import Visit
from ..cache.cache_report import CacheReport
from ..cache.prefix_cache import PrefixCache
from ..cache.reply_memory import Conversation, ReplyMemory
from ..cache.state_store import StateStore
from ..cache.traffic_record import TrafficRecord
from ..config import TARGET_STEP_SECONDS, EngineConfig
from ..constrain.spec import ConstraintSpec
from ..events.kv_events import EventStatistics
from ..execute.adapters import Adapters
from ..execute.cuda_graphs import CudaRecorder
from ..execute.loading import LoadedModel, allocate_pool
from ..execute.model_runner import ModelRunner
from ..execute.prefill_cost import PrefillCost
from ..execute.recurrent_states import allocate_states, most_running
from ..execute.warmup_batches import WarmupBatches
from ..offload.lower_tiers import TierStatistics
from ..request import Delta, Phase, Request, RequestOptions, SamplingParams
from ..sample.sampler import Sampler
from ..schedule.recompute_cost import recompute_cost
from ..schedule.scheduler import Scheduler
from ..speculate.draft import Drafter
from ..speculate.lookup import Lookups
from .request_factory import Prompt, RequestFactory
from .statistics import EngineStatistics, KeptBytes, Totals
from .stepper import Stepper
from .tier_setup import make_followers

PIN_RETRY_SECONDS = 1.0


class EngineCore:
    """A model, its tokenizer, its KV pool and its queue.

    Attributes:
        config, model_config, tokenizer, compiler, request_factory, adapters: read-only; safe to use from any thread.
        block_cost: FLOPs of computing the block that ends at a token; see `recompute_cost`.
    """

    def __init__(
        self,
        config: EngineConfig,
        loaded: LoadedModel,
        clock: Callable[[], float] = time.monotonic,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        model = loaded.decoder.config
        states = allocate_states(config, loaded)
        kv_cache = allocate_pool(config, loaded)
        self.block_cost = recompute_cost(model, config.block_size)
        prefill = PrefillCost(self.block_cost, config.block_size)
        self.config = config
        self._device = loaded.device
        self.model_config = model
        self.tokenizer = loaded.tokenizer
        limits = Limits(config.max_constraint_bytes, config.max_compile_seconds)
        self.compiler = Compiler(loaded.tokenizer.vocabulary(), limits=limits)
        self.max_model_len = min(config.max_model_len or model.max_position_embeddings, model.max_position_embeddings)
        self.adapters = Adapters(model, loaded.device, loaded.dtype, loaded.adapters)
        self.prefix_cache = PrefixCache(
            num_blocks=kv_cache.num_blocks,
            block_size=config.block_size,
            kv_cache=kv_cache,
            enabled=config.prefix_cache,
            eviction_policy=config.eviction_policy,
            block_cost=self.block_cost,
            explain_namespaces=config.explain_namespaces,
            max_pinned_blocks=(
                kv_cache.num_blocks // 4 if config.max_pinned_blocks is None else config.max_pinned_blocks
            ),
            followers=make_followers(config, loaded, kv_cache, prefill, self.adapters),
            states=None if states is None else _state_store(config, states.num_slots),
            clock=clock,
        )
        self.request_factory = RequestFactory(
            config,
            loaded.tokenizer,
            self.compiler,
            self.adapters,
            max_model_len=self.max_model_len,
            pool_len=kv_cache.num_blocks * config.block_size,
            vocab_size=model.vocab_size,
            has_windows=any(0 < layer.window < self.max_model_len for layer in model.layers),
            has_states=states is not None,
        )
        self._scheduler = Scheduler(
            self.prefix_cache,
            prefill,
            max_batch_tokens=config.max_batch_tokens,
            target_step_seconds=config.target_step_seconds or TARGET_STEP_SECONDS[loaded.device.type],
            max_running_requests=(
                config.max_running_requests
                if states is None
                else min(config.max_running_requests, most_running(states.num_slots))
            ),
            max_overtakes=config.max_overtakes,
            max_wait_seconds=config.max_wait_seconds,
            clock=clock,
        )
        records = config.cuda_graphs and loaded.device.type == "cuda" and states is None
        recorder = CudaRecorder(loaded.device) if records else None
        self._runner = ModelRunner(
            loaded.decoder, kv_cache, loaded.device, recorder, deterministic=config.deterministic, states=states
        )
        self._sampler = Sampler(model.vocab_size, tuple(loaded.tokenizer.eos_ids), loaded.device)
        lookups = None
        if config.lookup_drafts and config.max_draft_tokens:
            lookups = Lookups(self.compiler.vocabulary, model.vocab_size, config.max_draft_tokens)
        if stopwatch is None:
            stopwatch = time.thread_time if loaded.device.type == "cpu" else time.monotonic
        self._stepper = Stepper(
            self._scheduler,
            self._runner,
            self._sampler,
            self.prefix_cache,
            loaded.tokenizer,
            drafter=Drafter(config.jump, lookups, self.prefix_cache, config.max_draft_tokens, loaded.device.type),
            prefill=prefill,
            on_finish=self._settle,
            runs_ahead=states is None
            and (loaded.device.type == "cuda" if config.run_ahead is None else config.run_ahead),
            stopwatch=stopwatch,
        )
        self._replies = ReplyMemory(config.reply_memory_bytes)
        self._requests: dict[str, list[Request]] = {}
        self._totals = Totals()
        self._counted_before: EngineStatistics | None = None
        self._traffic = TrafficRecord()
        self._clock = clock
        self._closed = False

    def run_warmup_batches(self) -> None:
        """Lets a GPU compile, load and capture what steps will need, as `warm_up` does; on the CPU, nothing.

        Takes seconds, or a minute where kernels are not compiled yet. To be called before there are requests.

        Raises:
            ConfigError: no memory is left for the largest steps that the settings allow.
        """
        if self._device.type == "cuda":
            config = self.config
            self._runner.run_warmup_batches(
                WarmupBatches(
                    max_requests=config.max_running_requests,
                    max_tokens=config.max_batch_tokens,
                    max_len=self.max_model_len,
                    num_blocks=self.prefix_cache.pool.num_blocks,
                    block_size=config.block_size,
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

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        namespace: str = "",
        adapter: str | None = None,
        add_generation_prompt: bool = True,
        continue_final: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Conversation:
        """A conversation as a prompt; replies of this engine are the very tokens it generated. Safe on any thread.

        Give `Conversation.text` to `add` as `conversation`, so that the reply is remembered in turn. The last four
        arguments are those of `ChatTemplate.render`.
        """
        namespace = self.request_factory.namespace(namespace, adapter)
        pieces = self.tokenizer.chat_template.render(
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final=continue_final,
            tools=tools,
            options=options,
        )
        return self._replies.encode(self.tokenizer, pieces, messages, namespace)

    def load_adapter(self, name: str, folder: str | Path) -> None:
        """From now on requests may choose the LoRA adapter in a folder (as PEFT saves it) by this name.

        It is read on the caller's thread; steps go on meanwhile. Safe on any thread.

        Raises:
            ModelError: the folder cannot be loaded.
            ConfigError: the name is taken, or the device has no memory for it.
        """
        self.adapters.load(name, folder)

    def unload_adapter(self, name: str) -> None:
        """From now on requests may not choose this adapter; those that have go on to their ends. Safe on any thread.

        What is cached under it stays until it is evicted, and counts again if the same content is loaded again.

        Raises:
            ConfigError: no adapter of that name is loaded.
        """
        self.adapters.unload(name)

    def enqueue(self, requests: list[Request]) -> str:
        """Puts prepared requests into the queue; returns their common id."""
        if self._closed:
            raise EngineStopped("the engine is closed")
        request_id = requests[0].request_id
        if request_id in self._requests:
            raise RequestError(f"request_id: {request_id!r} is in use", param="request_id")
        if self._scheduler.num_waiting + len(requests) > self.config.max_waiting_requests:
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
        if self._scheduler.num_waiting + n > self.config.max_waiting_requests:
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
        return self._stepper.has_work

    def step(self) -> list[Delta]:
        """Runs one step; returns what it added to which request. Empty when idle."""
        deltas = self._stepper.step()
        if self.config.check_invariants:
            self.audit()
        return deltas

    def end_expired_pins(self) -> float:
        """Ends the pins whose time is over; returns the seconds until the next one's will be (or inf)."""
        try:
            return self._stepper.guard(self.prefix_cache.end_expired_pins) - self._clock()
        except Exception:  # a pin that lasts a little longer costs no request its answer
            return PIN_RETRY_SECONDS

    def _settle(self, request: Request, keeps: bool) -> None:
        """Records what a request that has ended leaves: its statistics, tokens and reply."""
        siblings = self._requests.get(request.request_id)
        if siblings is not None and all(other.phase is Phase.FINISHED for other in siblings):
            del self._requests[request.request_id]
        self._totals.end(request)
        if request.admitted_before and not request.is_probe:
            self._traffic.add(request)
        if keeps:
            self._remember_reply(request)

    def _remember_reply(self, request: Request) -> None:
        """So that the next turn begins with these tokens."""
        if request.conversation:
            self.remember_reply(
                request.conversation,
                request.num_prompt_tokens,
                request.token_ids,
                request.output.text,
                request.namespace,
            )

    def remember_reply(
        self, conversation: str, num_prompt_tokens: int, token_ids: Sequence[int], text: str, namespace: str
    ) -> None:
        """Lets the next turn of a conversation begin with these tokens, its prompt and its reply; not if the reply's
        text was cut (a stop string, half a character). Safe on any thread.

        namespace: as `RequestFactory.namespace` writes it.
        """
        kept = array("i", token_ids)
        while len(kept) > num_prompt_tokens and kept[-1] in self.tokenizer.eos_ids:
            kept.pop()
        said = kept[num_prompt_tokens:]
        is_plain = self.tokenizer.decode(said) == text
        if is_plain or self.tokenizer.shows_marks(said, text):
            self._replies.remember(conversation, text, kept, namespace, has_marks=not is_plain)

    # -- state -------------------------------------------------------------------------------------------------

    def statistics(self) -> EngineStatistics:
        """State and counters now."""
        counted = self._count()
        return counted if self._counted_before is None else counted.since(self._counted_before)

    def reset_statistics(self) -> None:
        """All counters begin at zero, and no traffic has been seen: as if nothing had been asked before."""
        if self.prefix_cache.tiers is not None:
            self.prefix_cache.tiers.settle()
        self._counted_before = self._count()
        self._traffic.clear()

    def _count(self) -> EngineStatistics:
        """With counters since the engine was made."""
        pool, tree = self.prefix_cache.pool, self.prefix_cache.tree
        num_finished, tokens = self._totals.read()
        num_waiting_tokens, running_adapters, waiting_adapters = self._totals.waiting()
        tiers = self.prefix_cache.tiers
        lower = TierStatistics() if tiers is None else tiers.statistics()
        events = EventStatistics() if self.prefix_cache.events is None else self.prefix_cache.events.statistics()
        return EngineStatistics(
            num_running=len(self._scheduler.running),
            num_waiting=self._scheduler.num_waiting,
            num_blocks=pool.num_blocks,
            block_size=self.config.block_size,
            num_free_blocks=pool.num_free,
            num_cached_blocks=tree.num_cached_blocks,
            num_evictable_blocks=tree.num_evictable_blocks,
            num_pinned_blocks=tree.num_pinned_blocks,
            num_steps=self._stepper.num_steps,
            num_ahead=self._stepper.num_ahead,
            num_forwards=self._runner.num_forwards,
            num_computed_tokens=self._runner.num_computed_tokens,
            num_preemptions=self._scheduler.num_preemptions,
            num_pins_given_up=self._scheduler.num_pins_given_up,
            num_finished=num_finished,
            num_recoveries=self._stepper.num_recoveries,
            num_failed=self._stepper.num_failed,
            **tokens,
            num_stored_blocks=lower.num_stored,
            num_loaded_blocks=lower.num_loaded,
            num_unstored_blocks=lower.num_dropped,
            num_tier_faults=lower.num_faults,
            num_evicted_blocks=self.prefix_cache.num_evicted_blocks,
            num_event_batches=events.num_batches,
            num_dropped_event_batches=events.num_dropped,
            host_bytes=lower.host_bytes,
            disk_bytes=lower.disk_bytes,
            shared_bytes=lower.shared_bytes,
            num_waiting_tokens=num_waiting_tokens,
            running_adapters=running_adapters,
            waiting_adapters=waiting_adapters,
        )

    def kept_bytes(self) -> KeptBytes:
        """What is remembered besides KV. Safe on any thread."""
        return KeptBytes(
            replies=self._replies.num_bytes,
            traffic=self._traffic.num_bytes,
            constraints=self.compiler.num_cached_bytes,
            sampling_tables=self._sampler.num_table_bytes,
            prompt_scores=self.prefix_cache.num_score_bytes,
        )

    def cache_state(self, *, shows_tree: bool = True) -> tuple[CacheReport, list[Visit]]:
        """The cache at this moment, and the recent traffic that `what_if` is about."""
        statistics, tree = self.statistics(), self.prefix_cache.tree
        visits = self._traffic.visits()
        report = CacheReport(
            block_size=self.config.block_size,
            eviction_policy=self.config.eviction_policy,
            num_blocks=statistics.num_blocks,
            num_free_blocks=statistics.num_free_blocks,
            num_evictable_blocks=statistics.num_evictable_blocks,
            num_leased_blocks=tree.num_leased_blocks,
            num_pinned_blocks=statistics.num_pinned_blocks,
            num_held_blocks=statistics.num_held_blocks,
            prompt_tokens=statistics.prompt_tokens,
            cached_tokens=statistics.cached_tokens,
            num_evicted_blocks=statistics.num_evicted_blocks,
            num_recorded_requests=len(visits),
            recorded_hit_rate=self._traffic.hit_rate,
            tree=tree.draw(label=self._label) if shows_tree else None,
            loaded_tokens=statistics.loaded_tokens,
            num_stored_blocks=statistics.num_stored_blocks,
            host_bytes=statistics.host_bytes,
            disk_bytes=statistics.disk_bytes,
        )
        return report, visits

    def _label(self, token_ids: list[int]) -> str:
        """The beginning of a run, as the drawn tree shows it."""
        return repr(self.tokenizer.decode([token_id for token_id in token_ids if token_id >= 0]))

    def flush_cache(self) -> int:
        """Drops every cached prefix that no running request and no pin holds, and all host memory below the pool;
        returns the number of blocks freed. What is on a disk stays there, as it does when the process ends.
        """
        return self._stepper.guard(self.prefix_cache.flush)

    def audit(self) -> None:
        """Raises AssertionError if a block is lost or held twice."""
        self.prefix_cache.audit(self._scheduler.requests)

    def close(self) -> None:
        """Aborts what runs and drops the cache; `add` raises `EngineStopped` from now on."""
        if self._closed:
            return
        self._closed = True
        for request_id in list(self._requests):
            self.abort(request_id)
        self.prefix_cache.flush(pinned=True)
        self.prefix_cache.close()
        self._traffic.clear()


def _state_store(config: EngineConfig, num_slots: int) -> StateStore:
    return StateStore(num_slots, config.block_size, interval=config.state_interval, keeps=config.prefix_cache)
