"""What a request's prompt is in tokens, and nothing computed: vLLM's render routes.

A router that knows which tokens each worker has cached (llm-d's precise prefix scoring) asks them for a request's own.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from .description import answer, described
from .errors import json_response
from .prepare import EngineCall
from .protocol import ChatRequest, CompletionRequest
from .service import Service

ANSWER = answer(None, "model", "token_ids", "features")


def render_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/chat/completions/render", **described(ANSWER, ChatRequest))
    async def chat(request: Request) -> Response:
        body, model = await service.read(request, ChatRequest)
        prepared = await service.prepare(request, body)
        return json_response(_shown(model, prepared.call))

    @router.post("/v1/completions/render", **described({"type": "array", "items": ANSWER}, CompletionRequest))
    async def completions(request: Request) -> Response:
        """One for each prompt."""
        body, model = await service.read(request, CompletionRequest)
        calls = await service.prepare_prompts(request, body)
        return json_response([_shown(model, call) for call in calls])

    return router


def _shown(model: str, call: EngineCall) -> dict[str, Any]:
    """features: of images, which there are none of."""
    return {"model": model, "token_ids": list(call.prompt_ids), "features": None}
