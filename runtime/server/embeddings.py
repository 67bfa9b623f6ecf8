"""POST /v1/embeddings, as OpenAI has it: texts or token ids, one or many, to vectors."""

from __future__ import annotations

import base64
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...errors import RequestError
from ..readout import Rows
from ..request import RequestOptions
from .description import answer, described
from .errors import api_error, callers_names
from .prepare import EngineCall
from .service import Service
from .vector_calls import check_number, options_of, read_all, read_call, respond_whole, usage_of
from .vectors_request import EmbeddingRequest

ANSWER = answer("list", "data", "model", "usage")


def embeddings_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/embeddings", **described(ANSWER, EmbeddingRequest))
    async def embeddings(request: Request) -> Response:
        """Vectors of texts, in order."""
        body, model = await service.read(request, EmbeddingRequest)
        check_number(service, len(body.input), "input")
        return await respond_whole(service, request, _embed(service, request, body, model))

    return router


async def _embed(service: Service, request: Request, body: EmbeddingRequest, model: str) -> dict[str, Any]:
    api_key = service.api_key(request.state)
    with callers_names((("prompt", "input"),)):
        calls = await service.on_worker(_calls, service, body, api_key)
        found = await read_all(service, calls, request.state.record)
    vectors = service.engine.vectors.finish([delta.vector for delta in found], body.dimensions)
    data = [
        {"object": "embedding", "index": index, "embedding": _shown(vector, body.encoding_format)}
        for index, vector in enumerate(vectors)
    ]
    return {"object": "list", "data": data, "model": model, "usage": usage_of(found)}


def _calls(service: Service, body: EmbeddingRequest, api_key: str | None) -> list[EngineCall]:
    engine = service.engine
    options = options_of(service, body, api_key, RequestOptions(pooling=engine.vectors.rules.pooling))
    try:
        engine.vectors.check(body.dimensions)
        tokens = [engine.vectors.tokens(text, "input") for text in body.input]
    except RequestError as error:
        raise api_error(error, param=error.param if error.param == "dimensions" else "input") from error
    return [read_call(engine, ids, f"input[{index}]", options) for index, ids in enumerate(tokens)]


def _shown(vector: Rows, encoding_format: str) -> list[float] | str:
    """As numbers, or as the bytes of little-endian float32 in base64."""
    if encoding_format == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    numbers: list[float] = vector.tolist()
    return numbers
