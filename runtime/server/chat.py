"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..request import Delta, FinishReason, TokenLogprob
from .answer import Frame, respond_to_chat
from .description import answer, described
from .formats.events import Arguments, CallBegun, Content, Event, Finish, Reasoning
from .formats.reasoning_tokens import ReasoningTokens
from .prepare import PreparedChat
from .protocol import ChatRequest
from .replies import Choices, Output, chat_logprobs, endings
from .service import Service

ANSWER = answer("chat.completion", "id", "created", "model", "choices", "usage")


def chat_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions", **described(ANSWER, ChatRequest, streams=True))
    async def chat_completions(request: Request) -> Response:
        body, model = await service.read(request, ChatRequest)
        show = partial(ChatShape, service, body, model)
        renamed = () if body.max_completion_tokens is None else (("max_tokens", "max_completion_tokens"),)
        return await respond_to_chat(service, request, body, show, stream=body.stream, renamed=renamed)

    return router


class ChatOutput(Output):
    """What the events of one output have come to."""

    def __init__(self) -> None:
        super().__init__()
        self.details: list[dict[str, Any]] = []
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []

    def add(self, event: Event) -> None:
        if isinstance(event, Content):
            self._content.append(event.text)
        elif isinstance(event, Reasoning):
            self._reasoning.append(event.text)
        elif isinstance(event, CallBegun):
            function = {"name": event.name, "arguments": ""}
            self._calls.append({"id": event.id, "type": "function", "function": function})
        elif isinstance(event, Arguments):
            self._calls[event.index]["function"]["arguments"] += event.text

    def message(self) -> dict[str, Any]:
        content = "".join(self._content)
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if self._calls:
            message |= {"content": content or None, "tool_calls": self._calls}
        if self._reasoning:
            message["reasoning_content"] = "".join(self._reasoning)
        return message


