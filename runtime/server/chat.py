"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..request import Delta
from .answering import respond
from .body import read_request
from .outputs import Output, gather, shown_logprobs
from .prepare import PreparedChat, prepare_chat
from .protocol import ChatRequest
from .replies import Header, chat_choice, chat_logprobs, chunk_choice, finish_reason, usage_body
from .service import Service
from .stream import DONE, frame
from .tools import new_call_id, tool_call


def chat_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions", openapi_extra=request_schema(ChatRequest))
    async def chat_completions(request: Request) -> Response:
        body = await read_request(request, ChatRequest, service.settings)
        service.check_ready()
        model = service.check_model(body.model)
        header = Header("chatcmpl", "chat.completion", model, service.fingerprint)
        answer = ChatAnswer(service, body, header, service.api_key(request.state))
        return await respond(service, request, answer, stream=bool(body.stream))

    return router


def request_schema(model: type[ChatRequest]) -> dict[str, Any]:
    """The body's schema for /openapi.json (bodies are read by hand, so FastAPI does not know it)."""
    schema = model.model_json_schema(ref_template=f"#/components/schemas/{model.__name__}/$defs/{{model}}")
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


class ChatAnswer:
    """One request's way to its answer, whole or as a stream of frames."""

    def __init__(self, service: Service, body: ChatRequest, header: Header, api_key: str | None) -> None:
        self._service = service
        self._body = body
        self._header = header
        self._api_key = api_key
        self._clock = service.metrics.clock()
        self._tokenizer = service.engine.tokenizer

    async def _prepare(self) -> PreparedChat:
        return await self._service.on_worker(prepare_chat, self._service.engine, self._body, self._api_key)

    async def whole(self) -> dict[str, Any]:
        prepared = await self._prepare()
        async with aclosing(self._service.deltas([prepared.call])) as deltas:
            [outputs] = await gather(deltas, 1, self._body.n, self._tokenizer.eos_ids, self._clock)
        choices = [self._choice(index, output, prepared) for index, output in enumerate(outputs)]
        return self._header.body(choices) | {"usage": usage_body([[output.usage for output in outputs]])}

    def _choice(self, index: int, output: Output, prepared: PreparedChat) -> dict[str, Any]:
        logprobs = chat_logprobs(output.logprobs, self._tokenizer) if self._body.logprobs else None
        plan = prepared.tools
        call = tool_call(plan, output.text) if plan is not None else None
        named = self._body.tool_choice != "required"
        return chat_choice(index, output.text, output.reason, logprobs, call, named=named)

    async def frames(self) -> AsyncGenerator[bytes]:
        with self._service.lifecycle.track():
            prepared = await self._prepare()
            pieces = ToolPieces(prepared) if prepared.tools is not None else None
            usages: dict[int, Any] = {}
            async with aclosing(self._service.deltas([prepared.call])) as deltas:
                async for _, delta in deltas:
                    self._clock.tick(delta.index, delta.finish_reason)
                    choices = [] if delta.index in usages else [chunk_choice(delta.index, _opening(pieces))]
                    usages[delta.index] = delta.usage
                    choices += self._chunks(delta, pieces)
                    if choices:
                        yield b"".join([self._frame(choice, usages) for choice in choices])
            self._clock.end()
            options = self._body.stream_options
            if options is not None and options.include_usage:
                usage = {"usage": usage_body([[usages[index] for index in sorted(usages)]])}
                yield frame(self._header.body([], chunk=True) | usage)
            yield DONE

    def _chunks(self, delta: Delta, pieces: ToolPieces | None) -> list[dict[str, Any]]:
        logprobs = None
        if self._body.logprobs:
            shown = shown_logprobs(delta, self._tokenizer.eos_ids)
            logprobs = chat_logprobs(shown, self._tokenizer) if shown else None
        content: dict[str, Any] | None = {"content": delta.text} if delta.text else None
        if pieces is not None:
            content = pieces.push(delta)
        chunks = []
        if content is not None or logprobs is not None:
            chunks.append(chunk_choice(delta.index, content or {"content": ""}, logprobs))
        if delta.finish_reason is not None:
            calls = pieces is not None and self._body.tool_choice == "required"
            chunks.append(chunk_choice(delta.index, {}, None, finish_reason(delta.finish_reason, tool_calls=calls)))
        return chunks

    def _frame(self, choice: dict[str, Any], usages: dict[int, Any]) -> bytes:
        body = self._header.body([choice], chunk=True)
        options = self._body.stream_options
        if options is not None and options.continuous_usage_stats:
            body["usage"] = usage_body([[usages[index] for index in sorted(usages)]])
        elif options is not None and options.include_usage:
            body["usage"] = None
        return frame(body)


def _opening(pieces: ToolPieces | None) -> dict[str, Any]:
    return {"role": "assistant", "content": "" if pieces is None else None, "refusal": None}


class ToolPieces:
    """A forced tool call as it streams: the arguments of a known tool piece by piece, else the call in one piece."""

    def __init__(self, prepared: PreparedChat) -> None:
        assert prepared.tools is not None
        self._plan = prepared.tools
        self._opened: set[int] = set()
        self._texts: dict[int, str] = {}

    def push(self, delta: Delta) -> dict[str, Any] | None:
        """The `delta` object for what arrived, or None if there is nothing to send yet."""
        if self._plan.name is None:
            self._texts[delta.index] = self._texts.get(delta.index, "") + delta.text
            if delta.finish_reason is None:
                return None
            return {"tool_calls": [{"index": 0, **tool_call(self._plan, self._texts[delta.index])}]}
        if delta.index in self._opened:
            return {"tool_calls": [{"index": 0, "function": {"arguments": delta.text}}]} if delta.text else None
        self._opened.add(delta.index)
        function = {"name": self._plan.name, "arguments": delta.text}
        return {"tool_calls": [{"index": 0, "id": new_call_id(), "type": "function", "function": function}]}
