"""The HTTP application: routes, the gate before them, and errors in one shape. Knows the async engine, not the step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response

from ...errors import PhloemError
from .adapters import adapters_router
from .chat import chat_router
from .completions import completions_router
from .description import document
from .embeddings import embeddings_router
from .errors import ApiError
from .gate import Gate
from .info import admin_router, info_router
from .messages import messages_router
from .messages_request import CountRequest, MessagesRequest
from .page.recent_requests import RecentRequests
from .page.router import page_router
from .program_text import ProgramTextRequest, program_text_router
from .protocol import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    LoadAdapterRequest,
    TokenizeRequest,
    UnloadAdapterRequest,
)
from .render import render_router
from .request_record import RequestRecord
from .response_request import ResponsesRequest
from .responses import responses_router
from .scores import scores_router
from .service import Service
from .settings import ServerSettings
from .vectors_request import EmbeddingRequest, RerankRequest, ScoreRequest
from .worker_info import worker_info_router

if TYPE_CHECKING:
    from ..engine.async_engine import AsyncEngine
    from .tracing import Tracing


OPTIONAL = {
    "/flush_cache": "--enable-admin",
    "/v1/load_lora_adapter": "--enable-adapter-loading",
    "/v1/unload_lora_adapter": "--enable-adapter-loading",
    "/": "--page",
}
"""The option of a route that a server has only with it."""

BODIES: list[type[BaseModel]] = [
    ChatRequest,
    CompletionRequest,
    ResponsesRequest,
    MessagesRequest,
    CountRequest,
    EmbeddingRequest,
    ScoreRequest,
    RerankRequest,
    TokenizeRequest,
    DetokenizeRequest,
    ProgramTextRequest,
    LoadAdapterRequest,
    UnloadAdapterRequest,
]


def create_app(
    async_engine: AsyncEngine, settings: ServerSettings | None = None, tracing: Tracing | None = None
) -> FastAPI:
    """An ASGI application that serves `async_engine`; the caller closes the engine.

    `app.state.service` is its `Service`; its lifecycle says whether requests are taken.

    Args:
        tracing: where traces go, instead of to the settings' `otlp_traces_endpoint`; closed with the application.
    """
    service = Service(async_engine, settings or ServerSettings(), version("phloem"))
    if tracing is None and service.settings.otlp_traces_endpoint is not None:
        from .tracing import tracing_to

        tracing = tracing_to(service.settings.otlp_traces_endpoint, service.settings, service.version)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        service.open()
        yield
        service.close()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    # No /docs: its page would load scripts from a foreign host. /openapi.json is there.
    app = Application(title="phloem", version=service.version, docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.service = service
    for make in (
        chat_router,
        completions_router,
        responses_router,
        messages_router,
        embeddings_router,
        scores_router,
        info_router,
        worker_info_router,
        render_router,
        program_text_router,
    ):
        app.include_router(make(service))
    if service.settings.admin:
        app.include_router(admin_router(service))
    if service.settings.adapter_loading:
        app.include_router(adapters_router(service))
    recent = None
    if service.settings.page:
        recent = RecentRequests(service.settings.model_name, shows_text=service.settings.admin)
        app.include_router(page_router(service, recent))
    _handle_errors(app, service)
    new_record = tracing.record if tracing is not None else lambda _: RequestRecord()
    app.add_middleware(Gate, settings=service.settings, metrics=service.metrics, new_record=new_record, recent=recent)
    if service.settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(service.settings.cors_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "Retry-After"],
        )
    return app


class Application(FastAPI):
    """FastAPI, but for how it describes itself."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            self.openapi_schema = document(self, BODIES, asks_for_key=bool(self.state.service.settings.api_keys))
        return self.openapi_schema


def _handle_errors(app: FastAPI, service: Service) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            found = _http_error(request, error)
        else:
            found = service.explain(error, request.state.request_id)
        request.state.record.fail(found.code, found.param)
        return found.response(request.url.path)

    for kind in (ApiError, PhloemError, HTTPException):
        app.add_exception_handler(kind, answer)


def _remedy(path: str) -> str:
    """The option that a route wants, or what a client was told wrongly, if the path shows that."""
    if path in OPTIONAL:
        return f" The server has it when it is started with {OPTIONAL[path]}."
    if path.startswith("/v1/v1/"):
        return " Leave /v1 out of the client's base URL."
    if path in ("/chat/completions", "/completions", "/responses", "/embeddings", "/messages", "/models"):
        return " The client's base URL lacks /v1 at its end."
    return ""


def _http_error(request: Request, error: HTTPException) -> ApiError:
    """404 and 405 of the router, in OpenAI's words."""
    place = f"{request.method} {request.url.path[:200]}"
    if error.status_code == 404:
        return ApiError(404, f"Invalid URL ({place}).{_remedy(request.url.path)}", code="unknown_url")
    if error.status_code == 405:
        text = f"Not allowed: {place}. (HINT: Perhaps you meant to use a different HTTP method?)"
        return ApiError(405, text, code="method_not_supported", headers=error.headers)
    return ApiError(error.status_code, str(error.detail), headers=error.headers)
