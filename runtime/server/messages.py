"""POST /v1/messages: Anthropic's API on the same work, for agents that speak it.

Everything is the chat endpoint's (`messages_request`), but for how the answer is shown (`message_blocks`). Errors have
Anthropic's shape on these paths (`errors`).
"""

from __future__ import annotations

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
from .message_blocks import Event, MessageBlocks
from .messages_request import RENAMED, CountRequest, MessagesRequest
from .outputs import gather
from .prepare import PreparedChat, prepare_chat
from .service import Service
from .stream import frame
from .tool_calls import ContentReader, Reader

ANSWER = answer(None, "id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage")
COUNT = answer(None, "input_tokens")


def messages_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/messages", **described(ANSWER, MessagesRequest, streams=True))
    async def messages(request: Request) -> Response:
        body = await read_request(request, MessagesRequest, service.settings)
        service.check_ready()
        asked = MessagesAnswer(service, body, service.check_model(body.model), service.api_key(request.state))
        return await respond(service, request, asked, stream=bool(body.stream))

    @router.post("/v1/messages/count_tokens", **described(COUNT, CountRequest))
    async def count_tokens(request: Request) -> Response:
        """How many tokens the prompt has, tools and template included; nothing is computed."""
        body = await read_request(request, CountRequest, service.settings)
        service.check_ready()
        asked = MessagesAnswer(service, body, service.check_model(body.model), service.api_key(request.state))
        return Response(dump_json({"input_tokens": await asked.input_tokens()}), media_type="application/json")

    return router


class MessagesAnswer:
    """One request's way to its answer: a message, or the events that build it up."""

    def __init__(self, service: Service, body: CountRequest, model: str, api_key: str | None) -> None:
        self._service = service
        self._body = body
        self._model = model
        self._api_key = api_key
        self._clock = service.metrics.clock()
        self._id = f"msg_{uuid.uuid4().hex}"

    async def input_tokens(self) -> int:
        with callers_names(RENAMED):
            return len((await self._prepare()).call.prompt_ids)

    async def whole(self) -> dict[str, Any]:
        with callers_names(RENAMED):
            prepared = await self._prepare()
            eos_ids = self._service.engine.tokenizer.eos_ids
            async with aclosing(self._service.deltas([prepared.call])) as deltas:
                [[output]] = await gather(deltas, 1, 1, eos_ids, self._clock)
        blocks, reader = MessageBlocks(), _reader(prepared)
        blocks.push(reader.push(output.text, is_last=True))
        blocks.end()
        ending = _ending(output.reason, output.stopped_by, blocks, reader)
        return self._message(blocks.blocks, output.usage) | ending

    async def frames(self) -> AsyncGenerator[bytes]:
        with self._service.lifecycle.track(), callers_names(RENAMED):
            prepared = await self._prepare()
            blocks, reader, opened = MessageBlocks(), _reader(prepared), False
            async with aclosing(self._service.deltas([prepared.call])) as deltas:
                async for _, delta in deltas:
                    self._clock.tick(0, delta.finish_reason)
                    events: list[Event] = []
                    if not opened:
                        opened = True
                        begun = self._message([], delta.usage) | {"stop_reason": None, "stop_sequence": None}
                        events.append({"type": "message_start", "message": begun})
                    events += blocks.push(reader.push(delta.text, is_last=delta.finish_reason is not None))
                    if delta.finish_reason is not None:
                        events += blocks.end()
                        ending = _ending(delta.finish_reason, delta.stopped_by, blocks, reader)
                        events.append({"type": "message_delta", "delta": ending, "usage": _usage(delta.usage)})
                        events.append({"type": "message_stop"})
                    if events:
                        yield b"".join([frame(event, event["type"]) for event in events])
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

    def _message(self, content: list[dict[str, Any]], usage: Usage) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "usage": _usage(usage),
        }


def _reader(prepared: PreparedChat) -> Reader:
    return prepared.reader() if prepared.reader is not None else ContentReader()


def _ending(
    reason: FinishReason | None, stopped_by: str | int | None, blocks: MessageBlocks, reader: Reader
) -> dict[str, Any]:
    """Why the message ends, in Anthropic's words. "tool_use" only if every call is whole."""
    if reason is FinishReason.LENGTH:
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    if not reader.in_call and any(block["type"] == "tool_use" for block in blocks.blocks):
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if isinstance(stopped_by, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": stopped_by}
    return {"stop_reason": "end_turn", "stop_sequence": None}


def _usage(usage: Usage) -> dict[str, int]:
    """Anthropic counts what was read from the cache apart."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion_tokens,
    }
