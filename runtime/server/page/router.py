"""The routes of the page. They serve the page alone, so they are not in `/openapi.json`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..body import read_request
from ..errors import invalid, json_response
from ..formats.harmony import speaks_harmony
from ..formats.thoughts import thinks
from ..service import Service
from .constraint_view import ConstraintRequest, ConstraintView
from .now import Now
from .recent_requests import RecentRequests
from .static_files import StaticFile, has_tag, read_static_files
from .tree_view import TreeView


def page_router(service: Service, requests: RecentRequests) -> APIRouter:
    """requests: those that the gate tells of."""
    router = APIRouter(include_in_schema=False)
    now, tree, constraints = Now(service, requests), TreeView(service), ConstraintView(service)
    for path, file in read_static_files().items():
        _serve(router, path, file)

    @router.get("/page/about")
    async def about() -> Response:
        return json_response(_about(service))

    @router.get("/page/now")
    async def page_now(request: Request) -> Response:
        return json_response(now.as_data(asks_what_if="what_if" in request.query_params))

    @router.get("/page/tree")
    async def page_tree(request: Request) -> Response:
        generation = tree.generation()
        tag = f'"{generation}"'
        if has_tag(request, tag):
            return Response(status_code=304, headers={"ETag": tag})
        if request.query_params.get("generation") == str(generation):
            return Response(status_code=204, headers={"ETag": tag})
        packed, generation = await tree.snapshot()
        headers = {"ETag": f'"{generation}"', "Cache-Control": "no-cache"}
        return Response(packed, headers=headers, media_type="application/octet-stream")

    @router.get("/page/tree/{node}")
    async def page_node(node: str) -> Response:
        if not node.isascii() or not node.isdigit() or len(node) > 10:
            raise invalid(f"{node[:20]!r} is not the id of a node; those are in GET /page/tree.", "id")
        return json_response(await tree.node(int(node)))

    @router.get("/page/requests")
    async def page_requests() -> Response:
        return json_response(requests.as_data())

    @router.post("/page/constraint")
    async def page_constraint(request: Request) -> Response:
        body = await read_request(request, ConstraintRequest, service.settings)
        return json_response(await constraints.explain(request, body))

    return router


def _serve(router: APIRouter, path: str, file: StaticFile) -> None:
    @router.get(path)
    async def static_file(request: Request) -> Response:
        return file.response(request)


def _about(service: Service) -> dict[str, Any]:
    engine, settings = service.engine, service.settings
    tokenizer = engine.tokenizer
    layers = engine.model_config.layers
    return {
        "model": settings.model_name,
        "models": [*service.model_names, *service.adapter_names()],
        "version": service.version,
        "admin": settings.admin,
        "has_text": tokenizer.has_text,
        "has_chat": tokenizer.has_text and engine.core.generates,
        "thinks": tokenizer.has_text
        and (speaks_harmony(tokenizer.special_ids) or thinks(tokenizer, settings.reasoning_format)),
        "max_model_len": service.max_model_len,
        "vocab_size": tokenizer.vocab_size,
        "block_size": engine.config.block_size,
        "num_blocks": service.async_engine.statistics().num_blocks,
        "ranks": engine.config.tensor_parallel_size,
        "draft_model": engine.config.draft_model_name,
        "layer_kinds": sorted({"window" if layer.window else "full" for layer in layers}),
    }
