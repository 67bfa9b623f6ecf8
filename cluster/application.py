"""The Serve application: `serve run phloem.cluster:build model=nano replicas=2`, the same in a Serve YAML, and
`phloem serve MODEL --replicas N`.

Arguments besides `model` and `replicas` are fields of `EngineConfig` and of `ServerSettings`, by their names.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError
from ..runtime.config import EngineConfig
from ..runtime.server.settings import ServerSettings

if TYPE_CHECKING:
    from ray.serve import Application

OWN = ("replicas", "prefill_replicas", "fronts", "num_cpus", "num_gpus", "autoscaling")
FROM_HERE = (
    "check_invariants",
    "kv_events_config",
    "role",
    "adapter_loading",
    "admin",
    "page",
    "check_host",
)  # set here, or for one engine
REPLICA, PREFILL, FRONT = "phloem-replica", "phloem-prefill", "phloem-front"
STATS_SECONDS = 1.0
MOST_ONGOING = 10_000  # requests of a front
OLDEST_RAY = (2, 51)  # with policies for autoscaling and routers of one's own


def build(args: Mapping[str, Any]) -> Application:
    """The application; nothing is loaded yet.

    Args:
        args: `model`; `replicas` (1) or `autoscaling` (Serve's `AutoscalingConfig`, as a mapping); `prefill_replicas`
            (0), which compute prompts for them, over `shared_cache` or `disk_cache`; `fronts` (1); `num_cpus` and
            `num_gpus` that Ray sets aside for a replica, on one node (1 and 0; with `tensor_parallel_size` on GPUs
            that many); fields of `EngineConfig` and `ServerSettings`.
            Values may be text, as a command line has them.

    Raises:
        ConfigError: an argument is unknown or has a wrong value, or Ray is missing or too old.
    """
    engine, server, own = _parted(args)
    return application(engine, server, **own)


def application(
    engine: dict[str, Any],
    server: ServerSettings,
    *,
    replicas: int = 1,
    prefill_replicas: int = 0,
    fronts: int = 1,
    num_cpus: float = 1,
    num_gpus: float = 0,
    autoscaling: Mapping[str, Any] | None = None,
    events_host: str | None = None,
) -> Application:
    """`build`, from settings that are checked; engine: fields of `EngineConfig`; events_host: see `Replica`."""
    config = EngineConfig(**engine)
    if prefill_replicas and config.shared_cache is None and config.disk_cache is None:
        raise ConfigError(
            "prefill_replicas: what they compute reaches the others through a store; name it with shared_cache"
            " (redis://HOST:PORT/0), or disk_cache (a folder that all nodes see)"
        )
    if 0 < num_gpus < config.tensor_parallel_size:
        raise ConfigError(
            f"num_gpus: {config.tensor_parallel_size} ranks of a replica need a GPU each, and it is {num_gpus:g}; give "
            f"num_gpus={config.tensor_parallel_size}"
        )
    serve, router_config = _ray()
    from .front import make_app
    from .replica import Replica

    def deployed(name: str, role: str, number: Mapping[str, Any]) -> Any:
        return (
            serve.deployment(Replica)
            .options(
                name=name,
                ray_actor_options={"num_cpus": num_cpus, "num_gpus": num_gpus},
                max_ongoing_requests=config.max_waiting_requests,
                health_check_period_s=2,
                graceful_shutdown_timeout_s=60,
                request_router_config=router_config(
                    request_router_class="phloem.cluster.prefix_router.PrefixRouter",
                    request_router_kwargs={"block_size": config.block_size, "is_for_prefill": role == "prefill"},
                    request_routing_stats_period_s=STATS_SECONDS,
                ),
                **number,
            )
            .bind({**engine, "role": role}, events_host)
        )

    number = {"num_replicas": replicas} if autoscaling is None else {"autoscaling_config": dict(autoscaling)}
    parts = [deployed(REPLICA, "decode" if prefill_replicas else "both", number)]
    if prefill_replicas:
        parts.append(deployed(PREFILL, "prefill", {"num_replicas": prefill_replicas}))

    def app() -> Any:
        from ray import serve

        prefill = serve.get_deployment_handle(PREFILL) if prefill_replicas else None
        return make_app(engine, server, serve.get_deployment_handle(REPLICA), prefill)

    front = serve.deployment(serve.ingress(app)()).options(
        name=FRONT, num_replicas=fronts, ray_actor_options={"num_cpus": 0}, max_ongoing_requests=MOST_ONGOING
    )
    bound: Application = front.bind(*parts)
    return bound


def _parted(args: Mapping[str, Any]) -> tuple[dict[str, Any], ServerSettings, dict[str, Any]]:
    """Settings of the engines, of the front, and of the application."""
    kinds = {field.name: field for field in dataclasses.fields(EngineConfig) if field.name not in FROM_HERE}
    shown = {field.name: field for field in dataclasses.fields(ServerSettings) if field.name not in FROM_HERE}
    own: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    server: dict[str, Any] = {}
    for name, value in args.items():
        place = engine if name in kinds else server if name in shown else own if name in OWN else None
        if place is None:
            known = ", ".join(sorted({*OWN, *kinds, *shown}))
            raise ConfigError(f"{name}: no argument of phloem.cluster:build; there are: {known}")
        field = kinds.get(name) or shown.get(name)
        place[name] = _value(value, is_text=field is not None and field.type in ("str", "str | None"))
    for name, least in (("replicas", 1), ("prefill_replicas", 0), ("fronts", 1)):
        number = own.get(name, least)
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            raise ConfigError(f"{name}: expected a whole number of at least {least}, got {number!r}")
    config = EngineConfig(**engine)
    server.setdefault("model_name", config.model)
    return engine, ServerSettings(**server), own


def _value(value: Any, *, is_text: bool) -> Any:
    """Text that is JSON as what it means: `serve run` passes nothing but text."""
    if is_text or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _ray() -> tuple[Any, Any]:
    """`ray.serve` and its `RequestRouterConfig`."""
    try:
        import ray
        from ray import serve
    except ImportError as error:
        raise ConfigError(f"several replicas need Ray Serve ({error}); run: pip install 'phloem[ray]'") from error
    if tuple(int(number) for number in re.findall(r"\d+", ray.__version__)[:2]) < OLDEST_RAY:
        least = ".".join(map(str, OLDEST_RAY))
        raise ConfigError(f"several replicas: ray {ray.__version__} is too old; run: pip install 'ray[serve]>={least}'")
    from ray.serve.config import RequestRouterConfig

    return serve, RequestRouterConfig
