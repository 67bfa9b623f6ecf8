"""The routes that routers ask: what a worker serves, how full it is, and whether it still generates.

Paths and fields are SGLang's, which SMG and others read; what is not known here is left out. They show the served name
of the model and no path, key or salt.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from ..config import MTP, EngineConfig
from ..engine.statistics import EngineStatistics
from .description import Schema, answer, described
from .errors import invalid, json_response, unavailable
from .probe import Probe
from .service import Service

LOAD_FIELDS = ("timestamp", "version", "dp_rank_count", "loads")
SECTIONS = ("core", "memory", "spec", "lora", "disagg", "queues", "all")  # SGLang's; here all but "core" are empty
LOAD_PARAMETERS: list[Schema] = [
    {
        "name": "include",
        "in": "query",
        "schema": {"type": "string"},
        "description": f"sections, separated by commas ({', '.join(SECTIONS)}); core is always answered",
    },
    {"name": "dp_rank", "in": "query", "schema": {"const": 0}, "description": "there is one rank, 0"},
    {"name": "format", "in": "query", "schema": {"const": "json"}},
]


def worker_info_router(service: Service) -> APIRouter:
    router = APIRouter()
    probe = Probe(service.async_engine)
    name = service.settings.model_name

    def throughput(statistics: EngineStatistics) -> float:
        return round(service.metrics.throughput.at(statistics.completion_tokens), 2)

    @router.get("/server_info", **described(answer(None, "served_model_name", "version")))
    @router.get("/get_server_info", **described(answer(None, "served_model_name", "version")))
    async def server_info() -> Response:
        """What is served, and with which settings."""
        statistics = service.async_engine.statistics()
        settings = _shown_settings(service.engine.config, statistics)
        return json_response(
            {
                "model_path": name,
                "served_model_name": name,
                "version": service.version,
                "context_length": service.engine.max_model_len,
                **settings,
                "internal_states": [{"last_gen_throughput": throughput(statistics)}],
            }
        )

    @router.get("/model_info", **described(answer(None, "model_path", "is_generation")))
    @router.get("/get_model_info", **described(answer(None, "model_path", "is_generation")))
    async def model_info() -> Response:
        """The model."""
        return json_response(
            {
                "model_path": name,
                "is_generation": True,
                "has_image_understanding": False,
                "has_audio_understanding": False,
                "architectures": [service.engine.model_config.architecture],
                "max_model_len": service.max_model_len,
            }
        )

    loads_described = described(answer(None, *LOAD_FIELDS))
    loads_described["openapi_extra"] = {"parameters": LOAD_PARAMETERS}

    @router.get("/v1/loads", **loads_described)
    async def loads(request: Request) -> Response:
        """How full the engine is, for balancing load."""
        _check_query(request)
        statistics = service.async_engine.statistics()
        return json_response(
            {
                "timestamp": datetime.now(UTC).isoformat(),
                "version": service.version,
                "dp_rank_count": 1,
                "loads": [load_of(statistics, throughput(statistics))],
            }
        )

    @router.get("/health_generate", **described(answer(None, "status")))
    async def health_generate() -> Response:
        """200 when the engine has generated a token, or is at work on other requests; 503 when it fails or hangs."""
        if not await probe.generates():
            raise unavailable("The engine generates nothing.", service.settings.retry_after)
        return json_response({"status": "ok"})

    return router


def load_of(statistics: EngineStatistics, throughput: float) -> dict[str, Any]:
    """One rank's load, with SGLang's names.

    `num_used_tokens` is what running requests and pins hold of the pool of `max_total_num_tokens`; `num_total_tokens`
    adds the tokens of the queue, cached or not. `num_waiting_uncached_tokens` is an estimate: the tokens of the queue
    times the share of prompt tokens that has not been in the cache so far.
    """
    num_uncached = round(statistics.num_waiting_tokens * (1.0 - statistics.hit_rate))
    return {
        "dp_rank": 0,
        "num_running_reqs": statistics.num_running,
        "num_waiting_reqs": statistics.num_waiting,
        "num_total_reqs": statistics.num_running + statistics.num_waiting,
        "num_waiting_uncached_tokens": num_uncached,
        "num_used_tokens": statistics.num_used_tokens,
        "num_total_tokens": statistics.num_used_tokens + statistics.num_waiting_tokens,
        "max_total_num_tokens": statistics.num_pool_tokens,
        "token_usage": round(statistics.usage, 4),
        "gen_throughput": throughput,
        "cache_hit_rate": round(statistics.hit_rate, 4),
        "max_running_requests": statistics.max_running_requests,
    }


def _shown_settings(config: EngineConfig, statistics: EngineStatistics) -> dict[str, Any]:
    return {
        "max_total_tokens": statistics.num_pool_tokens,
        "max_total_num_tokens": statistics.num_pool_tokens,
        "max_running_requests": statistics.max_running_requests,
        "page_size": statistics.block_size,
        "kv_cache_dtype": config.kv_dtype,
        "quantization": None if config.quantise == "none" else config.quantise,
        "disable_radix_cache": not config.prefix_cache,
        "radix_eviction_policy": config.eviction_policy,
        "tp_size": config.tensor_parallel_size,
        "speculative_algorithm": _algorithm(config),
        "speculative_draft_model_path": config.draft_model_name,
        "pp_size": 1,
        "dp_size": 1,
        "is_embedding": False,
    }


def _algorithm(config: EngineConfig) -> str | None:
    """SGLang's name of what drafts besides constraints and look-ups."""
    if config.speculative_model is None:
        return None
    return "NEXTN" if config.speculative_model == MTP else "STANDALONE"


def _check_query(request: Request) -> None:
    """Raises ApiError 400: it asks for what is not there."""
    asked = request.query_params
    rank, form = asked.get("dp_rank", "0"), asked.get("format", "json")
    if rank != "0":
        raise invalid(f"There is one rank, 0, and not {rank[:20]!r}; leave dp_rank out.", "dp_rank")
    if form != "json":
        raise invalid(f"{form[:20]!r} is no format here; leave it out, or ask /metrics.", "format")
    for section in filter(None, asked.get("include", "").split(",")):
        if section.strip() not in SECTIONS:
            raise invalid(f"{section[:20]!r} is no section; they are {', '.join(SECTIONS)}.", "include")
