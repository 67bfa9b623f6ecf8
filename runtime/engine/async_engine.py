"""One thread that steps the engine; streams of deltas for callers on event loops and on threads.

Tokenising and compiling happen on the caller's side (`Engine.prepare`), so a hard schema never delays a running
request. The step thread owns the engine: others reach it through a command queue, which it empties between steps.
Leaving an async stream (cancellation, `aclose`, an exception) aborts its request before the next step. Knows no
tensors, blocks or steps: only the engine's calls.
"""

from __future__ import annotations

import asyncio
import atexit
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar, Unpack

from ...errors import EngineStopped, RequestError
from ..constrain.spec import ConstraintSpec
from ..request import Completion, Delta, Request, RequestOptions, SamplingParams, TokenLogprob
from .async_stream import AsyncStream, Event, Inbox
from .collector import Collector, scoring_params
from .engine import Engine
from .request_factory import Prompt
from .statistics import EngineStatistics

Result = TypeVar("Result")

SWITCH_SECONDS = 0.001
"""For `sys.setswitchinterval` in a program that owns its process, as the server does. A step takes the interpreter's
lock dozens of times, and while a thread compiles it waits this long each time: with Python's 5 ms a step took up
to 0.25 s, with 1 ms half of that (`bench/bombs.py --stream`)."""


class Stream:
    """The deltas of one submitted request, for a synchronous caller. Iterate it, or take `completions`.

    Iterating blocks until the next delta and raises the request's error if it fails. A caller that only takes
    `completions` is not woken before the end: with many waiting threads that would cost more than the step itself.
    """

    def __init__(self, owner: AsyncEngine, num_outputs: int, constraint: ConstraintSpec | None) -> None:
        self._owner = owner
        self.constraint = constraint
        self._events: deque[Event] = deque()
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()  # may ring without an event, never the other way
        self._wakes_at_end_only = False
        self._aborted = False
        self._num_open = num_outputs
        self._collector = Collector(num_outputs, constraint)
        self.request_id = ""

    def __iter__(self) -> Iterator[Delta]:
        while self._num_open:
            self._bell.get()
            while self._events and self._num_open:
                event = self._events.popleft()
                if isinstance(event, EngineStopped):
                    self._num_open = 0
                    raise event
                if event.error is not None:
                    self.abort()
                    raise event.error
                self._collector.push(event)
                self._num_open -= event.finish_reason is not None
                yield event

    def completions(self) -> list[Completion]:
        """Waits for the end; one completion per output. Raises RequestError if the stream was aborted."""
        self._wakes_at_end_only = True
        for _ in self:
            pass
        if self._aborted:
            raise RequestError("the request was aborted")
        return self._collector.completions()

    def result(self) -> Completion:
        """Waits for the end of a request with one output."""
        return self.completions()[0]

    def fork(self, n: int = 1, sampling: SamplingParams | None = None, *, index: int = 0) -> list[Stream]:
        """`n` streams that go on from where this request stands now; each begins with all of its output so far.

        See `EngineCore.fork`.
        """
        return self._owner.fork(self, n, sampling, index=index)

    def abort(self) -> None:
        """Ends the request; its blocks are free before the next step. Iterating ends too, on any thread."""
        self._num_open = 0
        self._aborted = True
        self._owner.abort(self.request_id)
        self._bell.put(None)  # ends a wait of the iteration

    def _deliver(self, event: Event) -> None:
        """Called on the step thread."""
        self._events.append(event)
        if not self._wakes_at_end_only or isinstance(event, EngineStopped) or event.finish_reason is not None:
            self._bell.put(None)


