"""Server-sent events, and leaving: how events are sent, and what happens when the client is gone.

::

    frames ──► write ──► client          a silent client is pinged (one that does not read: see `connections`)
    listen ──► "disconnected" ──► the frames' generator is closed ──► the engine aborts the request

An error before the first frame is an ordinary error answer (status and body); later it becomes an error frame, because
a stream that just ends looks like success to clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from .errors import MESSAGES_PATH, ApiError, dump_json

Result = TypeVar("Result")
DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"


class ClientGone(Exception):
    """The client closed its connection; there is no one to answer."""


def frame(body: object, event: str | None = None) -> bytes:
    """One event with a JSON body."""
    name = b"event: " + event.encode() + b"\n" if event is not None else b""
    return name + b"data: " + dump_json(body) + b"\n\n"


def failed_frames(path: str, error: ApiError) -> bytes:
    """How a stream ends with an error."""
    body = error.body(path)
    return frame(body, "error") if path.startswith(MESSAGES_PATH) else frame(body) + DONE


async def until_gone(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Runs `work`; cancels it when the client disconnects. The body must have been read.

    Raises:
        ClientGone: the client disconnected first.
    """
    working = asyncio.ensure_future(work)
    listening = asyncio.ensure_future(_disconnected(request.receive))
    try:
        await asyncio.wait({working, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        await _cancel(working, listening)


class EventStream(Response):
    """Sends the frames of a generator; closes it when the client leaves.

    Args:
        frames: whole events as bytes; its first frame decides whether the answer is a stream or an error.
        explain: turns an exception of `frames` into the error that the client gets.
        failed: the last frames of a stream that has begun and failed.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        frames: AsyncGenerator[bytes],
        explain: Callable[[Exception], ApiError],
        failed: Callable[[ApiError], bytes],
        *,
        ping_interval: float,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._frames = frames
        self._explain = explain
        self._failed = failed
        self._ping_interval = ping_interval
        self._started = False
        self._written_at = time.monotonic()
        self._lock = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writing = asyncio.ensure_future(self._write_all(send))
        listening = asyncio.ensure_future(_disconnected(receive))
        pinging = asyncio.ensure_future(self._ping(send))
        try:
            await asyncio.wait({writing, listening, pinging}, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
            else:
                raise ClientGone
        finally:
            await _cancel(writing, listening, pinging)
            await self._frames.aclose()

    async def _write_all(self, send: Send) -> None:
        try:
            async for data in self._frames:
                await self._write(send, data)
        except ClientGone:
            raise
        except Exception as error:
            found = self._explain(error)
            if not self._started:
                raise found from error
            await self._write(send, self._failed(found))
        async with self._lock:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _write(self, send: Send, data: bytes) -> None:
        async with self._lock:
            try:
                if not self._started:
                    self._started = True
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": data, "more_body": True})
            except OSError as error:
                raise ClientGone from error
            self._written_at = time.monotonic()

    async def _ping(self, send: Send) -> None:
        """Pings a silent stream, which also starts an answer that is long in coming; ends with a client that has left.
        One timer per stream instead of one per chunk."""
        while True:
            silence = time.monotonic() - self._written_at
            if silence >= self._ping_interval and not self._lock.locked():
                await self._write(send, PING)
                silence = 0.0
            await asyncio.sleep(self._ping_interval - silence if silence < self._ping_interval else self._ping_interval)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError, Exception):
            await task
