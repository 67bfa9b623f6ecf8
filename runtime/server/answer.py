"""How every route answers: one stream of events, which a shape of the wire shows as it comes, or whole at its end.

::

    prepared request ──► engine ──► deltas ──► reader ──► events ──► shape ──► frames     stream
                                                                          └──► whole      what the events came to
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from fastapi import Request, Response

from ..request import Delta
from .errors import ApiError, callers_names, json_response
from .formats.events import Event, NewReader, OutputEvents, OutputReader
from .metrics import RequestClock
from .prepare import EngineCall, PreparedChat
from .service import ChatBody, Service
from .stream import EventStream, failed_frames, frame, until_gone

Frame = tuple[str | None, dict[str, Any]]  # an event of the wire: its name, if it has one, and its body
Renamed = Sequence[tuple[str, str]]  # see `callers_names`


class Shape(Protocol):
    """An API's words for one answer."""

    def push(self, prompt: int, delta: Delta, events: Sequence[Event]) -> list[Frame]:
        """What a delta of an output of a prompt says, as a stream shows it; none, perhaps."""

    def end(self) -> bytes:
        """The last frames of a stream."""

    def whole(self) -> dict[str, Any]:
        """The answer, when everything was pushed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the engine is asked, and how its answer is read and shown."""

    calls: Sequence[EngineCall]
    shape: Shape
    new_reader: NewReader = OutputReader


async def respond(
    service: Service, request: Request, ask: Callable[[], Awaitable[Asked]], *, stream: bool, renamed: Renamed = ()
) -> Response:
    """The answer as JSON, or as server-sent events. A client that leaves ends its request."""
    answer = _Answer(service, request, ask, renamed)
    if not stream:
        with service.lifecycle.track():
            reply = await until_gone(request, answer.whole())
        return json_response(reply)

    def explain(error: Exception) -> ApiError:
        found = service.explain(error, request.state.request_id)
        request.state.record.fail(found.code, found.param)
        return found

    failed = partial(failed_frames, request.url.path)
    return EventStream(answer.frames(), explain, failed, ping_interval=service.settings.ping_interval)


async def respond_to_chat(
    service: Service,
    request: Request,
    body: ChatBody,
    show: Callable[[PreparedChat], Shape],
    *,
    stream: bool,
    renamed: Renamed = (),
) -> Response:
    """The same for an API whose requests are chats in its own words."""

    async def ask() -> Asked:
        prepared = await service.prepare(request, body)
        return Asked([prepared.call], show(prepared), prepared.reading.new_reader)

    return await respond(service, request, ask, stream=stream, renamed=renamed)


async def input_tokens(service: Service, request: Request, kind: type[ChatBody], renamed: Renamed) -> int:
    """How many tokens a request's prompt has, tools and template included; nothing is computed."""
    body, _ = await service.read(request, kind)
    with callers_names(renamed):
        return len((await service.prepare(request, body)).call.prompt_ids)


class _Answer:
    """One request's way to its answer."""

    def __init__(
        self, service: Service, request: Request, ask: Callable[[], Awaitable[Asked]], renamed: Renamed
    ) -> None:
        self._service = service
        self._record = request.state.record
        self._ask = ask
        self._renamed = renamed
        self._clock = RequestClock(service.metrics)

    async def whole(self) -> dict[str, Any]:
        with callers_names(self._renamed):
            asked = await self._ask()
            async with aclosing(self._frames(asked)) as frames:
                async for _ in frames:
                    pass
        return asked.shape.whole()

    async def frames(self) -> AsyncGenerator[bytes]:
        with self._service.lifecycle.track(), callers_names(self._renamed):
            asked = await self._ask()
            async with aclosing(self._frames(asked)) as arrivals:
                async for frames in arrivals:
                    if frames:
                        yield b"".join([frame(body, name) for name, body in frames])
            if last := asked.shape.end():
                yield last

    async def _frames(self, asked: Asked) -> AsyncGenerator[list[Frame]]:
        outputs: dict[tuple[int, int], OutputEvents] = {}
        n = asked.calls[0].sampling.n
        async with aclosing(self._service.deltas(asked.calls, self._record)) as deltas:
            async for prompt, delta in deltas:
                self._clock.tick(prompt * n + delta.index, delta)
                place = prompt, delta.index
                if place not in outputs:
                    outputs[place] = OutputEvents(asked.new_reader())
                yield asked.shape.push(prompt, delta, outputs[place].push(delta))
        self._clock.end()
