"""The engine's core: requests in, deltas out, one step at a time.

::

    batch  = scheduler.plan()              who runs, how many tokens each, which blocks
    logits = runner.forward(batch)         one ragged forward
    choice = sampler.choose(logits, batch)
    deltas = _commit(batch, choice)        advance cursors, verify drafts, extend leases, finish, release

Single-threaded: `enqueue`, `step` and `abort` belong to one thread. `prepare` (tokenising, compiling a constraint) only
reads and may run on any thread. `Engine` puts whole answers on top of it, `AsyncEngine` a thread and streams.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..errors import EngineStopped, QueueFull, RequestError
from ..fsm import Compiler
from ..radix import PinBudgetExceeded, Visit
from .batch import Batch, Extend
from .cache_explanation import explain_to_caller
from .cache_report import CacheReport
from .config import EngineConfig
from .constraint_spec import ConstraintSpec
from .draft import adapt, guess, num_accepted, propose
from .intake import Intake, Prompt
from .loading import LoadedModel, allocate_pool
from .model_runner import ModelRunner
from .prefix_cache import PrefixCache
from .reply_memory import Conversation, ReplyMemory
from .request import Delta, FinishReason, Phase, Request, SamplingParams
from .sampler import Choice, Sampler
from .scheduler import Scheduler
from .statistics import EngineStatistics, Totals
from .stopping import append_decided
from .traffic_record import TrafficRecord


class EngineCore:
    """A model, its tokenizer, its KV pool and its queue.

    Attributes:
        config, model_config, tokenizer, compiler, intake: read-only; safe to use from any thread.
    """

    def __init__(self, config: EngineConfig, loaded: LoadedModel, clock: Callable[[], float] = time.monotonic) -> None:
        model = loaded.decoder.config
        kv_cache = allocate_pool(config, loaded)
        self.config = config
        self.model_config = model
        self.tokenizer = loaded.tokenizer
        self.compiler = Compiler(loaded.tokenizer.vocabulary())
        self.max_model_len = min(config.max_model_len or model.max_position_embeddings, model.max_position_embeddings)
        self.prefix_cache = PrefixCache(
            num_blocks=kv_cache.num_blocks,
            block_size=config.block_size,
            kv_cache=kv_cache,
            enabled=config.prefix_cache,
            eviction_policy=config.eviction_policy,
            explain_namespaces=config.explain_namespaces,
            max_pinned_blocks=(
                kv_cache.num_blocks // 4 if config.max_pinned_blocks is None else config.max_pinned_blocks
            ),
        )
        self.intake = Intake(
            config,
            loaded.tokenizer,
            self.compiler,
            max_model_len=self.max_model_len,
            pool_len=kv_cache.num_blocks * config.block_size,
            vocab_size=model.vocab_size,
        )
        self._scheduler = Scheduler(
            self.prefix_cache,
            max_batch_tokens=config.max_batch_tokens,
            max_running_requests=config.max_running_requests,
            max_overtakes=config.max_overtakes,
            max_wait_seconds=config.max_wait_seconds,
            clock=clock,
        )
        self._runner = ModelRunner(loaded.decoder, kv_cache, loaded.device)
        self._sampler = Sampler(model.vocab_size, tuple(loaded.tokenizer.eos_ids), loaded.device)
        self._replies = ReplyMemory()
        self._requests: dict[str, list[Request]] = {}
        self._totals = Totals()
        self._traffic = TrafficRecord()
        self._num_steps = 0
        self._closed = False

    # -- requests ----------------------------------------------------------------------------------------------

    def prepare(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        *,
        namespace: str = "",
        priority: int = 0,
        request_id: str | None = None,
        pin_ttl: float = 0.0,
        conversation: str = "",
        explain_cache: bool = False,
        deadline_seconds: float | None = None,
    ) -> list[Request]:
        """Tokenises, compiles and checks; returns `sampling.n` requests for `enqueue`. Safe on any thread.

        `max_tokens` is cut to what the context and the pool can hold. With `pin_ttl` the prompt stays cached for so
        many seconds once it is computed, as far as the budget of pins reaches (`usage.pinned_tokens` tells).
        `conversation` is that of `encode_chat`. With `explain_cache`, `usage.cache_explanation` says where the
        longest cached prefix of the prompt ended and why. Still waiting after `deadline_seconds`, the request fails
        with `DeadlineExceeded`.

        Raises:
            RequestError: empty prompt, ids out of the vocabulary, unknown constraint …
            PromptTooLong: the prompt leaves no room for a token; the message has the numbers.
            ConstraintError: the constraint cannot be enforced, or not within `max_tokens`.
        """
        return self.intake.prepare(
            prompt,
            sampling or SamplingParams(),
            constraint,
            namespace=namespace,
            priority=priority,
            request_id=request_id,
            pin_ttl=pin_ttl,
            conversation=conversation,
            explain_cache=explain_cache,
            deadline_seconds=deadline_seconds,
        )

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], *, namespace: str = "", **options: Any
    ) -> Conversation:
        """A conversation as a prompt; replies of this engine are the very tokens it generated. Safe on any thread.

        Give `Conversation.text` to `add` as `conversation`, so that the reply is remembered in turn. `options` are
        those of `ChatTemplate.render`.
        """
        pieces = self.tokenizer.chat_template.render(messages, **options)
        return self._replies.encode(self.tokenizer, pieces, messages, namespace)

    def enqueue(self, requests: list[Request]) -> str:
        """Puts prepared requests into the queue; returns their common id."""
        if self._closed:
            raise EngineStopped("the engine is closed")
        request_id = requests[0].id
        if request_id in self._requests:
            raise RequestError(f"request_id: {request_id!r} is in use", param="request_id")
        if self._scheduler.num_waiting + len(requests) > self.config.max_waiting_requests:
            raise QueueFull(f"{self._scheduler.num_waiting} requests are waiting; try again later")
        self._requests[request_id] = list(requests)
        for request in requests:
            self._draft(request)
            self._scheduler.add(request)
        return request_id

    def add(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        *,
        namespace: str = "",
        priority: int = 0,
        request_id: str | None = None,
        pin_ttl: float = 0.0,
        conversation: str = "",
        explain_cache: bool = False,
        deadline_seconds: float | None = None,
    ) -> str:
        """`prepare` and `enqueue`; returns the request's id, under which `step` reports."""
        return self.enqueue(
            self.prepare(
                prompt,
                sampling,
                constraint,
                namespace=namespace,
                priority=priority,
                request_id=request_id,
                pin_ttl=pin_ttl,
                conversation=conversation,
                explain_cache=explain_cache,
                deadline_seconds=deadline_seconds,
            )
        )

    def abort(self, request_id: str) -> bool:
        """Ends a request at once; its blocks are free on return. False if it is unknown or finished."""
        requests = self._requests.pop(request_id, None)
        if requests is None:
            return False
        for request in requests:
            if request.phase is not Phase.FINISHED:
                self._close_request(request, FinishReason.ABORT)
        return True

    # -- the step ----------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def step(self) -> list[Delta]:
        """Runs one step; returns what it added to which request. Empty when idle.

        Whatever fails is charged to one request: it ends with an error, all others go on as if nothing had happened.
        """
        batch = self._scheduler.plan()
        deltas = [self._fail(request, _cause("planning", error)) for request, error in self._scheduler.take_failed()]
        if batch is not None:
            self._num_steps += 1
            deltas += self._commit(batch, self._compute(batch))
        if self.config.check_invariants:
            self.audit()
        return deltas

    def _compute(self, batch: Batch) -> list[Choice]:
        """One forward and its choices. If that fails, each request is computed alone, so that it fails alone."""
        try:
            return self._sampler.choose(self._runner.forward(batch), batch)
        except Exception:
            choices: list[Choice] = []
            for extend in batch.extends:
                alone = Batch.from_extends([extend], self.prefix_cache.block_size)
                try:
                    choices += self._sampler.choose(self._runner.forward(alone), alone)
                except Exception as error:
                    choices.append(Choice(error=_cause("the step", error)))
            return choices

    def _commit(self, batch: Batch, choices: list[Choice]) -> list[Delta]:
        deltas = []
        for extend, choice in zip(batch.extends, choices, strict=True):
            try:
                delta = self._commit_extend(extend, choice)
            except Exception as error:
                delta = self._fail(extend.request, _cause("the request", error))
            if delta is not None:
                deltas.append(delta)
        return deltas

    def _commit_extend(self, extend: Extend, choice: Choice) -> Delta | None:
        """Moves the request's ranges on; returns its delta if the step decided a token (or scored the prompt)."""
        request = extend.request
        request.usage.num_steps += 1
        if choice.error is not None:
            return self._fail(request, choice.error)
        request.prompt_logprobs += choice.prompt_logprobs
        request.num_computed_tokens = extend.start + extend.num_tokens
        if choice.is_postponed:  # the last token is computed once more, for its logits
            request.num_computed_tokens -= 1
        if choice.is_postponed or not extend.reaches_end:
            self.prefix_cache.commit(request)
            return None
        was_prefill = extend.start < request.num_prompt_tokens
        accepted = num_accepted(extend.draft, choice.token_ids)
        first_output = request.num_tokens
        request.usage.drafted_tokens += len(extend.draft)
        adapt(request, len(extend.draft), accepted)
        reason = append_decided(request, choice.token_ids[: accepted + 1], self.tokenizer.eos_ids)
        num_new = request.num_tokens - first_output
        # The KV of accepted drafts is written; of the last token it is not.
        request.num_computed_tokens = request.num_tokens - 1 if num_new else request.num_tokens
        request.usage.jumped_tokens += max(0, num_new - 1)
        request.logprobs += choice.logprobs[:num_new]
        if request.cursor is not None and self.config.jump == "verified":
            request.cursor.remember(num_new)
        if reason is not None:
            request.output.finish()
            self._close_request(request, reason)
            return self._delta(request)
        if was_prefill:
            self.prefix_cache.commit(request)
            self._pin_prompt(request)
        self.prefix_cache.shrink(request, request.num_tokens)
        self._draft(request)
        return self._delta(request)

    def _draft(self, request: Request) -> None:
        """Proposes forced and likely text for the next step; in canonical mode takes forced text at once, unseen.

        Stop strings, `min_tokens` and log-probabilities need every token decided, so they go the verified way.
        """
        mode = self.config.jump
        if mode == "off":
            return
        if mode == "verified":
            request.draft = guess(request, self.config.max_draft_tokens)
            return
        request.draft = propose(request, self.config.max_draft_tokens)
        sampling = request.sampling
        if sampling.stop or sampling.min_tokens or sampling.logprobs is not None:
            return
        draft, request.draft = request.draft, []
        for index, token_id in enumerate(draft):
            cursor = request.cursor
            assert cursor is not None and cursor.advance(token_id), "a draft broke its constraint"
            if cursor.must_stop:  # the last token is left to be decided, since deciding is what ends a request
                cursor.rollback(1)
                request.draft = draft[index:]
                break
            request.token_ids.append(token_id)
            request.output.push(token_id)
            request.usage.completion_tokens += 1
            request.usage.drafted_tokens += 1
            request.usage.jumped_tokens += 1

    # -- endings -----------------------------------------------------------------------------------------------

    def _fail(self, request: Request, error: RequestError) -> Delta:
        self._close_request(request, FinishReason.ERROR, keep=False)
        return Delta(request.id, request.index, "", (), FinishReason.ERROR, request.usage, error=error)

    def _close_request(self, request: Request, reason: FinishReason, *, keep: bool = True) -> None:
        if request.phase is Phase.FINISHED:
            return
        request.finish_reason = reason
        request.draft = []
        request.cursor = None  # a constraint is kept alive by those who still need it
        self._scheduler.remove(request, keep=keep)
        if keep:
            self._pin_prompt(request)
            self._remember_reply(request)
        self._totals.add(request.usage)
        if request.admitted_before:
            self._traffic.add(request)
        siblings = self._requests.get(request.id)
        if siblings is not None and all(other.phase is Phase.FINISHED for other in siblings):
            del self._requests[request.id]

    def _remember_reply(self, request: Request) -> None:
        """So that the next turn begins with these tokens; not if the text was cut (a stop string, half a character)."""
        if request.conversation:
            token_ids = list(request.token_ids)
            while len(token_ids) > request.num_prompt_tokens and token_ids[-1] in self.tokenizer.eos_ids:
                token_ids.pop()
            if self.tokenizer.decode(token_ids[request.num_prompt_tokens :]) == request.output.text:
                self._replies.remember(request.conversation, request.output.text, token_ids, request.namespace)

    def _pin_prompt(self, request: Request) -> None:
        """Pins what is computed of the prompt, if the request wants that; beyond the budget of pins it is let go."""
        ttl, request.pin_ttl = request.pin_ttl, 0.0
        if ttl > 0:
            with suppress(PinBudgetExceeded):
                prompt = request.token_ids[: request.num_prompt_tokens]
                request.usage.pinned_tokens = self.prefix_cache.pin(prompt, ttl, request.namespace).num_tokens

    def _delta(self, request: Request) -> Delta:
        """What was not reported yet."""
        if request.explain_cache and request.usage.cache_explanation is None:
            request.usage.cache_explanation = explain_to_caller(
                request.found,
                request.token_ids[: request.num_prompt_tokens],
                request.usage.cached_tokens,
                self.tokenizer.decode,
            )
        first = request.num_delivered
        request.num_delivered = request.num_output_tokens
        return Delta(
            request.id,
            request.index,
            request.output.take(),
            tuple(request.token_ids[request.num_prompt_tokens + first :]),
            request.finish_reason,
            request.usage,
            tuple(request.logprobs[first:]),
            tuple(request.prompt_logprobs) if request.finish_reason is not None else (),
        )

    # -- state -------------------------------------------------------------------------------------------------

    def statistics(self) -> EngineStatistics:
        pool, tree = self.prefix_cache.pool, self.prefix_cache.tree
        usage = self._totals.usage
        return EngineStatistics(
            num_running=len(self._scheduler.running),
            num_waiting=self._scheduler.num_waiting,
            num_blocks=pool.num_blocks,
            num_free_blocks=pool.num_free,
            num_cached_blocks=tree.num_cached_blocks,
            num_evictable_blocks=tree.num_evictable_blocks,
            num_pinned_blocks=tree.num_pinned_blocks,
            num_steps=self._num_steps,
            num_forwards=self._runner.num_forwards,
            num_computed_tokens=self._runner.num_computed_tokens,
            num_preemptions=self._scheduler.num_preemptions,
            num_finished=self._totals.num_finished,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            drafted_tokens=usage.drafted_tokens,
            jumped_tokens=usage.jumped_tokens,
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
            num_evicted_blocks=tree.statistics.num_evicted_blocks,
            num_recorded_requests=len(visits),
            tree=tree.draw(label=self._label) if shows_tree else None,
        )
        return report, visits

    def _label(self, token_ids: list[int]) -> str:
        """The beginning of a run, as the drawn tree shows it."""
        return repr(self.tokenizer.decode([token_id for token_id in token_ids if token_id >= 0]))

    def flush_cache(self) -> int:
        """Drops every cached prefix that no running request and no pin holds; returns the number of blocks freed."""
        return self.prefix_cache.flush()

    def audit(self) -> None:
        """Raises AssertionError if a block is lost or held twice."""
        self.prefix_cache.audit(self._scheduler.requests())

    def close(self) -> None:
        """Aborts what runs and drops the cache; `add` raises `EngineStopped` from now on."""
        if self._closed:
            return
        self._closed = True
        for request_id in list(self._requests):
            self.abort(request_id)
        self.prefix_cache.flush(pinned=True)
        self._traffic.clear()


def _cause(what: str, error: Exception) -> RequestError:
    return error if isinstance(error, RequestError) else RequestError(f"{what} failed: {type(error).__name__}: {error}")