class AsyncEngine:
    """An `Engine` and the thread that steps it. It stops at the latest when the interpreter exits.

    Attributes:
        engine: for its read-only attributes (tokenizer, configs); do not step it.
        last_step_at: `time.monotonic()` of the step thread's last sign of life.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.last_step_at = time.monotonic()
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._sinks: dict[str, tuple[Callable[[Event], None], int]] = {}
        self._stopping = False
        self._closing = threading.Lock()  # so that no command comes after the last ones are executed
        self._is_closed = False
        self._fatal: BaseException | None = None
        engine.attach(self)
        self._thread = threading.Thread(target=self._run, name="phloem-step", daemon=True)
        self._thread.start()
        # A daemon thread that is inside compiled code when the interpreter goes away takes the process down (SIGABRT).
        atexit.register(self.stop)

    @property
    def is_alive(self) -> bool:
        """Whether requests are still being served."""
        return self._fatal is None and self._thread.is_alive()

    # -- for threads -------------------------------------------------------------------------------------------

    def submit(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> Stream:
        """Starts a request and returns its stream. Errors of the request are raised here, before it is queued."""
        stream, started = self._submit(prompt, sampling, constraint, **options)
        started.result()
        return stream

    def fork(
        self, stream: Stream, n: int = 1, sampling: SamplingParams | None = None, *, index: int = 0
    ) -> list[Stream]:
        """Streams of forks of a request under way; see `EngineCore.fork` for arguments and errors."""

        def fork() -> list[Stream]:
            children = []
            for request_id in self.engine.fork(stream.request_id, n, sampling, index=index):
                child = Stream(self, 1, stream.constraint)
                child.request_id = request_id
                self._sinks[request_id] = (child._deliver, 1)
                children.append(child)
            return children

        return self.call(fork).result()

    def run(self, prepared: list[list[Request]], constraints: Sequence[ConstraintSpec | None]) -> list[Completion]:
        """Runs prepared requests to their ends; completions in order. If one fails, the others are aborted."""
        streams = []
        for requests, constraint in zip(prepared, constraints, strict=True):
            stream = Stream(self, len(requests), constraint)
            stream.request_id = requests[0].request_id
            streams.append((stream, self._enqueue(requests, stream._deliver)))
        try:
            for _, started in streams:
                started.result()
            return [completion for stream, _ in streams for completion in stream.completions()]
        except BaseException:
            for stream, _ in streams:
                stream.abort()
            raise

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Runs `function` on the step thread between two steps; at once if this is the step thread."""
        future: Future[Result] = Future()
        if not self.is_alive or self._stopping:
            future.set_exception(self._stopped())
            return future

        def command() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        if threading.current_thread() is self._thread:
            command()
            return future
        with self._closing:
            if not self._is_closed:
                self._commands.put(command)
                return future
        future.set_exception(self._stopped())
        return future

    def abort(self, request_id: str) -> None:
        """Aborts a request if it still runs. Returns at once; it takes effect before the next step."""

        def command() -> None:
            self._sinks.pop(request_id, None)
            self.engine.abort(request_id)

        self._commands.put(command)

    def score(
        self,
        prompt: Prompt,
        continuations: Sequence[Sequence[int]],
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> list[list[TokenLogprob]]:
        """Log-probabilities of every token of each continuation; the prompt is computed once."""
        streams = self.begin_scores(prompt, continuations, namespace=namespace, adapter=adapter)
        return [list(stream.result().prompt_logprobs) for stream in streams]

    def begin_scores(
        self,
        prompt: Prompt,
        continuations: Sequence[Sequence[int]],
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> list[Stream]:
        """The requests of `score`, in order: each one's completion has a continuation's `prompt_logprobs`."""
        prefix = self.engine.request_factory.token_ids(prompt)
        options: RequestOptions = {"namespace": namespace, "adapter": adapter}
        submitted: list[tuple[Stream, Future[str]]] = []
        try:
            for continuation in continuations:
                params = scoring_params(len(prefix))
                submitted.append(self._submit([*prefix, *continuation], params, None, **options))
            for _, started in submitted:
                started.result()
        except BaseException:
            for stream, _ in submitted:
                stream.abort()
            raise
        return [stream for stream, _ in submitted]

    def statistics(self) -> EngineStatistics:
        return self.engine.statistics()

    def stop(self) -> None:
        """Aborts everything, ends the thread and closes the engine. Waiting callers get `EngineStopped`."""
        self._stopping = True
        self._commands.put(lambda: None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    # -- for event loops ---------------------------------------------------------------------------------------

    def generate(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> AsyncStream:
        """A request's deltas, for `async for`. Closing or cancelling the stream aborts the request.

        The request begins when the first delta is asked for, and is refused (RequestError) then; later it may fail.
        """
        request_id = options.setdefault("request_id", self.engine.request_factory.new_id())

        async def begin() -> Inbox:
            inbox = Inbox(asyncio.get_running_loop())
            requests = await asyncio.to_thread(self.engine.prepare, prompt, sampling, constraint, **options)
            try:
                await asyncio.wrap_future(self._enqueue(requests, inbox.deliver))
            except asyncio.CancelledError:
                self.abort(request_id)
                raise
            return inbox

        return AsyncStream(self, request_id, sampling.n if sampling else 1, begin)

    async def fork_async(
        self, request_id: str, n: int = 1, sampling: SamplingParams | None = None, *, index: int = 0
    ) -> list[AsyncStream]:
        """What `AsyncStream.fork` does, by the request's id."""
        loop = asyncio.get_running_loop()

        def fork() -> list[AsyncStream]:
            return [stream(child) for child in self.engine.fork(request_id, n, sampling, index=index)]

        def stream(child: str) -> AsyncStream:
            inbox = Inbox(loop)
            self._sinks[child] = (inbox.deliver, 1)

            async def begin() -> Inbox:
                return inbox

            return AsyncStream(self, child, 1, begin, is_fork=True)

        return await asyncio.wrap_future(self.call(fork))

    async def complete(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> list[Completion]:
        """Runs a request to its end; one completion per output, in order."""
        collector = Collector(sampling.n if sampling else 1, constraint)
        async for delta in self.generate(prompt, sampling, constraint, **options):
            collector.push(delta)
        return collector.completions()

    async def close(self) -> None:
        """`stop` without blocking the event loop."""
        await asyncio.to_thread(self.stop)

    # -- the step thread ---------------------------------------------------------------------------------------

    def _submit(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None,
        constraint: ConstraintSpec | None,
        **options: Unpack[RequestOptions],
    ) -> tuple[Stream, Future[str]]:
        requests = self.engine.prepare(prompt, sampling, constraint, **options)
        stream = Stream(self, len(requests), constraint)
        stream.request_id = requests[0].request_id
        return stream, self._enqueue(requests, stream._deliver)

    def _enqueue(self, requests: list[Request], deliver: Callable[[Event], None]) -> Future[str]:
        def enqueue() -> str:
            request_id = self.engine.enqueue(requests)
            self._sinks[request_id] = (deliver, len(requests))
            return request_id

        return self.call(enqueue)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._wait_for_work()
                self._execute_commands()
                self.last_step_at = time.monotonic()
                for delta in self.engine.step():
                    self._dispatch(delta)
        except BaseException as error:
            self._fatal = error
        finally:
            self._stopping = True
            atexit.unregister(self.stop)
            self.engine.detach()
            self.engine.close()
            with self._closing:
                self._is_closed = True
            self._execute_commands()
            for deliver, _ in list(self._sinks.values()):
                deliver(self._stopped())
            self._sinks.clear()

    def _wait_for_work(self) -> None:
        """Returns when there is a step to do or a command to execute; meanwhile pins end when their time is over."""
        while not self.engine.has_work:
            seconds = self.engine.end_expired_pins()
            try:
                self._commands.get(timeout=None if math.isinf(seconds) else min(max(0.0, seconds), 3600.0))()
                return
            except queue.Empty:
                continue

    def _execute_commands(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._commands.get_nowait()()

    def _dispatch(self, delta: Delta) -> None:
        sink = self._sinks.get(delta.request_id)
        if sink is None:
            return
        deliver, num_open = sink
        if delta.finish_reason is not None:
            num_open -= 1
            if num_open:
                self._sinks[delta.request_id] = (deliver, num_open)
            else:
                del self._sinks[delta.request_id]
        deliver(delta)

    def _stopped(self) -> EngineStopped:
        if self._fatal is not None:
            return EngineStopped(f"the engine has stopped: {type(self._fatal).__name__}: {self._fatal}")
        return EngineStopped("the engine has stopped")
