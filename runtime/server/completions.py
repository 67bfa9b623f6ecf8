"""POST /v1/completions: raw text or token ids, one or many prompts."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from .answering import respond
from .body import read_request
from .description import answer, described
from .errors import invalid
from .outputs import Output, gather
from .prepare import EngineCall
from .protocol import CompletionRequest
from .replies import CompletionLogprobs, Header, endings, text_choice, usage_body
from .request_record import RequestRecord
from .service import Service
from .stream import DONE, frame

ANSWER = answer("text_completion", "id", "created", "model", "choices", "usage")


def completions_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/completions", **described(ANSWER, CompletionRequest, streams=True))
    async def completions(request: Request) -> Response:
        body = await read_request(request, CompletionRequest, service.settings)
        service.check_ready()
        model = service.check_model(body.model)
        limit = min(service.settings.max_outputs, service.engine.config.max_waiting_requests)
        if len(body.prompt) * body.n > limit:
            text = f"{len(body.prompt)} prompts with n={body.n} are more than {limit} outputs; send fewer at a time."
            raise invalid(text, "prompt")
        header = Header("cmpl", "text_completion", model, service.fingerprint)
        asked = CompletionAnswer(service, body, header, service.api_key(request.state), request.state.record)
        return await respond(service, request, asked, stream=bool(body.stream))

    return router


class CompletionAnswer:
    """One request's way to its answer. Output i of prompt p is choice `p * n + i`."""

    def __init__(
        self, service: Service, body: CompletionRequest, header: Header, api_key: str | None, record: RequestRecord
    ) -> None:
        self._service = service
        self._body = body
        self._header = header
        self._api_key = api_key
        self._record = record
        self._clock = service.metrics.clock()
        self._tokenizer = service.engine.tokenizer

    async def whole(self) -> dict[str, Any]:
        calls = await self._service.prepare_prompts(self._body, self._api_key)
        n = self._body.n
        async with aclosing(self._service.deltas(calls, self._record)) as deltas:
            outputs = await gather(deltas, len(calls), n, (), self._clock)  # the end token's log-probability is shown
        choices = [
            self._choice(prompt * n + index, calls[prompt], output)
            for prompt, group in enumerate(outputs)
            for index, output in enumerate(group)
        ]
        usages = [[output.usage for output in group] for group in outputs]
        transfer = self._service.transfer_params(self._header.id, calls)
        return self._header.body(choices) | {"usage": usage_body(usages)} | transfer

    def _choice(self, index: int, call: EngineCall, output: Output) -> dict[str, Any]:
        logprobs = None
        if self._body.logprobs is not None:
            scored = list(output.prompt_logprobs) + output.logprobs
            first = call.prompt_ids[0] if self._body.echo else None
            logprobs = CompletionLogprobs(self._tokenizer).body(scored, first_unscored=first)
        choice = text_choice(index, self._echoed(call) + output.text, output.reason, logprobs)
        if self._body.return_token_ids:
            return choice | endings(output.stopped_by, output.token_ids) | {"prompt_token_ids": list(call.prompt_ids)}
        return choice | endings(output.stopped_by, None)

    def _echoed(self, call: EngineCall) -> str:
        return self._tokenizer.decode(call.prompt_ids) if self._body.echo else ""

    async def frames(self) -> AsyncGenerator[bytes]:
        with self._service.lifecycle.track():
            calls = await self._service.prepare_prompts(self._body, self._api_key)
            n = self._body.n
            usages: list[dict[int, Any]] = [{} for _ in calls]
            logprobs = [CompletionLogprobs(self._tokenizer) for _ in range(len(calls) * n)]
            async with aclosing(self._service.deltas(calls, self._record)) as deltas:
                async for prompt, delta in deltas:
                    index = prompt * n + delta.index
                    self._clock.tick(index, delta)
                    is_first = delta.index not in usages[prompt]
                    text = self._echoed(calls[prompt]) + delta.text if is_first else delta.text
                    usages[prompt][delta.index] = delta.usage
                    shown = delta.logprobs
                    shows_ids = self._body.return_token_ids and bool(delta.token_ids)
                    if text or shown or shows_ids or delta.finish_reason is not None:
                        scores = logprobs[index].body(shown) if self._body.logprobs is not None else None
                        choice = text_choice(index, text, delta.finish_reason, scores)
                        choice |= endings(delta.stopped_by, delta.token_ids if shows_ids else None)
                        if is_first and self._body.return_token_ids:
                            choice["prompt_token_ids"] = list(calls[prompt].prompt_ids)
                        yield self._frame(choice, usages)
            self._clock.end()
            options = self._body.stream_options
            if options is not None and options.include_usage:
                yield frame(self._header.body([]) | {"usage": _usage(usages)})
            yield DONE

    def _frame(self, choice: dict[str, Any], usages: list[dict[int, Any]]) -> bytes:
        body = self._header.body([choice])
        options = self._body.stream_options
        if options is not None and options.continuous_usage_stats:
            body["usage"] = _usage([usage for usage in usages if usage])
        elif options is not None and options.include_usage:
            body["usage"] = None
        return frame(body)


def _usage(usages: list[dict[int, Any]]) -> dict[str, Any]:
    return usage_body([[usage[index] for index in sorted(usage)] for usage in usages])
