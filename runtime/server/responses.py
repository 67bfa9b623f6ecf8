"""POST /v1/responses: OpenAI's newer face on the same work. Stateless: nothing is stored.

Everything is the chat endpoint's (`response_request`), but for how the answer is shown (`response_items`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..request import FinishReason, Usage
from .answering import respond
from .body import read_request
from .description import answer, described
from .errors import callers_names, dump_json
from .outputs import gather
from .prepare import PreparedChat, prepare_chat
from .replies import cache_details, pin_details
from .response_items import Event, ResponseItems
from .response_request import RENAMED, ResponsesRequest
from .service import Service
from .stream import frame
from .thought_tokens import ReasoningTokens
from .tool_calls import ContentReader, Reader

ANSWER = answer("response", "id", "created_at", "model", "status", "output", "usage")
COUNT = answer("response.input_tokens", "input_tokens")


def responses_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/responses", **described(ANSWER, ResponsesRequest, streams=True))
    async def responses(request: Request) -> Response:
        body = await read_request(request, ResponsesRequest, service.settings)
        service.check_ready()
        asked = ResponsesAnswer(service, body, service.check_model(body.model), service.api_key(request.state))
        return await respond(service, request, asked, stream=bool(body.stream))

    @router.post("/v1/responses/input_tokens", **described(COUNT, ResponsesRequest))
    async def input_tokens(request: Request) -> Response:
        """How many tokens the prompt has, tools and template included; nothing is computed."""
        body = await read_request(request, ResponsesRequest, service.settings)
        service.check_ready()
        asked = ResponsesAnswer(service, body, service.check_model(body.model), service.api_key(request.state))
        counted = {"object": "response.input_tokens", "input_tokens": await asked.input_tokens()}
        return Response(dump_json(counted), media_type="application/json")

    return router


class ResponsesAnswer:
    """One request's way to its answer: a response object, or the events that build it up."""

    def __init__(self, service: Service, body: ResponsesRequest, model: str, api_key: str | None) -> None:
        self._service = service
        self._body = body
        self._model = model
        self._api_key = api_key
        self._clock = service.metrics.clock()
        self._tokenizer = service.engine.tokenizer
        self._id = f"resp_{uuid.uuid4().hex}"
        self._created_at = int(time.time())
        self._num_events = 0

    async def input_tokens(self) -> int:
        with callers_names(RENAMED):
            return len((await self._prepare()).call.prompt_ids)

    async def whole(self) -> dict[str, Any]:
        with callers_names(RENAMED):
            prepared = await self._prepare()
            async with aclosing(self._service.deltas([prepared.call])) as deltas:
                [[output]] = await gather(deltas, 1, 1, self._tokenizer.eos_ids, self._clock)
        items, reader = ResponseItems(), _reader(prepared)
        items.push(reader.push(output.text, is_last=True))
        items.end(is_cut=output.reason is FinishReason.LENGTH, in_call=reader.in_call)
        counter = ReasoningTokens(prepared.new_counter)
        counter.push(0, output.token_ids)
        return self._response(_status(output.reason), items.items, output.usage, counter.total)

    async def frames(self) -> AsyncGenerator[bytes]:
        with self._service.lifecycle.track(), callers_names(RENAMED):
            prepared = await self._prepare()
            items, reader, opened = ResponseItems(), _reader(prepared), False
            counter = ReasoningTokens(prepared.new_counter)
            async with aclosing(self._service.deltas([prepared.call])) as deltas:
                async for _, delta in deltas:
                    self._clock.tick(0, delta.finish_reason)
                    counter.push(0, delta.token_ids)
                    events: list[Event] = [] if opened else self._opening()
                    opened = True
                    events += items.push(reader.push(delta.text, is_last=delta.finish_reason is not None))
                    if delta.finish_reason is not None:
                        is_cut = delta.finish_reason is FinishReason.LENGTH
                        events += items.end(is_cut=is_cut, in_call=reader.in_call)
                        status = _status(delta.finish_reason)
                        response = self._response(status, items.items, delta.usage, counter.total)
                        events.append((status, {"response": response}))
                    if events:
                        yield b"".join([self._frame(name, fields) for name, fields in events])
            self._clock.end()

    async def _prepare(self) -> PreparedChat:
        service = self._service
        return await service.on_worker(
            prepare_chat,
            service.engine,
            self._body.as_chat(),
            self._api_key,
            service.tool_format,
            thinks_in_tags=service.thinks_in_tags,
            adapter=service.adapter_of(self._body.model),
        )

    def _opening(self) -> list[Event]:
        response = self._response("in_progress", [], None)
        return [("created", {"response": response}), ("in_progress", {"response": response})]

    def _frame(self, name: str, fields: dict[str, Any]) -> bytes:
        kind = f"response.{name}"
        body = {"type": kind, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return frame(body, kind)

    def _response(
        self, status: str, output: list[dict[str, Any]], usage: Usage | None, reasoning_tokens: int = 0
    ) -> dict[str, Any]:
        body, caches = self._body, self._service.engine.config.prefix_cache
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
            "usage": _usage(usage, caches, reasoning_tokens) if usage is not None else None,
        }


def _status(reason: FinishReason | None) -> str:
    return "incomplete" if reason is FinishReason.LENGTH else "completed"


def _reader(prepared: PreparedChat) -> Reader:
    return prepared.reader() if prepared.reader is not None else ContentReader()


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
