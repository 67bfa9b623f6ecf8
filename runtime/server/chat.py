"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..request import Delta, Usage
from .answering import respond
from .body import read_request
from .description import answer, described
from .outputs import Output, gather, shown_logprobs
from .prepare import PreparedChat
from .protocol import ChatRequest
from .replies import Header, chat_choice, chat_logprobs, chunk_choice, endings, finish_reason, usage_body
from .request_record import RequestRecord
from .service import Service
from .stream import DONE, frame
from .thought_tokens import ReasoningTokens
from .tool_calls import CallBegun, Reader, deltas_of, gathered
from .tools import ToolPlan

ANSWER = answer("chat.completion", "id", "created", "model", "choices", "usage")


def chat_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions", **described(ANSWER, ChatRequest, streams=True))
    async def chat_completions(request: Request) -> Response:
        body = await read_request(request, ChatRequest, service.settings)
        service.check_ready()
        model = service.check_model(body.model)
        header = Header("chatcmpl", "chat.completion", model, service.fingerprint)
        asked = ChatAnswer(service, body, header, service.api_key(request.state), request.state.record)
        return await respond(service, request, asked, stream=bool(body.stream))

    return router


class ChatAnswer:
    """One request's way to its answer, whole or as a stream of frames."""

    def __init__(
        self, service: Service, body: ChatRequest, header: Header, api_key: str | None, record: RequestRecord
    ) -> None:
        self._service = service
        self._body = body
        self._header = header
        self._api_key = api_key
        self._record = record
        self._clock = service.metrics.clock()
        self._tokenizer = service.engine.tokenizer

    async def whole(self) -> dict[str, Any]:
        prepared = await self._service.prepare(self._body, self._body.model, self._api_key)
        async with aclosing(self._service.deltas([prepared.call], self._record)) as deltas:
            [outputs] = await gather(deltas, 1, self._body.n, self._tokenizer.eos_ids, self._clock)
        choices = [self._choice(index, output, prepared) for index, output in enumerate(outputs)]
        counter = ReasoningTokens(prepared.new_counter)
        for index, output in enumerate(outputs):
            counter.push(index, output.token_ids)
        usage = usage_body([[output.usage for output in outputs]], reasoning_tokens=counter.total)
        transfer = self._service.transfer_params(self._header.id, [prepared.call])
        body = self._header.body(choices) | {"usage": usage} | transfer
        return body | ({"prompt_token_ids": list(prepared.call.prompt_ids)} if self._body.return_token_ids else {})

    def _choice(self, index: int, output: Output, prepared: PreparedChat) -> dict[str, Any]:
        logprobs = chat_logprobs(output.logprobs, self._tokenizer) if self._body.logprobs else None
        plan = prepared.tools
        found = gathered(prepared.reader(), output.text)
        named = plan is not None and plan.is_named
        reason = finish_reason(output.reason, tool_calls=bool(found.calls) and not named and not found.is_cut)
        token_ids = output.token_ids if self._body.return_token_ids else None
        return chat_choice(index, found, reason, logprobs, endings(output.stopped_by, token_ids))

    async def frames(self) -> AsyncGenerator[bytes]:
        with self._service.lifecycle.track():
            prepared = await self._service.prepare(self._body, self._body.model, self._api_key)
            pieces = Pieces(prepared.reader, prepared.tools)
            usages: dict[int, Usage] = {}
            counter = ReasoningTokens(prepared.new_counter)
            async with aclosing(self._service.deltas([prepared.call], self._record)) as deltas:
                async for _, delta in deltas:
                    self._clock.tick(delta.index, delta)
                    is_first = not usages
                    choices = [] if delta.index in usages else [chunk_choice(delta.index, _opening(pieces))]
                    usages[delta.index] = delta.usage
                    counter.push(delta.index, delta.token_ids)
                    choices += self._chunks(delta, pieces)
                    bodies = [self._chunk(choice, usages, counter) for choice in choices]
                    if is_first and self._body.return_token_ids:
                        bodies[0]["prompt_token_ids"] = list(prepared.call.prompt_ids)
                    if bodies:
                        yield b"".join([frame(body) for body in bodies])
            self._clock.end()
            options = self._body.stream_options
            if options is not None and options.include_usage:
                usage = {"usage": _usage(usages, counter)}
                yield frame(self._header.body([], chunk=True) | usage)
            yield DONE

    def _chunks(self, delta: Delta, pieces: Pieces) -> list[dict[str, Any]]:
        logprobs = None
        if self._body.logprobs:
            shown = shown_logprobs(delta, self._tokenizer.eos_ids)
            logprobs = chat_logprobs(shown, self._tokenizer) if shown else None
        contents = pieces.push(delta)
        shows_ids = self._body.return_token_ids and bool(delta.token_ids)
        if (logprobs is not None or shows_ids) and not contents:
            contents = [{"content": ""}]
        chunks = [chunk_choice(delta.index, content) for content in contents]
        if chunks:  # a token is shown once
            chunks[0] |= {"logprobs": logprobs} | ({"token_ids": list(delta.token_ids)} if shows_ids else {})
        if delta.finish_reason is not None:
            reason = finish_reason(delta.finish_reason, tool_calls=pieces.ends_with_calls(delta.index))
            chunks.append(chunk_choice(delta.index, {}, None, reason) | endings(delta.stopped_by, None))
        return chunks

    def _chunk(self, choice: dict[str, Any], usages: dict[int, Usage], counter: ReasoningTokens) -> dict[str, Any]:
        body = self._header.body([choice], chunk=True)
        options = self._body.stream_options
        if options is not None and options.continuous_usage_stats:
            body["usage"] = _usage(usages, counter)
        elif options is not None and options.include_usage:
            body["usage"] = None
        return body


def _usage(usages: dict[int, Usage], counter: ReasoningTokens) -> dict[str, Any]:
    return usage_body([[usages[index] for index in sorted(usages)]], reasoning_tokens=counter.total)


def _opening(pieces: Pieces) -> dict[str, Any]:
    is_call = pieces.plan is not None and pieces.plan.is_forced
    return {"role": "assistant", "content": None if is_call else "", "refusal": None}


class Pieces:
    """The readers of one answer's outputs."""

    def __init__(self, new_reader: Callable[[], Reader], plan: ToolPlan | None) -> None:
        self.plan = plan
        self._new_reader = new_reader
        self._readers: dict[int, Reader] = {}
        self._with_calls: set[int] = set()

    def push(self, delta: Delta) -> list[dict[str, Any]]:
        """The `delta` objects for what arrived."""
        reader = self._readers.get(delta.index)
        if reader is None:
            reader = self._readers[delta.index] = self._new_reader()
        pieces = reader.push(delta.text, is_last=delta.finish_reason is not None)
        if any(isinstance(piece, CallBegun) for piece in pieces):
            self._with_calls.add(delta.index)
        return deltas_of(pieces)

    def ends_with_calls(self, index: int) -> bool:
        """Whether the finish reason of this output is its calls: not where one of them is cut short."""
        if index not in self._with_calls or self._readers[index].in_call:
            return False
        return not (self.plan is not None and self.plan.is_named)
