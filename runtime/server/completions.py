"""POST /v1/completions: raw text or token ids, one or many prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..request import Delta
from .answer import Asked, Frame, respond
from .description import answer, described
from .errors import invalid
from .formats.events import Content, Event
from .prepare import EngineCall
from .protocol import CompletionRequest
from .replies import Choices, CompletionLogprobs, Output, endings
from .service import Service

ANSWER = answer("text_completion", "id", "created", "model", "choices", "usage")


def completions_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/completions", **described(ANSWER, CompletionRequest, streams=True))
    async def completions(request: Request) -> Response:
        body, model = await service.read(request, CompletionRequest)
        limit = min(service.settings.max_outputs, service.engine.config.max_waiting_requests)
        if len(body.prompt) * body.n > limit:
            text = f"{len(body.prompt)} prompts with n={body.n} are more than {limit} outputs; send fewer at a time."
            raise invalid(text, "prompt")

        async def ask() -> Asked:
            calls = await service.prepare_prompts(request, body)
            return Asked(calls, CompletionShape(service, body, model, calls))

        return await respond(service, request, ask, stream=body.stream)

    return router


class TextOutput(Output):
    """One output, and what has come of it; logprobs: shows those of chunks, and keeps their offset."""

    def __init__(self, call: EngineCall, echoed: str, logprobs: CompletionLogprobs) -> None:
        super().__init__()
        self.call = call
        self.texts = [echoed]
        self.chunk_logprobs = logprobs


class CompletionShape:
    """A completion, or its chunks. Output i of prompt p is choice `p * n + i`."""

    def __init__(self, service: Service, body: CompletionRequest, model: str, calls: Sequence[EngineCall]) -> None:
        self._body = body
        self._tokenizer = tokenizer = service.engine.tokenizer
        self._choices = Choices(service, "text_completion", model, body.stream_options, calls)
        echoed = [tokenizer.decode(call.prompt_ids) if body.echo else "" for call in calls]
        self._outputs = [
            TextOutput(call, echo, CompletionLogprobs(tokenizer, as_ids=body.return_tokens_as_token_ids))
            for call, echo in zip(calls, echoed, strict=True)
            for _ in range(body.n)
        ]

    def push(self, prompt: int, delta: Delta, events: Sequence[Event]) -> list[Frame]:
        body, index = self._body, prompt * self._body.n + delta.index
        usages, output = self._choices.usages[prompt], self._outputs[index]
        is_first = delta.index not in usages
        usages[delta.index] = delta.usage
        said = "".join(event.text for event in events if isinstance(event, Content))
        if not body.stream:
            output.texts.append(said)
            output.logprobs[:0] = delta.prompt_logprobs
            output.push(delta, delta.logprobs, delta.finish_reason)
            return []
        text = output.texts[0] + said if is_first else said
        shows_ids = body.return_token_ids and bool(delta.token_ids)
        if not (text or delta.logprobs or shows_ids or delta.finish_reason is not None):
            return []
        logprobs = output.chunk_logprobs.body(delta.logprobs) if body.logprobs is not None else None
        choice = _choice(index, text, delta.finish_reason, logprobs)
        choice |= endings(delta.stopped_by, delta.token_ids if shows_ids else None)
        if is_first and body.return_token_ids:
            choice["prompt_token_ids"] = list(output.call.prompt_ids)
        return [(None, self._choices.chunk(choice))]

    def end(self) -> bytes:
        return self._choices.end()

    def whole(self) -> dict[str, Any]:
        return self._choices.whole([self._whole(index, output) for index, output in enumerate(self._outputs)])

    def _whole(self, index: int, output: TextOutput) -> dict[str, Any]:
        body, prompt_ids = self._body, output.call.prompt_ids
        logprobs = None
        if body.logprobs is not None:
            first = prompt_ids[0] if body.scores_prompt and not body.logprob_start_len else None
            shown = CompletionLogprobs(self._tokenizer, as_ids=body.return_tokens_as_token_ids)
            logprobs = shown.body(output.logprobs, first_unscored=first)
        choice = _choice(index, "".join(output.texts), output.reason, logprobs)
        choice |= output.endings(shows_ids=body.return_token_ids)
        return choice | ({"prompt_token_ids": list(prompt_ids)} if body.return_token_ids else {})


def _choice(index: int, text: str, reason: str | None, logprobs: dict[str, Any] | None) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
