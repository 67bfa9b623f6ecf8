"""The deltas of one request, for a coroutine.

Leaving the stream before its end (an exception in the loop over it, cancellation, `aclose`, dropping it half read)
aborts the request before the next step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress

from ..request import Delta, Request, SamplingParams
from .step_thread import Deliver, Event, StepThread


class Inbox:
    """Events from the step thread for a coroutine of `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: asyncio.Queue[Event] = asyncio.Queue()

    def deliver(self, event: Event) -> None:
        """Called on the step thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)

    async def get(self) -> Event:
        return await self._events.get()


Prepare = Callable[[], Awaitable[list[Request]]]


class AsyncStream:
    """Iterate it with `async for`. While a stream is kept, so is its engine.

    Attributes:
        request_id: under which the engine knows the request; one that was not forked runs from the moment at which its
            first delta is asked for.
    """

    def __init__(
        self, steps: StepThread, request_id: str, num_outputs: int, begin: Prepare | Inbox, *, engine: object
    ) -> None:
        """
        Args:
            begin: makes what is queued when the first delta is asked for; or where the deltas of a fork come in.
            engine: is kept.
        """
        self.request_id = request_id
        self._steps = steps
        self._engine = engine
        self._inbox = begin if isinstance(begin, Inbox) else None  # of a fork
        self._deltas = _receive(steps, request_id, num_outputs, begin)

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Delta:
        return await self._deltas.__anext__()

    async def aclose(self) -> None:
        """Ends the request if it has not ended, and the iteration."""
        await self._deltas.aclose()
        if self._inbox is not None:  # it may run though no delta has been asked for
            self._steps.leave([(self.request_id, self._inbox.deliver)])

    async def fork(self, n: int = 1, sampling: SamplingParams | None = None, *, index: int = 0) -> list[AsyncStream]:
        """`n` streams that go on from where this request stands now; each begins with all of its output so far.

        They run whether they are read or not: read them, or `aclose` them. See `EngineCore.fork`.

        Raises:
            RequestError: the request has not begun or has ended …
        """
        loop = asyncio.get_running_loop()
        children: list[AsyncStream] = []

        def new_sink(request_id: str) -> Deliver:
            inbox = Inbox(loop)
            children.append(AsyncStream(self._steps, request_id, 1, inbox, engine=self._engine))
            return inbox.deliver

        await asyncio.wrap_future(self._steps.fork(self.request_id, n, sampling, index, new_sink))
        return children


async def _receive(steps: StepThread, request_id: str, num_open: int, begin: Prepare | Inbox) -> AsyncGenerator[Delta]:
    if isinstance(begin, Inbox):
        inbox = begin
    else:
        inbox = Inbox(asyncio.get_running_loop())
        steps.post(await begin(), inbox.deliver)
    try:
        while num_open:
            event = await inbox.get()
            if not isinstance(event, Delta):  # it was refused, or it has been ended
                num_open = 0
                raise event
            if event.error is not None:
                raise event.error
            num_open -= event.finish_reason is not None
            yield event
    finally:
        if num_open:
            steps.leave([(request_id, inbox.deliver)])
