"""The engine as a caller sees it: whole answers, streams, chats, scores and vectors.

A request is tokenised, compiled and checked on its caller's thread (`RequestFactory`); one thread steps the core for
all callers (`StepThread`), and each gets the deltas of its own requests (`Stream`; `AsyncStream` for coroutines)::

    generate, stream, chat, score, embed ──► submit ──► StepThread ──► EngineCore
                                    Stream ◄────────────────┘

So a call only waits: threads may share an engine, Ctrl-C ends the call and aborts its requests, and nothing else. What
is called after `close`, or waits then, gets `EngineStopped`, as it does if the step thread has died, and in a forked
process. A call that would have to wait is refused on the step thread itself. An engine that is no longer referred to
ends its thread, and every engine does when the interpreter exits. Knows no tensors and no blocks.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Self, Unpack, cast, overload

from ...errors import ConfigError, EngineStopped, RequestError
from ...radix import Pin
from ..cache.cache_report import CacheReport, what_if
from ..cache.reply_memory import ChatPrompt
from ..config import EngineConfig, EngineSettings
from ..constrain.spec import ConstraintSpec
from ..execute.loading import LoadedModel, load
from ..option_types import check_seconds
from ..readout import Rows
from ..request import Completion, Delta, Request, RequestOptions, SamplingParams, TokenLogprob
from .chats import ChatOptions, Message
from .collector import scoring_params
from .engine_core import EngineCore
from .prompts import Prompt, for_each, is_one_prompt
from .statistics import EngineStatistics
from .step_thread import StepThread
from .stream import Stream
from .vectors import READ


class Engine:
    """A model that answers. Use it as a context manager, or `close` it. All of it is safe on any thread.

    Attributes:
        core: what the step thread steps; other threads may use of it what says so. Where no call is under way, a
            measurement may step it instead.
        step_thread: for what has to be done between two steps.
        adapters: which adapters requests may choose; `load` and `unload` them while steps go on.
        config, model_config, tokenizer, compiler, request_factory, prefix_cache, max_model_len, vectors: those of the
            core, read-only.
    """

    def __init__(self, model: str = "nano", **settings: Unpack[EngineSettings]) -> None:
        """Loads `model` and allocates the pool; `settings` are the other fields of `EngineConfig`.

        Raises:
            ConfigError, ModelError: before anything large is allocated.
        """
        core = _make_core(*_load_by_name(model, settings))
        self._begin(core, StepThread(core))

    @classmethod
    def from_loaded(
        cls,
        config: EngineConfig,
        loaded: LoadedModel,
        clock: Callable[[], float] = time.monotonic,
        stopwatch: Callable[[], float] | None = None,
    ) -> Self:
        """An engine on a model that is in memory already; see `EngineCore` for the arguments."""
        engine = cls.__new__(cls)
        core = _make_core(config, loaded, clock, stopwatch)
        engine._begin(core, StepThread(core))
        return engine

    def _begin(self, core: EngineCore, step_thread: StepThread) -> None:
        self.core = core
        self.step_thread = step_thread
        self.config = core.config
        self.model_config = core.model_config
        self.tokenizer = core.tokenizer
        self.compiler = core.compiler
        self.request_factory = core.request_factory
        self.adapters = core.adapters
        self.prefix_cache = core.prefix_cache
        self.max_model_len = core.max_model_len
        self.vectors = core.vectors
        # Not waiting: garbage may be collected anywhere. At exit the thread itself sees to its end.
        weakref.finalize(self, StepThread.stop, self.step_thread, waits=False).atexit = False

    # -- requests ----------------------------------------------------------------------------------------------

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
        `n > 1` a prompt yields n completions and the result is always a list, in order. `options`: `RequestOptions`. A
        request that fails raises its error; the others of the call are aborted.

        Raises:
            RequestError: among others, a list that is not as long as that of the prompts.
        """
        is_one = is_one_prompt(prompts)
        batch = [cast(Prompt, prompts)] if is_one else cast(Sequence[Prompt], prompts)
        samplings = for_each(batch, SamplingParams() if sampling is None else sampling, "sampling", is_one=is_one)
        constraints = for_each(batch, constraint, "constraint", is_one=is_one)
        prepared = [
            self.core.prepare(prompt, params, wanted, **options)
            for prompt, params, wanted in zip(batch, samplings, constraints, strict=True)
        ]
        completions = self._run(prepared, constraints)
        return completions[0] if is_one and samplings[0].n == 1 else completions

    def submit(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> Stream:
        """Starts a request and returns its stream; it goes on whether that is read or not.

        Raises:
            RequestError: the request is refused (see `EngineCore.prepare`), or the queue is full (QueueFull).
        """
        requests = self.core.prepare(prompt, sampling, constraint, **options)
        stream = self._stream(requests, constraint)
        try:
            self.step_thread.submit(requests, stream.deliver).result()
        except BaseException as error:
            if not isinstance(error, Exception):  # Ctrl-C: it may be queued all the same
                stream.abort()
            raise
        return stream

    def stream(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> Iterator[Delta]:
        """Yields one request's deltas as they come; closing the iterator aborts it. An error delta raises.

        The request begins when the first delta is asked for.
        """
        requests = self.core.prepare(prompt, sampling, constraint, **options)
        stream = self._stream(requests, constraint)
        try:
            self.step_thread.post(requests, stream.deliver)
            yield from stream
        finally:
            self._end([stream])

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

    def encode_chat(self, messages: Sequence[Message], **options: Unpack[ChatOptions]) -> ChatPrompt:
        """A conversation as a prompt; replies of this engine are the very tokens it generated. See `Chats.encode`."""
        return self.core.chats.encode(messages, **options)

    def score(
        self,
        prompt: Prompt,
        continuations: Sequence[Sequence[int]],
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> list[list[TokenLogprob]]:
        """Log-probability of every token of each continuation of the prompt; the prompt is computed once."""
        prepared = self._scorings(prompt, continuations, namespace, adapter)
        return [list(completion.prompt_logprobs) for completion in self._run(prepared, [None] * len(prepared))]

    def begin_scores(
        self,
        prompt: Prompt,
        continuations: Sequence[Sequence[int]],
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> list[Stream]:
        """The requests of `score`, in order: each one's completion has a continuation's `prompt_logprobs`."""
        prepared = self._scorings(prompt, continuations, namespace, adapter)
        return self._start(prepared, [None] * len(prepared))

    def embed(
        self,
        texts: Prompt | Sequence[Prompt],
        *,
        dimensions: int | None = None,
        normalise: bool | None = None,
        namespace: str = "",
        adapter: str | None = None,
    ) -> Rows:
        """Vectors of texts (or of token ids, as they are), `[n, dimensions]` in float32, in order; n is 1 for one text.

        They are pooled as the checkpoint's sentence-transformers files say, or else the last token's hidden state after
        the final norm. `dimensions`: only the first of each. `normalise`: whether they have length 1; None: as
        the checkpoint says, yes if it says nothing.

        Raises:
            RequestError: a text is empty or too long, or an argument is out of range.
        """
        vectors = self.vectors
        vectors.check(dimensions, normalise)
        is_one = is_one_prompt(texts)
        batch = cast(Sequence[Prompt], [texts] if is_one else texts)
        tokens = [vectors.tokens(text, "texts" if is_one else f"texts[{index}]") for index, text in enumerate(batch)]
        pooling = vectors.rules.pooling
        prepared = [
            self.core.prepare(one, READ, namespace=namespace, adapter=adapter, pooling=pooling) for one in tokens
        ]
        found = self._run(prepared, [None] * len(prepared))
        return vectors.finish([completion.vector for completion in found], dimensions, normalise)

    def _scorings(
        self, prompt: Prompt, continuations: Sequence[Sequence[int]], namespace: str, adapter: str | None
    ) -> list[list[Request]]:
        prefix = self.request_factory.token_ids(prompt)
        params = scoring_params(len(prefix))
        return [
            self.core.prepare([*prefix, *continuation], params, namespace=namespace, adapter=adapter)
            for continuation in continuations
        ]

    def _start(self, prepared: list[list[Request]], constraints: Sequence[ConstraintSpec | None]) -> list[Stream]:
        """Streams of requests that are queued as soon as the queue has room for them."""
        streams = [self._stream(requests, one) for requests, one in zip(prepared, constraints, strict=True)]
        self.step_thread.post_all([(requests, one.deliver) for requests, one in zip(prepared, streams, strict=True)])
        return streams

    def _stream(self, requests: list[Request], constraint: ConstraintSpec | None) -> Stream:
        return Stream(self.step_thread, requests[0].request_id, len(requests), constraint, engine=self)

    def _run(self, prepared: list[list[Request]], constraints: Sequence[ConstraintSpec | None]) -> list[Completion]:
        """The completions of all, in order. If one fails, the others are aborted."""
        streams = self._start(prepared, constraints)
        try:
            return [completion for stream in streams for completion in stream.completions()]
        except BaseException:
            self._end(streams)
            raise

    def _end(self, streams: Sequence[Stream]) -> None:
        """Aborts what of them has not ended; its blocks are free on return."""
        unfinished = [stream for stream in streams if stream.may_run]
        for stream in unfinished:
            stream.end()
        if unfinished:
            with suppress(EngineStopped):
                self.step_thread.leave([(stream.request_id, stream.deliver) for stream in unfinished]).result()

    # -- the cache ------------------------------------------------------------------------------------------------

    def pin(self, prompt: Prompt, *, ttl: float = 600.0, namespace: str = "", adapter: str | None = None) -> Pin:
        """Computes a prefix, if it is not cached, and keeps it for `ttl` seconds, whether it is used or not.

        A text is the prompt of a completion; a chat's is pinned by the `pin_ttl` of `chat`. Whole blocks only
        (`Pin.num_tokens` of them). All pins together hold at most `max_pinned_blocks`. A pin ends
        early only where a request could otherwise never run. Count `num_pinned_blocks` in `statistics`.

        Raises:
            PinBudgetExceeded: nothing was pinned; end another pin first.
            RequestError: an argument is of another type, or out of range.
        """
        check_seconds("ttl", ttl)
        token_ids = self.request_factory.token_ids(prompt)
        kept = self.request_factory.namespace(namespace, adapter)
        self.generate(token_ids, SamplingParams(max_tokens=0), namespace=namespace, adapter=adapter)
        return self.step_thread.call(lambda: self.core.pins.add(token_ids, ttl, kept)).result()

    def unpin(self, pin: Pin) -> bool:
        """Ends a pin; False if it held nothing or was given up already. Raises RequestError: it is no `Pin`."""
        if not isinstance(pin, Pin):
            raise RequestError(f"pin: expected what `pin` returned, got {pin!r}", param="pin")
        return self.step_thread.call(lambda: self.core.pins.end(pin)).result()

    def cache_report(self, *, shows_tree: bool = True, asks_what_if: bool = True) -> CacheReport:
        """What holds the pool, hit rate, evictions, the tree drawn, and what other pools would bring; `print` it.

        `shows_tree` shows prompts: the first tokens of every run as text. `asks_what_if` replays the recent traffic on
        the calling thread, a second or two; steps go on meanwhile.
        """
        found = self.step_thread.call(lambda: self.core.monitor.cache_state(shows_tree=shows_tree))
        report, visits = found.result()
        if not asks_what_if or not self.config.prefix_cache:
            return report
        curve = what_if(
            visits,
            num_blocks=report.num_blocks,
            block_size=report.block_size,
            policy=report.eviction_policy,
            block_cost=self.core.block_cost,
        )
        return replace(report, what_if=curve)

    def flush_cache(self) -> int:
        """Drops every cached prefix that no running request and no pin holds; see `EngineCore.flush_cache`."""
        return self.step_thread.call(self.core.flush_cache).result()

    # -- state -------------------------------------------------------------------------------------------------

    def statistics(self) -> EngineStatistics:
        """State and counters now."""
        return self.core.statistics()

    def close(self) -> None:
        """Aborts what runs, ends the step thread and drops the cache. Waiting callers get `EngineStopped`."""
        self.step_thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _make_core(config: EngineConfig, loaded: LoadedModel, *clocks: Callable[[], float] | None) -> EngineCore:
    """A core of a model in memory. If it cannot be made, no process of another rank is left."""
    if loaded.processes is not None and loaded.processes.serves_engine:
        loaded.processes.begin_engine()  # refused, and nothing of the other engine ends
    try:
        return EngineCore(config, loaded, *clocks)  # type: ignore[arg-type]  # the first is never None
    except BaseException:
        if loaded.processes is not None:
            loaded.processes.end_model()
        raise


def _load_by_name(model: str, settings: EngineSettings) -> tuple[EngineConfig, LoadedModel]:
    """Loads a model. Raises ConfigError: there is no such setting."""
    unknown = sorted(set(settings) - set(EngineConfig.field_names()))
    if unknown:
        raise ConfigError(
            f"{unknown[0]}: there is no such engine setting; there are {', '.join(EngineConfig.field_names())}"
        )
    config = EngineConfig(model=model, **settings)
    return config, load(config)
