"""Errors on the wire, in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`; on `/v1/messages` in
Anthropic's, `{"type": "error", "error": …}`, with its types.

::

    400  a value, field, schema, pattern or prompt that cannot be served     invalid_request_error
    401  no or wrong API key                                                 invalid_request_error
    404  unknown model or URL                                                invalid_request_error
    405  wrong method                                                        invalid_request_error
    408  the client took too long to send its body, or the request waited    invalid_request_error
         longer than its `deadline_seconds`
    413  body too large                                                      invalid_request_error
    415  not JSON by its headers                                             invalid_request_error
    429  the waiting queue is full (Retry-After)                             rate_limit_error
    500  a fault of ours (the message has the request's id, nothing else)    server_error
    503  starting, draining or stopped (Retry-After)                         server_error
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json
from starlette.responses import Response

from ...errors import ConstraintError, DeadlineExceeded, EngineStopped, PhloemError, QueueFull, RequestError

TYPE_NAMES: Mapping[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a number",
    list: "an array",
    dict: "an object",
    bool: "a boolean",
    type(None): "null",
}
MAX_MESSAGE_CHARS = 2000
MESSAGES_PATH = "/v1/messages"
ANTHROPIC_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


def shortened(message: str) -> str:
    """A message, or its beginning if it is long."""
    return message if len(message) <= MAX_MESSAGE_CHARS else message[:MAX_MESSAGE_CHARS] + " …"


class ApiError(Exception):
    """An answer that is an error: status, body and headers."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        pointer: str | None = None,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = shortened(message)
        self.kind = kind
        self.param = param
        self.code = code
        self.pointer = pointer
        self.details = dict(details or {})  # further fields of the error
        self.headers = dict(headers or {})

    def body(self, path: str) -> dict[str, Any]:
        """What is sent; `path`: of the request, since `/v1/messages` has Anthropic's shape."""
        error: dict[str, Any] = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        if self.pointer is not None:
            error["pointer"] = self.pointer
        error |= self.details
        if not path.startswith(MESSAGES_PATH):
            return {"error": error}
        return {"type": "error", "error": {**error, "type": ANTHROPIC_TYPES.get(self.status, "invalid_request_error")}}

    def response(self, path: str) -> Response:
        body = dump_json(self.body(path))
        return Response(body, self.status, headers=self.headers, media_type="application/json")


def dump_json(value: object) -> bytes:
    """`value` as UTF-8 JSON without spaces, ten times as fast as `json.dumps`; half a surrogate pair becomes "?"."""
    try:
        return to_json(value, inf_nan_mode="null")
    except PydanticSerializationError:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode("utf-8", "replace")


def invalid(message: str, param: str | None = None, code: str = "invalid_value") -> ApiError:
    """A 400 for the field `param`."""
    return ApiError(400, message, param=param, code=code)


def model_not_found(name: str) -> ApiError:
    shown = name if len(name) <= 100 else name[:100] + "…"
    return ApiError(
        404,
        f"The model `{shown}` does not exist. GET /v1/models lists what is served.",
        param="model",
        code="model_not_found",
    )


def unavailable(message: str, retry_after: int) -> ApiError:
    return ApiError(503, message, kind="server_error", code="unavailable", headers={"Retry-After": str(retry_after)})


def internal(request_id: str) -> ApiError:
    """A 500 that says only where to look in the log."""
    return ApiError(
        500,
        f"The server had an error while processing the request; its log has the cause under {request_id}.",
        kind="server_error",
        code="internal_error",
    )


def api_error(error: PhloemError, *, retry_after: int = 1, param: str | None = None) -> ApiError:
    """What to answer when the engine raised `error`; `param`: the request field that it concerns, if known."""
    if isinstance(error, QueueFull):
        later = {"Retry-After": str(retry_after)}
        return ApiError(429, str(error), kind="rate_limit_error", code=error.code, headers=later)
    if isinstance(error, DeadlineExceeded):
        return ApiError(408, str(error), param=error.param, code=error.code)
    if isinstance(error, EngineStopped):
        if error.__cause__ is not None:  # a rank was lost; the message names it
            text = str(error)
            return unavailable(f"{text[:1].upper()}{text[1:]}.", retry_after)
        return unavailable("The engine is shutting down; send the request to another server.", retry_after)
    if isinstance(error, RequestError):
        pointer = error.pointer if isinstance(error, ConstraintError) else None
        return ApiError(400, str(error), param=param or error.param, code=error.code, pointer=pointer)
    return ApiError(500, str(error), kind="server_error", code="internal_error")


@contextmanager
def callers_names(renamed: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Errors about the chat endpoint's fields name those that the caller sent; `renamed`: its name and theirs."""
    try:
        yield
    except (ApiError, RequestError) as error:
        for ours, theirs in renamed:
            if error.param is not None and re.match(rf"{re.escape(ours)}(?![\w])", error.param):
                error.param = theirs + error.param.removeprefix(ours)
                break
        text = _with_callers_names(str(error), renamed)
        error.args = (text,)
        if isinstance(error, ApiError):
            error.message = shortened(text)
        raise


def _with_callers_names(text: str, renamed: Sequence[tuple[str, str]]) -> str:
    """A name that is a word of English too is one of a field where it is quoted, or begins the message."""
    for ours, theirs in renamed:
        name = re.escape(ours)
        pattern = rf"(?<![\w.]){name}(?!\w)" if "_" in ours else rf"(?:^|(?<=')){name}(?=[\[:'])"
        text = re.sub(pattern, theirs, text)
    return text


def field_path(location: tuple[int | str, ...]) -> str:
    """`("messages", 0, "content")` → `messages[0].content`."""
    path = ""
    for part in location:
        if str(part).startswith("<"):  # a tag, which says of what kind the item is that the caller sent
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def validation_error(error: ValidationError) -> ApiError:
    """The first fault that pydantic found, as OpenAI words it; one that is missing may be so since another is wrong."""
    faults = error.errors(include_url=False, include_context=True)
    fault = min(faults, key=lambda one: one["type"] == "missing")
    path = field_path(fault["loc"])
    message = fault["msg"]
    if not path:  # the fields contradict each other; the fault is named after the one to change
        return invalid(f"{message}.", fault["type"], "invalid_value")
    if fault["type"] == "missing":
        return invalid(f"Missing required parameter: '{path}'.", path, "missing_required_parameter")
    shown = f"{message[:1].lower()}{message[1:]}"
    if fault["type"].endswith("_item_type"):  # the message names the item
        return invalid(f"Invalid type for '{path}': {shown}.", path, "invalid_type")
    if fault["type"].endswith(("_type", "_parsing")):
        found = TYPE_NAMES.get(type(fault["input"]), type(fault["input"]).__name__)
        return invalid(f"Invalid type for '{path}': {shown}, but got {found} instead.", path, "invalid_type")
    return invalid(f"Invalid '{path}': {shown}.", path, "invalid_value")


def json_response(body: object) -> Response:
    """A response of status 200 with this body."""
    return Response(dump_json(body), media_type="application/json")
