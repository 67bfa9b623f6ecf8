"""An engine for callers on event loops: the same requests, as streams for coroutines.

Tokenising and compiling happen on a worker thread, so a hard schema delays neither the event loop nor a running
request. Leaving a stream (cancellation, `aclose`, an exception) aborts its request before the next step. Holds nothing
but the engine, whose step thread serves the callers of both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar, Unpack

from ..constrain.spec import ConstraintSpec
from ..request import Completion, Request, RequestOptions, SamplingParams, TokenLogprob
from .async_stream import AsyncStream
from .collector import Collector
from .engine import Engine
from .prompts import Prompt
from .statistics import EngineStatistics
from .stream import Stream

Result = TypeVar("Result")

SWITCH_SECONDS = 0.001
"""For `sys.setswitchinterval` in a program that owns its process, as the server does. A step takes the interpreter's
lock dozens of times, and while a thread compiles it waits this long each time: with Python's 5 ms a step took up
to 0.25 s, with 1 ms half of that (`bench/bombs.py --stream`)."""


class AsyncEngine:
    """An `Engine` as coroutines see it.

    Attributes:
        engine: all of it may be used at the same time.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def is_alive(self) -> bool:
        """Whether requests are still being served."""
        return self.engine.step_thread.is_alive

    @property
    def last_step_at(self) -> float:
        """`time.monotonic()` of the step thread's last sign of life."""
        return self.engine.step_thread.last_step_at

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
        engine = self.engine
        request_id = options.setdefault("request_id", engine.request_factory.new_id())

        async def prepare() -> list[Request]:
            return await asyncio.to_thread(engine.core.prepare, prompt, sampling, constraint, **options)

        return AsyncStream(engine.step_thread, request_id, sampling.n if sampling else 1, prepare, engine=engine)

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

    def submit(
        self,
        prompt: Prompt,
        sampling: SamplingParams | None = None,
        constraint: ConstraintSpec | None = None,
        **options: Unpack[RequestOptions],
    ) -> Stream:
        """`Engine.submit`."""
        return self.engine.submit(prompt, sampling, constraint, **options)

    def score(
        self,
        prompt: Prompt,
        continuations: Sequence[Sequence[int]],
        *,
        namespace: str = "",
        adapter: str | None = None,
    ) -> list[list[TokenLogprob]]:
        """`Engine.score`."""
        return self.engine.score(prompt, continuations, namespace=namespace, adapter=adapter)

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Calls `function` on the step thread between two steps; at once if this is the step thread."""
        return self.engine.step_thread.call(function)

    def statistics(self) -> EngineStatistics:
        return self.engine.statistics()

    def stop(self) -> None:
        """`Engine.close`."""
        self.engine.close()

    async def close(self) -> None:
        """`Engine.close` without blocking the event loop."""
        await asyncio.to_thread(self.engine.close)
