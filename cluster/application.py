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

OWN = ("replicas", "fronts", "num_cpus", "num_gpus", "autoscaling")
FROM_HERE = ("check_invariants", "kv_events_config", "adapter_loading", "admin")  # set here, or for one engine only
REPLICA, FRONT = "phloem-replica", "phloem-front"
STATS_SECONDS = 1.0
MOST_ONGOING = 10_000  # requests of a front
OLDEST_RAY = (2, 51)  # with policies for autoscaling and routers of one's own


def build(args: Mapping[str, Any]) -> Application:
    """The application; nothing is loaded yet.

    Args:
        args: `model`; `replicas` (1) or `autoscaling` (Serve's `AutoscalingConfig`, as a mapping); `fronts` (1);
            `num_cpus` and `num_gpus` that Ray sets aside for a replica (1 and 0); fields of `EngineConfig` and
            `ServerSettings`. Values may be text, as a command line has them.

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
    fronts: int = 1,
    num_cpus: float = 1,
    num_gpus: float = 0,
    autoscaling: Mapping[str, Any] | None = None,
    events_host: str | None = None,
) -> Application:
    """`build`, from settings that are checked; engine: fields of `EngineConfig`; events_host: see `Replica`."""
    serve, router_config = _ray()
    from .front import make_app
    from .replica import Replica

    config = EngineConfig(**engine)
    number = {"num_replicas": replicas} if autoscaling is None else {"autoscaling_config": dict(autoscaling)}
    deployed = (
        serve.deployment(Replica)
        .options(
            name=REPLICA,
            ray_actor_options={"num_cpus": num_cpus, "num_gpus": num_gpus},
            max_ongoing_requests=config.max_waiting_requests,
            health_check_period_s=2,
            graceful_shutdown_timeout_s=60,
            request_router_config=router_config(
                request_router_class="phloem.cluster.prefix_router.PrefixRouter",
                request_router_kwargs={"block_size": config.block_size},
                request_routing_stats_period_s=STATS_SECONDS,
            ),
            **number,
        )
        .bind(engine, events_host)
    )

    def app() -> Any:
        from ray import serve

        return make_app(engine, server, serve.get_deployment_handle(REPLICA))

    front = serve.deployment(serve.ingress(app)()).options(
        name=FRONT, num_replicas=fronts, ray_actor_options={"num_cpus": 0}, max_ongoing_requests=MOST_ONGOING
    )
    bound: Application = front.bind(deployed)
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
    for name in ("replicas", "fronts"):
        number = own.get(name, 1)
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise ConfigError(f"{name}: expected a whole number of at least 1, got {number!r}")
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
