"""POST /v1/responses: OpenAI's newer API for the same work. Stateless: nothing is stored.

Everything is the chat endpoint's (`response_request`), but for how the answer is shown (`response_items`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..request import Delta, FinishReason, Usage
from .answer import Frame, input_tokens, respond_to_chat
from .description import answer, described
from .errors import json_response
from .formats.events import Event, Finish
from .formats.reasoning_tokens import ReasoningTokens
from .prepare import PreparedChat
from .replies import cache_details, drop_details, explains, pin_details
from .response_items import ResponseItems
from .response_request import RENAMED, ResponsesRequest
from .service import Service

ANSWER = answer("response", "id", "created_at", "model", "status", "output", "usage")
COUNT = answer("response.input_tokens", "input_tokens")


def responses_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/responses", **described(ANSWER, ResponsesRequest, streams=True))
    async def responses(request: Request) -> Response:
        body, model = await service.read(request, ResponsesRequest)
        show = partial(ResponseShape, service, body, model)
        return await respond_to_chat(service, request, body, show, stream=body.stream, renamed=RENAMED)

    @router.post("/v1/responses/input_tokens", **described(COUNT, ResponsesRequest))
    async def count(request: Request) -> Response:
        num_tokens = await input_tokens(service, request, ResponsesRequest, RENAMED)
        counted = {"object": "response.input_tokens", "input_tokens": num_tokens}
        return json_response(counted)

    return router


class ResponseShape:
    """A response object, or the events that build it up."""

    def __init__(self, service: Service, body: ResponsesRequest, model: str, prepared: PreparedChat) -> None:
        self._body = body
        self._model = model
        self._caches = service.engine.config.prefix_cache
        (self._explains,) = explains([prepared.call])
        self._id = f"resp_{uuid.uuid4().hex}"
        self._created_at = int(time.time())
        self._items = ResponseItems()
        new_reader = prepared.reading.new_reader if prepared.reading.counts_thoughts else None
        self._tokens = ReasoningTokens(new_reader, service.engine.tokenizer)
        self._num_events = 0
        self._whole: dict[str, Any] = {}

    def push(self, prompt: int, delta: Delta, events: Sequence[Event]) -> list[Frame]:
        self._tokens.push(0, delta.token_ids)
        shown = []
        if not self._num_events:
            response = self._response("in_progress", [], None)
            shown = [("created", {"response": response}), ("in_progress", {"response": response})]
        shown += self._items.push(events)
        if events and isinstance(events[-1], Finish):
            status = "incomplete" if events[-1].reason is FinishReason.LENGTH else "completed"
            self._whole = self._response(status, self._items.items, delta.usage)
            shown.append((status, {"response": self._whole}))
        return [self._frame(name, fields) for name, fields in shown]

    def end(self) -> bytes:
        return b""

    def whole(self) -> dict[str, Any]:
        return self._whole

    def _frame(self, name: str, fields: dict[str, Any]) -> Frame:
        kind = f"response.{name}"
        body = {"type": kind, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return kind, body

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
            "usage": _usage(usage, self._caches, self._explains, self._tokens.total) if usage is not None else None,
        }


def _usage(usage: Usage, caches: bool, explains_cache: bool, reasoning_tokens: int) -> dict[str, Any]:
    written = usage.prompt_tokens - usage.cached_tokens if caches else 0  # what is computed is kept
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": written,
            **pin_details(usage),
            **cache_details([usage.cache_explanation if explains_cache else None]),
        },
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {
            "reasoning_tokens": reasoning_tokens,
            "jumped_tokens": usage.jumped_tokens,
            "drafted_tokens": usage.drafted_tokens,
            "sampled_tokens": usage.sampled_tokens,
            **drop_details(usage),
        },
        "total_tokens": usage.total_tokens,
    }
