"""The engine: requests in, deltas out, one step at a time.

::

    batch  = scheduler.plan()              who runs, how many tokens each, which blocks
    logits = runner.forward(batch)         one ragged forward
    choice = sampler.choose(logits, batch)
    deltas = _commit(batch, choice)        advance cursors, verify drafts, extend leases, finish, release

Single-threaded: `enqueue`, `step` and `abort` belong to one thread. `prepare` (tokenising, compiling a constraint)
only reads and may run on any thread. `AsyncEngine` puts a thread and streams around it.
"""

from __future__ import annotations

import itertools
import random
import secrets
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, overload

from ..errors import EngineStopped, PromptTooLong, QueueFull, RequestError
from ..fsm import Compiler, Constraint
from .batch import Batch, Extend
from .collector import Collector, scoring_params
from .config import EngineConfig
from .constraint_spec import ConstraintSpec
from .kv_cache import KVCache
from .loading import load, pool_size
from .model_runner import ModelRunner
from .output import OutputText
from .prefix_cache import PrefixCache
from .request import Completion, Delta, FinishReason, Phase, Request, SamplingParams, TokenLogprob
from .sampler import Choice, Sampler
from .scheduler import Scheduler

Prompt = str | Sequence[int]
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EngineStatistics:
    """Counters since start and the state of queue and pool."""

    num_running: int
    num_waiting: int
    num_blocks: int
    num_free_blocks: int
    num_cached_blocks: int
    num_evictable_blocks: int
    num_steps: int
    num_forwards: int
    num_computed_tokens: int
    num_preemptions: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    drafted_tokens: int
    jumped_tokens: int
    num_finished: int

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that came from the cache."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


