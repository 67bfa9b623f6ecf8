"""The deltas of one request, for a coroutine.

Leaving the stream before its end (an exception in the loop over it, cancellation, `aclose`, dropping it half read)
aborts the request before the next step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from ...errors import EngineStopped
from ..request import Delta, SamplingParams

Event = Delta | EngineStopped


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


class Owner(Protocol):
    """Runs the requests of streams; `AsyncEngine` does."""

    def abort(self, request_id: str) -> None: ...

    async def fork_async(
        self, request_id: str, n: int = 1, sampling: SamplingParams | None = None, *, index: int = 0
    ) -> list[AsyncStream]: ...


class AsyncStream:
    """Iterate it with `async for`.

    Attributes:
        request_id: under which the engine knows the request; one that was not forked runs from the moment at which its
            first delta is asked for.
    """

    def __init__(
        self,
        owner: Owner,
        request_id: str,
        num_outputs: int,
        begin: Callable[[], Awaitable[Inbox]],
        *,
        is_fork: bool = False,
    ) -> None:
        """begin: where the events come in; awaited when the first delta is asked for."""
        self.request_id = request_id
        self._owner = owner
        self._is_fork = is_fork
        self._deltas = _receive(owner, request_id, num_outputs, begin)

    def __aiter__(self) -> AsyncStream:
        return self

    async def __anext__(self) -> Delta:
        return await self._deltas.__anext__()

    async def aclose(self) -> None:
        """Ends the request if it has not ended, and the iteration."""
        await self._deltas.aclose()
        if self._is_fork:  # it may run though no delta has been asked for
            self._owner.abort(self.request_id)

    async def fork(self, n: int = 1, sampling: SamplingParams | None = None, *, index: int = 0) -> list[AsyncStream]:
        """`n` streams that go on from where this request stands now; each begins with all of its output so far.

        They run whether they are read or not: read them, or `aclose` them. See `EngineCore.fork`.

        Raises:
            RequestError: the request has not begun or has ended …
        """
        return await self._owner.fork_async(self.request_id, n, sampling, index=index)


async def _receive(
    owner: Owner, request_id: str, num_open: int, begin: Callable[[], Awaitable[Inbox]]
) -> AsyncGenerator[Delta]:
    inbox = await begin()
    try:
        while num_open:
            event = await inbox.get()
            if isinstance(event, EngineStopped):
                raise event
            if event.error is not None:
                raise event.error
            num_open -= event.finish_reason is not None
            yield event
    finally:
        if num_open:
            owner.abort(request_id)
