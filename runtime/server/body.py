"""Reading a request body: bounded in bytes, time and depth, and strictly JSON.

Starlette's `request.json()` would take NaN, any depth and any size; this reader does not. The order of the checks is
the order of their cost: headers, size, syntax, depth and finiteness, then the fields (pydantic).
"""

from __future__ import annotations

import asyncio
import math
from typing import TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json
from starlette.requests import Request

from .errors import ApiError, invalid, validation_error
from .settings import ServerSettings

M = TypeVar("M", bound=BaseModel)
LARGE_BODY = 1 << 16  # bytes from which parsing leaves the event loop


async def read_request(request: Request, model: type[M], settings: ServerSettings) -> M:
    """The body as a `model`, with the server's defaults for sampling where it says nothing.

    Raises:
        ApiError: 400, 408, 413 or 415 with the cause.
    """
    _check_headers(request)
    try:
        async with asyncio.timeout(settings.body_timeout):
            data = await _read(request, settings.max_body_bytes)
    except TimeoutError as error:
        text = f"The request body did not arrive within {settings.body_timeout:g} seconds."
        raise ApiError(408, text, code="request_timeout", headers={"Connection": "close"}) from error
    if len(data) > LARGE_BODY:
        body = await asyncio.to_thread(parse, data, model, settings.max_json_depth)
    else:
        body = parse(data, model, settings.max_json_depth)
    for name in settings.sampling_defaults.keys() & type(body).model_fields.keys() - body.model_fields_set:
        setattr(body, name, settings.sampling_defaults[name])
    return body


def parse(data: bytes, model: type[M], max_depth: int) -> M:
    """JSON text as a `model`; raises `ApiError` (400)."""
    if not data.strip():
        raise invalid("The request body is empty; send a JSON object.", code="invalid_json")
    try:
        value = from_json(data, allow_inf_nan=False, cache_strings="keys")
    except ValueError as error:
        raise invalid(f"The request body is not valid JSON: {error}.", code="invalid_json") from error
    if not isinstance(value, dict):
        raise invalid("The request body must be a JSON object.", code="invalid_json")
    _check_values(value, max_depth)
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise validation_error(error) from error


def _check_headers(request: Request) -> None:
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise ApiError(
            415,
            f"Unsupported content type: {content_type[:100]!r}. Send 'Content-Type: application/json'.",
            code="unsupported_content_type",
        )
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        text = f"Unsupported content encoding: {encoding[:100]!r}. Send the body uncompressed."
        raise ApiError(415, text, code="unsupported_content_encoding")


async def _read(request: Request, max_bytes: int) -> bytes:
    """The whole body. One that is too large is refused at once; `gate` takes the rest of it from the client."""
    declared = request.headers.get("content-length", "")
    too_large = declared.isdigit() and int(declared) > max_bytes
    chunks: list[bytes] = []
    if not too_large:
        num_bytes = 0
        async for chunk in request.stream():
            num_bytes += len(chunk)
            too_large = num_bytes > max_bytes
            if too_large:
                break
            chunks.append(chunk)
    if too_large:
        text = f"The request body is larger than {max_bytes} bytes; shorten it or raise --max-body-bytes."
        raise ApiError(413, text, code="body_too_large", headers={"Connection": "close"})
    return b"".join(chunks)


def _check_values(value: object, max_depth: int) -> None:
    """Refuse nesting deeper than `max_depth` and numbers that overflowed to infinity. Iterative."""
    level: list[object] = [value]
    for _ in range(max_depth):
        deeper: list[object] = []
        for item in level:
            if isinstance(item, dict):
                deeper += item.values()
            elif isinstance(item, list):
                deeper += item
            elif isinstance(item, float) and not math.isfinite(item):
                raise invalid("The request body holds a number that is too large.", code="invalid_json")
        if not deeper:
            return
        level = deeper
    raise invalid(f"The request body is nested deeper than {max_depth} levels.", code="invalid_json")
