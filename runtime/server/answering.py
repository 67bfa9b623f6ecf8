"""How every route answers: whole, or as a stream of events; and what happens when the client leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from functools import partial
from typing import Any, Protocol

from fastapi import Request, Response

from .errors import ApiError, dump_json
from .service import Service
from .stream import EventStream, failed_frames, until_gone


class Answer(Protocol):
    """One request's way to its answer."""

    async def whole(self) -> Any: ...

    def frames(self) -> AsyncGenerator[bytes]: ...


async def respond(service: Service, request: Request, answer: Answer, *, stream: bool) -> Response:
    """The answer as JSON, or as server-sent events. A client that leaves ends its request."""
    if not stream:
        with service.lifecycle.track():
            reply = await until_gone(request, answer.whole())
        return Response(dump_json(reply), media_type="application/json")

    def explain(error: Exception) -> ApiError:
        found = service.explain(error, request.state.request_id)
        request.state.record.fail(found.code, found.param)
        return found

    return EventStream(
        answer.frames(),
        explain,
        partial(failed_frames, request.url.path),
        ping_interval=service.settings.ping_interval,
    )