class Engine:
    """A model, its tokenizer, its KV pool and its queue.

    Attributes:
        config, model_config, tokenizer, compiler: read-only; safe to read from any thread.
    """

    def __init__(self, model: str = "nano", **settings: Any) -> None:
        """Loads `model` and allocates the pool; `settings` are the fields of `EngineConfig`.

        Raises:
            ConfigError, ModelError: before anything large is allocated.
        """
        config = EngineConfig(model=model, **settings)
        loaded = load(config)
        self.config = config
        self.model_config = loaded.decoder.config
        self.tokenizer = loaded.tokenizer
        self.device = loaded.device
        self.compiler = Compiler(loaded.tokenizer.vocabulary())
        num_blocks = pool_size(config, self.model_config, loaded.dtype, loaded.device)
        kv_cache = KVCache(
            num_layers=self.model_config.num_layers,
            num_blocks=num_blocks,
            num_kv_heads=self.model_config.num_kv_heads,
            block_size=config.block_size,
            head_dim=self.model_config.head_dim,
            dtype=loaded.dtype,
            device=loaded.device,
        )
        self.prefix_cache = PrefixCache(
            num_blocks=num_blocks,
            block_size=config.block_size,
            kv_cache=kv_cache,
            enabled=config.prefix_cache,
            eviction_policy=config.eviction_policy,
        )
        self.max_model_len = min(
            config.max_model_len or self.model_config.max_position_embeddings,
            self.model_config.max_position_embeddings,
        )
        self._scheduler = Scheduler(
            self.prefix_cache,
            max_batch_tokens=config.max_batch_tokens,
            max_running_requests=config.max_running_requests,
            max_overtakes=config.max_overtakes,
        )
        self._runner = ModelRunner(loaded.decoder, kv_cache, loaded.device)
        self._sampler = Sampler(self.model_config.vocab_size, self.tokenizer.eos_ids, loaded.device)
        self._random = random.Random(config.seed if config.seed is not None else secrets.randbits(64))
        self._requests: dict[str, list[Request]] = {}
        self._ids = itertools.count()
        self._closed = False
        self._num_steps = 0
        self._num_finished = 0
        self._totals = [0, 0, 0, 0, 0]

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
    ) -> list[Request]:
        """Tokenises, compiles and checks; returns `sampling.n` requests for `enqueue`. Safe on any thread.

        `max_tokens` is cut to what the context and the pool can hold.

        Raises:
            RequestError: empty prompt, ids out of the vocabulary, unknown constraint …
            PromptTooLong: the prompt leaves no room for a token; the message has the numbers.
            ConstraintError: the constraint cannot be enforced, or not within `max_tokens`.
        """
        sampling = sampling or SamplingParams()
        token_ids = self._token_ids(prompt)
        max_tokens = self._budget(len(token_ids), sampling)
        compiled = self.compile(constraint) if constraint is not None else None
        if sampling.prompt_logprobs_from is not None and sampling.prompt_logprobs_from >= len(token_ids):
            raise RequestError(
                f"prompt_logprobs_from: {sampling.prompt_logprobs_from} is not inside the prompt of"
                f" {len(token_ids)} tokens",
                param="prompt_logprobs_from",
            )
        if request_id is None:
            request_id = f"request-{next(self._ids)}"
        seed = sampling.seed if sampling.seed is not None else self._random.getrandbits(63)
        requests = []
        for index in range(sampling.n):
            cursor = compiled.cursor() if compiled is not None else None
            if cursor is not None and index == 0 and cursor.min_tokens_to_accept() > max_tokens:
                raise RequestError(
                    f"max_tokens: {max_tokens} tokens cannot complete the constraint; it may need"
                    f" {cursor.min_tokens_to_accept()}",
                    param="max_tokens",
                )
            request = Request(
                id=request_id,
                index=index,
                token_ids=array("i", token_ids),
                num_prompt_tokens=len(token_ids),
                sampling=sampling,
                seed=_sample_seed(seed, index),
                output=OutputText(self.tokenizer.detokenizer(), sampling.stop),
                namespace=namespace,
                priority=priority,
                cursor=cursor,
                max_tokens=max_tokens,
            )
            request.usage.prompt_tokens = len(token_ids)
            requests.append(request)
        return requests

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
            self._start_constraint(request)
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
    ) -> str:
        """`prepare` and `enqueue`; returns the request's id, under which `step` reports."""
        return self.enqueue(
            self.prepare(prompt, sampling, constraint, namespace=namespace, priority=priority, request_id=request_id)
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

    def compile(self, spec: ConstraintSpec) -> Constraint:
        """The constraint for this tokenizer, from the compiler's cache if it was seen before. Safe on any thread."""
        compiler = self.compiler
        if spec.kind == "json_schema":
            assert isinstance(spec.source, str)
            return compiler.json_schema(spec.source, whitespace=spec.whitespace)
        if spec.kind == "json_object":
            return compiler.json_object(whitespace=spec.whitespace)
        if spec.kind == "choice":
            return compiler.choice(spec.source)
        assert isinstance(spec.source, str)
        return compiler.regex(spec.source) if spec.kind == "regex" else compiler.grammar(spec.source)

    # -- the step ----------------------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return self._scheduler.has_work

    def step(self) -> list[Delta]:
        """Runs one step; returns what it added to which request. Empty when idle.

        A failure of the forward ends the requests of this batch with an error and leaves all others in place.
        """
        batch = self._scheduler.plan()
        if batch is None:
            return []
        self._num_steps += 1
        try:
            logits = self._runner.forward(batch)
            choices = self._sampler.choose(logits, batch)
        except Exception as error:
            cause = RequestError(f"the step failed: {type(error).__name__}: {error}")
            deltas = [self._fail(extend.request, cause) for extend in batch.extends]
        else:
            deltas = self._commit(batch, choices)
        if self.config.check_invariants:
            self.audit()
        return deltas

    def _commit(self, batch: Batch, choices: list[Choice]) -> list[Delta]:
        deltas = []
        for extend, choice in zip(batch.extends, choices, strict=True):
            try:
                delta = self._commit_extend(extend, choice)
            except Exception as error:
                cause = RequestError(f"the request failed: {type(error).__name__}: {error}")
                delta = self._fail(extend.request, error if isinstance(error, RequestError) else cause)
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
        if not extend.reaches_end:
            self.prefix_cache.commit(request)
            return None
        was_prefill = extend.start < request.num_prompt_tokens
        accepted = _accepted(extend.draft, choice.token_ids)
        first_output = request.num_tokens
        reason = self._append(request, choice.token_ids[: accepted + 1], extend)
        num_new = request.num_tokens - first_output
        # The KV of accepted drafts is written; of the last token it is not.
        request.num_computed_tokens = request.num_tokens - 1 if num_new else request.num_tokens
        request.usage.jumped_tokens += max(0, num_new - 1)
        request.logprobs += choice.logprobs[:num_new]
        if reason is not None:
            request.output.finish()
            self._close_request(request, reason)
            return self._delta(request)
        if was_prefill:
            self.prefix_cache.commit(request)
        self.prefix_cache.shrink(request, request.num_tokens)
        self._draft(request)
        return self._delta(request)

    def _append(self, request: Request, token_ids: list[int], extend: Extend) -> FinishReason | None:
        """Adds decided tokens one by one until the request ends; returns why it ended."""
        request.usage.drafted_tokens += len(extend.draft)
        if request.max_tokens == 0:
            return FinishReason.LENGTH
        for token_id in token_ids:
            reason = self._append_token(request, token_id)
            if reason is not None:
                return reason
        return None

    def _append_token(self, request: Request, token_id: int) -> FinishReason | None:
        sampling = request.sampling
        cursor = request.cursor
        if cursor is not None and not cursor.advance(token_id):
            raise RequestError(f"token {token_id} was sampled against the constraint")
        request.token_ids.append(token_id)
        request.usage.completion_tokens += 1
        past_minimum = request.num_output_tokens > sampling.min_tokens
        ends = token_id in self.tokenizer.eos_ids and not sampling.ignore_eos
        if (ends or token_id in sampling.stop_token_ids) and past_minimum:
            return FinishReason.STOP
        if cursor is not None and cursor.is_finished:
            return FinishReason.STOP
        if request.output.push(token_id, check_stop=past_minimum):
            return FinishReason.STOP
        if cursor is not None and cursor.must_stop:
            return FinishReason.STOP
        if request.remaining_tokens <= 0:
            complete = cursor is not None and cursor.is_accepting
            return FinishReason.STOP if complete else FinishReason.LENGTH
        return None

    def _start_constraint(self, request: Request) -> None:
        """Forced text may open the output: it is drafted before the first token is sampled."""
        if request.cursor is not None and request.max_tokens > 0:
            self._draft(request)

    def _draft(self, request: Request) -> None:
        """Proposes forced text; in canonical mode takes it at once."""
        request.draft = []
        cursor = request.cursor
        mode = self.config.jump
        if cursor is None or mode == "off":
            return
        limit = min(self.config.max_draft_tokens, request.remaining_tokens - 1)
        draft = cursor.draft()[: max(0, limit)]
        if mode == "verified" or request.sampling.logprobs is not None or request.sampling.min_tokens:
            request.draft = draft
            return
        for token_id in draft:
            # Forced text neither ends the request nor exceeds its budget, so nothing but stop strings can end it;
            # those are left to the verified path.
            if request.sampling.stop or not cursor.advance(token_id):
                request.draft = []
                return
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
        request.finish_reason = reason
        request.draft = []
        self._scheduler.remove(request, keep=keep)
        self._num_finished += 1
        usage = request.usage
        counts = (
            usage.prompt_tokens,
            usage.cached_tokens,
            usage.completion_tokens,
            usage.drafted_tokens,
            usage.jumped_tokens,
        )
        self._totals = [total + count for total, count in zip(self._totals, counts, strict=True)]
        siblings = self._requests.get(request.id)
        if siblings is not None and all(other.phase is Phase.FINISHED for other in siblings):
            del self._requests[request.id]

    def _delta(self, request: Request) -> Delta:
        """What was not reported yet."""
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

    # -- whole answers -----------------------------------------------------------------------------------------

    @overload
    def generate(
        self,
        prompts: str,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Any,
    ) -> Completion: ...

    @overload
    def generate(
        self,
        prompts: Sequence[str] | Sequence[int] | Sequence[Sequence[int]],
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Any,
    ) -> Any: ...

    def generate(
        self,
        prompts: str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]],
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Any,
    ) -> Any:
        """Runs one prompt (text or ids) to its `Completion`, or a list of prompts to a list of them.

        With `sampling.n > 1` every prompt yields n completions, flattened in order. `options` are those of `add`.
        A request that fails raises its error; the others of the call are aborted.
        """
        sampling = sampling or SamplingParams()
        single = isinstance(prompts, str) or (len(prompts) > 0 and isinstance(prompts[0], int))
        batch: list[Prompt] = [prompts] if single else list(prompts)  # type: ignore[list-item]
        prepared = [self.prepare(prompt, sampling, constraint, **options) for prompt in batch]
        completions = self._run(prepared, constraint)
        return completions[0] if single and sampling.n == 1 else completions

    def _run(self, prepared: list[list[Request]], constraint: ConstraintSpec | None) -> list[Completion]:
        """Enqueues as the queue has room, steps until all are done, keeps order."""
        collectors = {requests[0].id: Collector(len(requests), constraint) for requests in prepared}
        pending = list(reversed(prepared))
        unfinished = set(collectors)
        try:
            while unfinished:
                room = self.config.max_waiting_requests - self._scheduler.num_waiting
                while pending and len(pending[-1]) <= room:
                    room -= len(pending[-1])
                    self.enqueue(pending.pop())
                for delta in self.step():
                    collector = collectors.get(delta.request_id)
                    if collector is not None and collector.push(delta):
                        unfinished.discard(delta.request_id)
            return [completion for collector in collectors.values() for completion in collector.completions()]
        finally:
            for request_id in unfinished:
                self.abort(request_id)

    def stream(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Any,
    ) -> Iterator[Delta]:
        """Yields one request's deltas as they come; closing the iterator aborts it. An error delta raises."""
        request_id = self.add(prompt, sampling, constraint, **options)
        num_open = sampling.n if sampling else 1
        try:
            while num_open:
                for delta in self.step():
                    if delta.request_id != request_id:
                        continue
                    if delta.error is not None:
                        raise delta.error
                    num_open -= delta.finish_reason is not None
                    yield delta
        finally:
            self.abort(request_id)

    def chat(
        self,
        messages: Sequence[Message],
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Any,
    ) -> Any:
        """`generate` on the model's chat template; `messages` are `{"role": …, "content": …}`."""
        return self.generate(self.tokenizer.apply_chat_template(messages), sampling, constraint, **options)

    def score(
        self, prompt: Prompt, continuations: Sequence[Sequence[int]], *, namespace: str = ""
    ) -> list[list[TokenLogprob]]:
        """Log-probability of every token of each continuation of the prompt; the prompt is computed once."""
        prefix = self._token_ids(prompt)
        prepared = [
            self.prepare([*prefix, *continuation], scoring_params(len(prefix)), namespace=namespace)
            for continuation in continuations
        ]
        return [list(completion.prompt_logprobs) for completion in self._run(prepared, None)]

    # -- state -------------------------------------------------------------------------------------------------

    def statistics(self) -> EngineStatistics:
        pool, tree = self.prefix_cache.pool, self.prefix_cache.tree
        prompt, cached, completion, drafted, jumped = self._totals
        return EngineStatistics(
            num_running=len(self._scheduler.running),
            num_waiting=self._scheduler.num_waiting,
            num_blocks=pool.num_blocks,
            num_free_blocks=pool.num_free,
            num_cached_blocks=tree.num_cached_blocks,
            num_evictable_blocks=tree.num_evictable_blocks,
            num_steps=self._num_steps,
            num_forwards=self._runner.num_forwards,
            num_computed_tokens=self._runner.num_computed_tokens,
            num_preemptions=self._scheduler.num_preemptions,
            prompt_tokens=prompt,
            cached_tokens=cached,
            completion_tokens=completion,
            drafted_tokens=drafted,
            jumped_tokens=jumped,
            num_finished=self._num_finished,
        )

    def cache_report(self) -> str:
        """Occupancy, hit rate and the tree, as text."""
        now = self.statistics()
        held = now.num_blocks - now.num_free_blocks - now.num_cached_blocks
        return (
            f"{now.num_blocks} blocks of {self.config.block_size} tokens: {now.num_free_blocks} free,"
            f" {now.num_cached_blocks} in the tree ({now.num_evictable_blocks} evictable), {held} held by requests\n"
            f"prompt tokens from the cache: {now.cached_tokens} of {now.prompt_tokens} ({now.hit_rate:.1%})\n"
            f"{self.prefix_cache.tree.draw()}"
        )

    def flush_cache(self) -> int:
        """Drops every cached prefix that no running request holds; returns the number of blocks freed."""
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
        self.flush_cache()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- checks ------------------------------------------------------------------------------------------------

    def _token_ids(self, prompt: Prompt) -> list[int]:
        if isinstance(prompt, str):
            token_ids = self.tokenizer.encode(prompt)
            if self.tokenizer.bos_id is not None and self.tokenizer.adds_bos:
                token_ids = [self.tokenizer.bos_id, *token_ids]
        else:
            token_ids = list(prompt)
            size = self.model_config.vocab_size
            for position, token_id in enumerate(token_ids):
                if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < size:
                    raise RequestError(
                        f"prompt: {token_id!r} at position {position} is not a token id in [0, {size})",
                        param="prompt",
                    )
        if not token_ids:
            raise RequestError("prompt: it is empty; give at least one token", param="prompt")
        return token_ids

    def _budget(self, prompt_len: int, sampling: SamplingParams) -> int:
        """`max_tokens`, cut to the context and to the pool."""
        pool_len = self.prefix_cache.pool.num_blocks * self.config.block_size
        room = min(self.max_model_len, pool_len) - prompt_len
        needed = 0 if sampling.max_tokens == 0 else 1
        if room < needed:
            limit = (
                f"the context of {self.max_model_len} tokens"
                if self.max_model_len <= pool_len
                else f"the KV pool of {self.prefix_cache.pool.num_blocks} blocks x {self.config.block_size}"
                f" = {pool_len} tokens"
            )
            raise PromptTooLong(
                f"prompt: {prompt_len} tokens do not fit {limit} with room for an answer; shorten the prompt",
                param="prompt",
            )
        return room if sampling.max_tokens is None else min(sampling.max_tokens, room)


def _accepted(draft: list[int], token_ids: list[int]) -> int:
    """How many drafted tokens were decided the same."""
    for count, (drafted, decided) in enumerate(zip(draft, token_ids, strict=False)):
        if drafted != decided:
            return count
    return min(len(draft), max(0, len(token_ids) - 1))


def _sample_seed(seed: int, index: int) -> int:
    """A 63-bit seed for output `index`; output 0 keeps the seed's low bits. Spacing: the 64-bit golden ratio."""
    return (seed + index * 0x9E3779B97F4A7C15) & (2**63 - 1)
