"""POST /v1/messages: Anthropic's API on the same work, for agents that speak it.

Everything is the chat endpoint's (`messages_request`), but for how the answer is shown (`message_blocks`). Errors have
Anthropic's shape on these paths (`errors`).
"""

from __future__ import annotations

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
from .message_blocks import Event, MessageBlocks
from .messages_request import RENAMED, CountRequest, MessagesRequest
from .outputs import Output
from .prepare import PreparedChat
from .service import Service
from .single_answer import SingleAnswer
from .stream import frame
from .tool_calls import Reader

ANSWER = answer(None, "id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage")
COUNT = answer(None, "input_tokens")


def messages_router(service: Service) -> APIRouter:
    router = APIRouter()

    def asked(request: Request, body: CountRequest) -> SingleAnswer:
        service.check_ready()
        show = partial(ShownMessage, service.check_model(body.model))
        state = request.state
        return SingleAnswer(service, body, service.api_key(state), state.record, RENAMED, show)

    @router.post("/v1/messages", **described(ANSWER, MessagesRequest, streams=True))
    async def messages(request: Request) -> Response:
        body = await read_request(request, MessagesRequest, service.settings)
        return await respond(service, request, asked(request, body), stream=bool(body.stream))

    @router.post("/v1/messages/count_tokens", **described(COUNT, CountRequest))
    async def count_tokens(request: Request) -> Response:
        """How many tokens the prompt has, tools and template included; nothing is computed."""
        body = await read_request(request, CountRequest, service.settings)
        counted = {"input_tokens": await asked(request, body).input_tokens()}
        return Response(dump_json(counted), media_type="application/json")

    return router


class ShownMessage:
    """A message, or the events that build it up."""

    def __init__(self, model: str, prepared: PreparedChat) -> None:
        self._model = model
        self._id = f"msg_{uuid.uuid4().hex}"
        self._blocks = MessageBlocks()
        self._reader = prepared.reader()
        self._is_open = False

    def whole(self, output: Output) -> dict[str, Any]:
        blocks, reader = self._blocks, self._reader
        blocks.push(reader.push(output.text, is_last=True))
        blocks.end()
        ending = _ending(output.reason, output.stopped_by, blocks, reader)
        return self._message(blocks.blocks, output.usage) | ending

    def push(self, delta: Delta) -> bytes:
        blocks, reader = self._blocks, self._reader
        events: list[Event] = []
        if not self._is_open:
            self._is_open = True
            begun = self._message([], delta.usage) | {"stop_reason": None, "stop_sequence": None}
            events.append({"type": "message_start", "message": begun})
        events += blocks.push(reader.push(delta.text, is_last=delta.finish_reason is not None))
        if delta.finish_reason is not None:
            events += blocks.end()
            ending = _ending(delta.finish_reason, delta.stopped_by, blocks, reader)
            events.append({"type": "message_delta", "delta": ending, "usage": _usage(delta.usage)})
            events.append({"type": "message_stop"})
        return b"".join([frame(event, event["type"]) for event in events])

    def _message(self, content: list[dict[str, Any]], usage: Usage) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self._model,
            "content": content,
            "usage": _usage(usage),
        }


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
