"""POST /v1/responses: OpenAI's newer face on the same work. Stateless: text in, text or JSON out.

Nothing is stored, so `previous_response_id` is refused, and so are tools; everything else is the chat endpoint's.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BeforeValidator, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from ..request import Delta, FinishReason, Usage
from .answering import respond
from .body import read_request
from .errors import ApiError
from .outputs import gather
from .prepare import PreparedChat, prepare_chat
from .protocol import Body, ChatRequest, Generation, Message, ResponseFormat, Schema, fault
from .replies import cache_details, pin_details
from .service import Service
from .stream import frame
from .thought_tokens import ReasoningTokens
from .tool_calls import Content, Reader, gathered

# names of the chat endpoint's fields in error messages → the field that the caller sent
RENAMED = (("response_format.json_schema", "text.format"), ("response_format", "text.format"), ("messages", "input"))


def _input(value: object) -> object:
    """A text is a user's message; items are messages."""
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise fault("input_type", "Expected a string or a non-empty array of messages")
    for item in items:
        kind = item.get("type", "message") if isinstance(item, dict) else None
        if kind != "message":
            raise fault("input", f"Input items of type {str(kind)[:40]!r} are not supported; send messages")
    return items


class TextFormat(Body):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = ""
    strict: bool = False
    schema_: Schema | None = Field(default=None, alias="schema")


class TextOptions(Body):
    format: TextFormat = TextFormat()


class ReasoningOptions(Body):
    effort: Annotated[str | None, Field(max_length=32)] = None


class ResponsesRequest(Generation):
    input: Annotated[list[Message], BeforeValidator(_input)]
    instructions: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions = ReasoningOptions()
    tools: list[Any] = Field(default_factory=list)
    previous_response_id: str | None = None
    background: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _supported(self) -> ResponsesRequest:
        if self.tools:
            raise fault("tools", "'tools' are not supported here; use /v1/chat/completions")
        if self.previous_response_id is not None:
            raise fault("previous_response_id", "Responses are not stored; send the whole conversation as 'input'")
        if self.background:
            raise fault("background", "'background' is not supported")
        if self.n != 1:
            raise fault("n", "'n' is not supported here; use /v1/chat/completions")
        return self

    def as_chat(self) -> ChatRequest:
        """The same request to the chat endpoint."""
        instructions = [Message(role="system", content=self.instructions)] if self.instructions else []
        wanted = self.text.format
        chat = ChatRequest.model_construct(
            messages=[*instructions, *self.input],
            max_tokens=self.max_output_tokens,
            reasoning_effort=self.reasoning.effort,
            **{name: getattr(self, name) for name in Generation.model_fields},
        )
        if wanted.type != "text":
            chat.response_format = ResponseFormat.model_construct(type=wanted.type, schema_=wanted.schema_)
        return chat


def responses_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/responses")
    async def responses(request: Request) -> Response:
        body = await read_request(request, ResponsesRequest, service.settings)
        service.check_ready()
        answer = ResponsesAnswer(service, body, service.check_model(body.model), service.api_key(request.state))
        return await respond(service, request, answer, stream=bool(body.stream))

    return router


class ResponsesAnswer:
    """One request's way to its answer: a response object, or the events that build it up."""

    def __init__(self, service: Service, body: ResponsesRequest, model: str, api_key: str | None) -> None:
        self._service = service
        self._body = body
        self._model = model
        self._api_key = api_key
        self._clock = service.metrics.clock()
        self._id = f"resp_{uuid.uuid4().hex}"
        self._item_id = f"msg_{uuid.uuid4().hex}"
        self._created_at = int(time.time())
        self._num_events = 0

    async def whole(self) -> dict[str, Any]:
        prepared = await self._prepare()
        eos_ids = self._service.engine.tokenizer.eos_ids
        async with aclosing(self._service.deltas([prepared.call])) as deltas:
            [[output]] = await gather(deltas, 1, 1, eos_ids, self._clock)
        text = output.text if prepared.reader is None else gathered(prepared.reader(), output.text).content
        counter = ReasoningTokens(prepared.thought, self._service.engine.tokenizer)
        counter.push(0, output.token_ids)
        return self._response(_status(output.reason), text, output.usage, counter.total)

    async def frames(self) -> AsyncGenerator[bytes]:
        with self._service.lifecycle.track():
            prepared = await self._prepare()
            text, opened = "", False
            reader = prepared.reader() if prepared.reader is not None else None
            counter = ReasoningTokens(prepared.thought, self._service.engine.tokenizer)
            async with aclosing(self._service.deltas([prepared.call])) as deltas:
                async for _, delta in deltas:
                    self._clock.tick(0, delta.finish_reason)
                    counter.push(0, delta.token_ids)
                    if not opened:
                        opened = True
                        yield self._opening()
                    fresh = delta.text if reader is None else _content(reader, delta)
                    if fresh:
                        text += fresh
                        yield self._event("output_text.delta", **self._place(), delta=fresh, logprobs=[])
                    if delta.finish_reason is not None:
                        yield self._closing(_status(delta.finish_reason), text, delta.usage, counter.total)
            self._clock.end()

    async def _prepare(self) -> PreparedChat:
        chat, service = self._body.as_chat(), self._service
        try:
            return await service.on_worker(
                prepare_chat, service.engine, chat, self._api_key, None, thinks_in_tags=service.thinks_in_tags
            )
        except ApiError as error:
            for theirs, ours in RENAMED:
                if error.param is not None and error.param.startswith(theirs):
                    error.param = ours + error.param.removeprefix(theirs)
                    break
            raise

    def _opening(self) -> bytes:
        response = self._response("in_progress", None, None)
        return b"".join(
            [
                self._event("created", response=response),
                self._event("in_progress", response=response),
                self._event("output_item.added", output_index=0, item=self._item("in_progress", None)),
                self._event("content_part.added", **self._place(), part=_part("")),
            ]
        )

    def _closing(self, status: str, text: str, usage: Usage, reasoning_tokens: int) -> bytes:
        return b"".join(
            [
                self._event("output_text.done", **self._place(), text=text, logprobs=[]),
                self._event("content_part.done", **self._place(), part=_part(text)),
                self._event("output_item.done", output_index=0, item=self._item(status, text)),
                self._event(status, response=self._response(status, text, usage, reasoning_tokens)),
            ]
        )

    def _event(self, name: str, **fields: Any) -> bytes:
        kind = f"response.{name}"
        body = {"type": kind, "sequence_number": self._num_events, **fields}
        self._num_events += 1
        return frame(body, kind)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item_id, "output_index": 0, "content_index": 0}

    def _item(self, status: str, text: str | None) -> dict[str, Any]:
        content = [_part(text)] if text is not None else []
        return {"id": self._item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _response(
        self, status: str, text: str | None, usage: Usage | None, reasoning_tokens: int = 0
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
            "output": [self._item(status, text)] if text is not None else [],
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": body.temperature,
            "text": {"format": body.text.format.model_dump(by_alias=True, exclude_unset=True) or {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": body.top_p,
            "usage": _usage(usage, caches, reasoning_tokens) if usage is not None else None,
        }


def _status(reason: FinishReason | None) -> str:
    return "incomplete" if reason is FinishReason.LENGTH else "completed"


def _content(reader: Reader, delta: Delta) -> str:
    """Of what arrived the part for the user; reasoning is left out here."""
    pieces = reader.push(delta.text, is_last=delta.finish_reason is not None)
    return "".join(piece.text for piece in pieces if isinstance(piece, Content))


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


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
