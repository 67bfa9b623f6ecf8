"""The small routes: models, health, metrics, version, tokenisation."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..tokenizer.no_tokenizer import refuse_text
from .body import read_request
from .description import answer, described
from .errors import json_response, unavailable
from .host_check import check_origin
from .prepare import chat_prompt, check_tokens, prompt_tokens
from .protocol import DetokenizeRequest, TokenizeRequest
from .service import Service

HUNG_AFTER = 120.0  # seconds without a sign of life from a busy step thread


def info_router(service: Service) -> APIRouter:
    router = APIRouter()
    _add_models(router, service)
    _add_states(router, service)
    _add_tokens(router, service)
    return router


def _add_models(router: APIRouter, service: Service) -> None:
    created = int(time.time())

    def card(name: str) -> dict[str, Any]:
        adapter = service.adapter_of(name)
        return {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "phloem",
            "root": service.settings.model_name if adapter is None else name,
            "parent": None if adapter is None else service.settings.model_name,
            "max_model_len": service.max_model_len,
        }

    @router.get("/v1/models", **described(answer("list", "data")))
    async def models() -> Response:
        return json_response(
            {"object": "list", "data": [card(name) for name in (*service.model_names, *service.adapter_names())]}
        )

    @router.get("/v1/models/{name:path}", **described(answer("model", "id")))
    async def model(name: str) -> Response:
        return json_response(card(service.check_model(name)))


def _add_states(router: APIRouter, service: Service) -> None:
    @router.get("/health", **described(answer(None, "status")))
    async def health() -> Response:
        """200 while the process can serve, also while it drains; 503 when the step thread is dead or hangs."""
        silence = time.monotonic() - service.async_engine.last_step_at
        busy = service.async_engine.statistics().num_running > 0
        if not service.async_engine.is_alive or (busy and silence > HUNG_AFTER):
            raise unavailable("The engine has stopped.", service.settings.retry_after)
        return json_response({"status": "ok"})

    @router.get("/ready", **described(answer(None, "status")))
    async def ready() -> Response:
        """200 while new requests are taken."""
        service.check_ready()
        return json_response({"status": "ready"})

    @router.get("/version", **described(answer(None, "version")))
    async def version() -> Response:
        return json_response({"version": service.version})

    @router.get("/metrics", **described({"type": "string"}, media_type="text/plain"))
    async def metrics() -> Response:
        return Response(service.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @router.get("/statistics", **described(answer()))
    async def statistics() -> Response:
        """Queue, pool and counters, as on /metrics, for people."""
        found = service.async_engine.statistics()
        return json_response({**dataclasses.asdict(found), "hit_rate": round(found.hit_rate, 4)})

    @router.get("/cache", **described(answer()))
    async def cache() -> Response:
        """Occupancy, hit rate and what other pools would have brought; the tree, with text, with admin rights only."""
        return json_response(await service.cache_report())


def _add_tokens(router: APIRouter, service: Service) -> None:
    @router.post("/tokenize", **described(answer(None, "tokens", "count", "max_model_len"), TokenizeRequest))
    async def tokenize(request: Request) -> Response:
        body = await read_request(request, TokenizeRequest, service.settings)
        adapter = service.adapter_of(service.check_model(body.model))
        if not service.engine.tokenizer.has_text:
            refuse_text("prompt" if body.messages is None else "messages", "send token ids to /v1/completions")
        token_ids = await service.on_worker(_tokenize, service, body, adapter)
        return json_response({"tokens": token_ids, "count": len(token_ids), "max_model_len": service.max_model_len})

    @router.post("/detokenize", **described(answer(None, "prompt"), DetokenizeRequest))
    async def detokenize(request: Request) -> Response:
        body = await read_request(request, DetokenizeRequest, service.settings)
        service.check_model(body.model)
        if not service.engine.tokenizer.has_text:
            refuse_text("tokens", "its token ids stand for no text, so use them as they are")
        check_tokens(service.engine.tokenizer, body.tokens)
        return json_response({"prompt": service.engine.tokenizer.decode(body.tokens)})


def admin_router(service: Service) -> APIRouter:
    """Routes that show or change what all callers share."""
    router = APIRouter()

    @router.post("/flush_cache", **described(answer(None, "num_freed_blocks")))
    async def flush_cache(request: Request) -> Response:
        check_origin(request.headers, service.settings.cors_origins)
        num_freed = await asyncio.to_thread(service.engine.flush_cache)
        return json_response({"num_freed_blocks": num_freed})

    return router


def _tokenize(service: Service, body: TokenizeRequest, adapter: str | None) -> list[int]:
    if body.prompt is None:
        return list(chat_prompt(service.engine, body, adapter=adapter).token_ids)
    if not body.prompt:
        return []
    return list(prompt_tokens(service.engine, body, body.prompt))
