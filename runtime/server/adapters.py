"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them: adapters that come and go while the server
runs. They are served only where the operator says so, for they open folders of the server's disk."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ...errors import ConfigError, ModelError
from .body import read_request
from .description import described
from .errors import invalid
from .protocol import LoadAdapterRequest, UnloadAdapterRequest
from .service import Service

SAID = {"type": "string"}


def adapters_router(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/load_lora_adapter", **described(SAID, LoadAdapterRequest, media_type="text/plain"))
    async def load_lora_adapter(request: Request) -> Response:
        """Reads an adapter and serves it under its name; steps go on meanwhile."""
        body = await read_request(request, LoadAdapterRequest, service.settings)
        service.check_ready()
        try:
            service.check_adapter_name(body.lora_name)
            await asyncio.to_thread(service.engine.adapters.load, body.lora_name, body.lora_path)
        except (ConfigError, ModelError) as error:
            raise invalid(str(error), "lora_name" if isinstance(error, ConfigError) else "lora_path") from error
        return Response(f"Success: LoRA adapter '{body.lora_name}' added successfully.", media_type="text/plain")

    @router.post("/v1/unload_lora_adapter", **described(SAID, UnloadAdapterRequest, media_type="text/plain"))
    async def unload_lora_adapter(request: Request) -> Response:
        """Serves it no more; requests that are under way go on to their ends."""
        body = await read_request(request, UnloadAdapterRequest, service.settings)
        service.check_ready()
        try:
            service.engine.adapters.unload(body.lora_name)
        except ConfigError as error:
            raise invalid(str(error), "lora_name") from error
        return Response(f"Success: LoRA adapter '{body.lora_name}' removed successfully.", media_type="text/plain")

    return router