class ChatShape:
    """A chat completion, or its chunks."""

    def __init__(self, service: Service, body: ChatRequest, model: str, prepared: PreparedChat) -> None:
        self._body = body
        self._plan = prepared.plan
        self._prompt_ids = prepared.call.prompt_ids
        self._prompt_pieces = prepared.prompt_pieces
        self._tokenizer = tokenizer = service.engine.tokenizer
        new_reader = prepared.reading.new_reader if prepared.reading.counts_thoughts else None
        self._tokens = ReasoningTokens(new_reader, tokenizer)
        self._choices = Choices(service, "chat.completion", model, body.stream_options, [prepared.call])
        self._outputs = [ChatOutput() for _ in range(body.n)]

    def push(self, prompt: int, delta: Delta, events: Sequence[Event]) -> list[Frame]:
        index, output = delta.index, self._outputs[delta.index]
        is_first, is_new = not self._choices.usages[0], index not in self._choices.usages[0]
        self._choices.usages[0][index] = delta.usage
        self._tokens.push(index, delta.token_ids)
        self._choices.reasoning_tokens = self._tokens.total
        logprobs = shown_logprobs(delta, self._tokenizer.eos_ids) if self._body.logprobs else ()
        finish = events[-1] if events and isinstance(events[-1], Finish) else None
        reason = self._reason(finish) if finish is not None else None
        if not self._body.stream:
            output.push(delta, logprobs, reason)
            output.details += self._details(delta)
            for event in events:
                output.add(event)
            return []
        choices = [_chunk(index, self._opening())] if is_new else []
        choices += self._chunks(delta, events, logprobs)
        if finish is not None:
            choices.append(_chunk(index, {}, reason) | endings(finish.stopped_by, None))
        if self._body.explain_tokens:
            for choice in choices:
                choice.setdefault("token_details", [])
        bodies = [self._choices.chunk(choice) for choice in choices]
        if is_first and bodies:
            bodies[0] |= self._prompt()
        return [(None, body) for body in bodies]

    def _chunks(self, delta: Delta, events: Sequence[Event], logprobs: Sequence[TokenLogprob]) -> list[dict[str, Any]]:
        """What the events add. The first chunk has the tokens, each of which is shown once."""
        contents = _deltas_of(events)
        shows_ids = self._body.return_token_ids and bool(delta.token_ids)
        if (logprobs or shows_ids or delta.token_notes) and not contents:
            contents = [{"content": ""}]
        chunks = [_chunk(delta.index, content) for content in contents]
        if chunks:
            chunks[0] |= {"logprobs": self._logprobs(logprobs) if logprobs else None}
            chunks[0] |= {"token_ids": list(delta.token_ids)} if shows_ids else {}
            chunks[0] |= {"token_details": self._details(delta)} if delta.token_notes else {}
        return chunks

    def _details(self, delta: Delta) -> list[dict[str, Any]]:
        """How each new token came about, if that was asked for."""
        return [
            {"id": one, "text": self._tokenizer.token_text(one), "how": note.how, "allowed": note.num_allowed}
            for one, note in zip(delta.token_ids, delta.token_notes, strict=False)
        ]

    def _prompt(self) -> dict[str, Any]:
        """The prompt, as far as it was asked for."""
        found: dict[str, Any] = {"prompt_token_ids": list(self._prompt_ids)} if self._body.return_token_ids else {}
        return found | ({"prompt_pieces": self._prompt_pieces} if self._body.explain_tokens else {})

    def end(self) -> bytes:
        return self._choices.end()

    def whole(self) -> dict[str, Any]:
        body = self._choices.whole([self._choice(index, output) for index, output in enumerate(self._outputs)])
        return body | self._prompt()

    def _choice(self, index: int, output: ChatOutput) -> dict[str, Any]:
        logprobs = self._logprobs(output.logprobs) if self._body.logprobs else None
        choice = {"index": index, "message": output.message(), "logprobs": logprobs, "finish_reason": output.reason}
        details = {"token_details": output.details} if self._body.explain_tokens else {}
        return choice | output.endings(shows_ids=self._body.return_token_ids) | details

    def _logprobs(self, logprobs: Sequence[TokenLogprob]) -> dict[str, Any]:
        return chat_logprobs(logprobs, self._tokenizer, as_ids=self._body.return_tokens_as_token_ids)

    def _opening(self) -> dict[str, Any]:
        is_call = self._plan is not None and self._plan.is_forced
        return {"role": "assistant", "content": None if is_call else "", "refusal": None}

    def _reason(self, finish: Finish) -> str:
        is_named = self._plan is not None and self._plan.is_named
        has_called = finish.reason is FinishReason.STOP and finish.has_called and not is_named
        return "tool_calls" if has_called else finish.reason.value


def shown_logprobs(delta: Delta, eos_ids: Sequence[int]) -> tuple[TokenLogprob, ...]:
    """Without the end token that closes a message, of `eos_ids`: it has no text."""
    logprobs = delta.logprobs
    if delta.finish_reason is FinishReason.STOP and logprobs and logprobs[-1].token_id in eos_ids:
        return logprobs[:-1]
    return logprobs


def _chunk(index: int, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}


def _deltas_of(events: Sequence[Event]) -> list[dict[str, Any]]:
    """The `delta` objects of chunks; a call that begins takes its first arguments along."""
    deltas: list[dict[str, Any]] = []
    begun: dict[str, Any] | None = None
    for event in events:
        if isinstance(event, Content):
            deltas.append({"content": event.text})
        elif isinstance(event, Reasoning):
            deltas.append({"reasoning_content": event.text})
        elif isinstance(event, CallBegun):
            begun = {"name": event.name, "arguments": ""}
            call = {"index": event.index, "id": event.id, "type": "function", "function": begun}
            deltas.append({"tool_calls": [call]})
        elif isinstance(event, Arguments) and begun is not None:
            begun["arguments"], begun = event.text, None
        elif isinstance(event, Arguments):
            deltas.append({"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]})
    return deltas
