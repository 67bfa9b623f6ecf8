"""POST /v1/responses: OpenAI's newer API for the same work. Stateless: nothing is stored.

Everything is the chat endpoint's (`response_request`), but for how the answer is shown (`response_items`).
"""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..request import Delta, FinishReason, Usage
from .answering import respond
from .body import read_request
from .description import answer, described
from .errors import dump_json
from .outputs import Output
from .prepare import PreparedChat
from .replies import cache_details, pin_details
from .response_items import Event, ResponseItems
from .response_request import RENAMED, ResponsesRequest
from .service import Service
from .single_answer import SingleAnswer
from .stream import frame
from .thought_tokens import ReasoningTokens

ANSWER = answer("response", "id", "created_at", "model", "status", "output", "usage")
COUNT = answer("response.input_tokens", "input_tokens")


def responses_router(service: Service) -> APIRouter:
    router = APIRouter()

    def asked(request: Request, body: ResponsesRequest) -> SingleAnswer:
        service.check_ready()
        show = partial(ShownResponse, body, service.check_model(body.model), service.engine.config.prefix_cache)
        state = request.state
        return SingleAnswer(service, body, service.api_key(state), state.record, RENAMED, show)

    @router.post("/v1/responses", **described(ANSWER, ResponsesRequest, streams=True))
    async def responses(request: Request) -> Response:
        body = await read_request(request, ResponsesRequest, service.settings)
        return await respond(service, request, asked(request, body), stream=bool(body.stream))

    @router.post("/v1/responses/input_tokens", **described(COUNT, ResponsesRequest))
    async def input_tokens(request: Request) -> Response:
        """How many tokens the prompt has, tools and template included; nothing is computed."""
        body = await read_request(request, ResponsesRequest, service.settings)
        counted = {"object": "response.input_tokens", "input_tokens": await asked(request, body).input_tokens()}
        return Response(dump_json(counted), media_type="application/json")

    return router


class ShownResponse:
    """A response object, or the events that build it up."""

    def __init__(self, body: ResponsesRequest, model: str, caches: bool, prepared: PreparedChat) -> None:
        self._body = body
        self._model = model
        self._caches = caches
        self._id = f"resp_{uuid.uuid4().hex}"
        self._created_at = int(time.time())
        self._items = ResponseItems()
        self._reader = prepared.reader()
        self._counter = ReasoningTokens(prepared.new_counter)
        self._num_events = 0

    def whole(self, output: Output) -> dict[str, Any]:
        items, reader = self._items, self._reader
        items.push(reader.push(output.text, is_last=True))
        items.end(is_cut=output.reason is FinishReason.LENGTH, in_call=reader.in_call)
        self._counter.push(0, output.token_ids)
        return self._response(_status(output.reason), items.items, output.usage)

    def push(self, delta: Delta) -> bytes:
        items, reader = self._items, self._reader
        self._counter.push(0, delta.token_ids)
        events = [] if self._num_events else self._opening()
        events += items.push(reader.push(delta.text, is_last=delta.finish_reason is not None))
        if delta.finish_reason is not None:
            events += items.end(is_cut=delta.finish_reason is FinishReason.LENGTH, in_call=reader.in_call)
            status = _status(delta.finish_reason)
            events.append((status, {"response": self._response(status, items.items, delta.usage)}))
        return b"".join([self._frame(name, fields) for name, fields in events])

    def _opening(self) -> list[Event]:
        response = self._response("in_progress", [], None)
        return [("created", {"response": response}), ("in_progress", {"response": response})]

    def _frame(self, name: str, fields: dict[str, Any]) -> bytes:
        kind = f"response.{name}"
        body = {"type": kind, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return frame(body, kind)

    def _response(self, status: str, output: list[dict[str, Any]], usage: Usage | None) -> dict[str, Any]:
        body = self._body
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created_at,
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata,
            "model": self._model,
            "output": output,
            "parallel_tool_calls": body.parallel_tool_calls,
            "previous_response_id": None,
            "store": False,
            "temperature": body.temperature,
            "text": {"format": body.text.format.model_dump(by_alias=True, exclude_unset=True) or {"type": "text"}},
            "tool_choice": body.tool_choice.wire,
            "tools": [
                {"parameters": None, "strict": True, **tool.model_dump(exclude_unset=True)} for tool in body.tools
            ],
            "top_p": body.top_p,
            "usage": _usage(usage, self._caches, self._counter.total) if usage is not None else None,
        }


def _status(reason: FinishReason | None) -> str:
    return "incomplete" if reason is FinishReason.LENGTH else "completed"


def _usage(usage: Usage, caches: bool, reasoning_tokens: int) -> dict[str, Any]:
    written = usage.prompt_tokens - usage.cached_tokens if caches else 0  # what is computed is kept
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": written,
            **pin_details(usage),
            **cache_details([usage.cache_explanation]),
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "jumped_tokens": usage.jumped_tokens,
            "drafted_tokens": usage.drafted_tokens,
            "sampled_tokens": usage.sampled_tokens,
        },
        "total_tokens": usage.total_tokens,
    }
