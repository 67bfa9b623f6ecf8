"""POST /v1/messages: Anthropic's API on the same work, for agents that speak it.

Everything is the chat endpoint's (`messages_request`), but for how the answer is shown::

    Reasoning  ──►  {"type": "thinking", "thinking": …, "signature": ""}
    Content    ──►  {"type": "text", "text": …}
    CallBegun, Arguments  ──►  {"type": "tool_use", "id": …, "name": …, "input": {…}}

A call that was cut short has as much of its input as there is. Errors have Anthropic's shape on these paths (`errors`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter
from pydantic_core import from_json
from starlette.requests import Request
from starlette.responses import Response

from ..request import Delta, FinishReason, Usage
from .answer import Frame, input_tokens, respond_to_chat
from .description import answer, described
from .errors import json_response
from .formats.events import Arguments, CallBegun, Content, Event, Finish, Reasoning
from .messages_request import RENAMED, CountRequest, MessagesRequest
from .prepare import PreparedChat
from .service import Service

ANSWER = answer(None, "id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage")
COUNT = answer(None, "input_tokens")


def messages_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/messages", **described(ANSWER, MessagesRequest, streams=True))
    async def messages(request: Request) -> Response:
        body, model = await service.read(request, MessagesRequest)
        show = partial(MessageShape, model)
        return await respond_to_chat(service, request, body, show, stream=body.stream, renamed=RENAMED)

    @router.post("/v1/messages/count_tokens", **described(COUNT, CountRequest))
    async def count_tokens(request: Request) -> Response:
        return json_response({"input_tokens": await input_tokens(service, request, CountRequest, RENAMED)})

    return router


class MessageShape:
    """A message, or the events of the wire that build it up, block by block."""

    def __init__(self, model: str, prepared: PreparedChat) -> None:
        self._begun: dict[str, Any] = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": model,
        }
        self._blocks: list[dict[str, Any]] = []  # those that have ended
        self._open: dict[str, Any] | None = None  # the block as it begins
        self._texts: list[str] = []
        self._has_begun = False
        self._whole: dict[str, Any] = {}

    def push(self, prompt: int, delta: Delta, events: Sequence[Event]) -> list[Frame]:
        usage = _usage(delta.usage)
        shown: list[dict[str, Any]] = []
        if not self._has_begun:
            self._has_begun = True
            begun = self._begun | {"content": [], "usage": usage, "stop_reason": None, "stop_sequence": None}
            shown.append({"type": "message_start", "message": begun})
        for event in events:
            if isinstance(event, Finish):
                shown += self._end_block()
                ending = _ending(event)
                self._whole = self._begun | {"content": self._blocks, "usage": usage} | ending
                shown.append({"type": "message_delta", "delta": ending, "usage": usage})
                shown.append({"type": "message_stop"})
            else:
                shown += self._add(event)
        return [(body["type"], body) for body in shown]

    def end(self) -> bytes:
        return b""

    def whole(self) -> dict[str, Any]:
        return self._whole

    def _add(self, event: Event) -> list[dict[str, Any]]:
        """An event of the open block, or of the one that it begins."""
        begin, delta = _shown(event)
        shown = []
        if begin is not None and (begin["type"] == "tool_use" or begin != self._open):
            shown = self._end_block()
            self._open = begin
            shown.append({"type": "content_block_start", "index": len(self._blocks), "content_block": begin})
        if delta is not None:
            kind, text = delta
            self._texts.append(text)
            name = "partial_json" if kind == "input_json" else kind
            body = {"type": f"{kind}_delta", name: text}
            shown.append({"type": "content_block_delta", "index": len(self._blocks), "delta": body})
        return shown

    def _end_block(self) -> list[dict[str, Any]]:
        """The open block ends, if there is one."""
        if self._open is None:
            return []
        text, block = "".join(self._texts), dict(self._open)
        if block["type"] == "tool_use":
            block["input"] = _input_of(text)
        else:
            block[block["type"]] = text
        self._blocks.append(block)
        self._open, self._texts = None, []
        return [{"type": "content_block_stop", "index": len(self._blocks) - 1}]


def _shown(event: Event) -> tuple[dict[str, Any] | None, tuple[str, str] | None]:
    """The block that an event belongs to, as it begins (None: the open one), and what it adds: of which kind, and the
    text."""
    if isinstance(event, Content):
        return {"type": "text", "text": ""}, ("text", event.text)
    if isinstance(event, Reasoning):
        return {"type": "thinking", "thinking": "", "signature": ""}, ("thinking", event.text)
    if isinstance(event, CallBegun):
        return {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}, None
    return None, ("input_json", event.text) if isinstance(event, Arguments) else None


def _input_of(arguments: str) -> dict[str, Any]:
    """As much as there is; nothing if it is no object."""
    try:
        found = from_json(arguments, allow_partial=True)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _ending(finish: Finish) -> dict[str, Any]:
    """Why the message ends, in Anthropic's words. "tool_use" only if every call is whole."""
    if finish.reason is FinishReason.LENGTH:
        return {"stop_reason": "max_tokens", "stop_sequence": None}
    if finish.has_called:
        return {"stop_reason": "tool_use", "stop_sequence": None}
    if isinstance(finish.stopped_by, str):
        return {"stop_reason": "stop_sequence", "stop_sequence": finish.stopped_by}
    return {"stop_reason": "end_turn", "stop_sequence": None}


def _usage(usage: Usage) -> dict[str, int]:
    """Anthropic counts what was read from the cache apart."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": usage.completion_tokens,
    }
