"""What the routes for vectors and scores share: requests that are read instead of answered.

Each is a call to the engine like any other, so they are scheduled, cached, aborted and counted as answers are.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ...errors import RequestError
from ..engine.vectors import READ
from ..request import Delta, RequestOptions
from .errors import api_error, invalid, json_response
from .prepare import EngineCall, check_length, request_options
from .replies import usage_body
from .request_record import RequestRecord
from .service import Service
from .stream import until_gone
from .vectors_request import Read

if TYPE_CHECKING:
    from ..engine.engine import Engine


def read_call(engine: Engine, tokens: Sequence[int], param: str, options: RequestOptions) -> EngineCall:
    """A call for token ids; options: the request's, and what is read. Raises ApiError, which names `param`."""
    try:
        ids = engine.request_factory.token_ids(tokens)
    except RequestError as error:
        raise api_error(error, param=param) from error
    check_length(engine, len(ids), None, param)
    return EngineCall(ids, READ, None, options.copy())


def options_of(service: Service, body: Read, api_key: str | None, what: RequestOptions) -> RequestOptions:
    """Of the calls of a request; what: what is read."""
    return {**request_options(body, api_key, service.adapter_of(body.model)), **what}


def check_number(service: Service, number: int, param: str) -> None:
    """Raises ApiError: more calls than one HTTP request may make."""
    limit = min(service.settings.max_outputs, service.engine.config.max_waiting_requests)
    if number > limit:
        raise invalid(f"{number} are more than {limit}; send fewer at a time.", param)


async def read_all(service: Service, calls: Sequence[EngineCall], record: RequestRecord) -> list[Delta]:
    """The last delta of each call, which has what was read."""
    last: dict[int, Delta] = {}
    async with aclosing(service.deltas(calls, record)) as deltas:
        async for index, delta in deltas:
            last[index] = delta
    return [last[index] for index in range(len(calls))]


def usage_of(found: Sequence[Delta]) -> dict[str, Any]:
    """`usage`; nothing is generated."""
    usage = usage_body([[delta.usage] for delta in found], [False] * len(found))
    return {name: usage[name] for name in ("prompt_tokens", "total_tokens", "prompt_tokens_details")}


async def respond_whole(service: Service, request: Request, reply: Coroutine[Any, Any, dict[str, Any]]) -> Response:
    """The reply as JSON. A client that leaves ends its request."""
    with service.lifecycle.track():
        body = await until_gone(request, reply)
    return json_response(body)
