"""The HTTP front as a deployment: the server's own routes over a `RemoteEngine`, and Serve's handle to the replicas.

A process of its own, without weights. There may be several: each routes by itself, and knows what the others have sent
by what the replicas report.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import torch
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from ..errors import PhloemError, QueueFull
from ..runtime.config import EngineConfig
from ..runtime.engine.engine import Engine
from ..runtime.execute.adapters import load_adapter
from ..runtime.execute.loading import LoadedModel
from ..runtime.models import Decoder, ModelConfig, resolve_model
from ..runtime.models.vector_rules import VectorRules
from ..runtime.request import Delta
from ..runtime.server.app import Application, create_app
from ..runtime.server.prepare import EngineCall
from ..runtime.server.settings import ServerSettings
from ..runtime.tokenizer.tokenizer import Tokenizer
from . import known_routers
from .prefill_first import prefill_first
from .remote_engine import Gone, RemoteEngine

if TYPE_CHECKING:
    from ..runtime.server.tracing import Tracing

LEAST_TOKENS = 64  # to compute, for a prefill replica to be asked: fewer are computed sooner than that


class NoWeights:
    """Stands where a decoder would; it computes nothing."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.dtype = torch.float32


def engine_without_weights(config: EngineConfig) -> Engine:
    """What is not computed by a model: tokenizer, chat template, constraints, adapters by name, checks.

    Raises:
        ModelError, ConfigError: as loading the model would.
    """
    device, dtype = torch.device("cpu"), torch.float32
    folder = resolve_model(config.model, weights=False)
    model = ModelConfig.from_folder(folder)
    adapters = {name: load_adapter(name, place, model, device, dtype) for name, place in config.adapters.items()}
    decoder = cast(Decoder, NoWeights(model))
    tokenizer, vectors = Tokenizer.from_folder(folder), VectorRules.from_folder(folder)
    loaded = LoadedModel(decoder, tokenizer, device, dtype, dtype, folder, adapters, vectors=vectors)
    small = replace(
        config,
        device="cpu",
        dtype="float32",
        kv_dtype="auto",
        quantise="none",
        num_blocks=2,
        host_memory_bytes=0,
        disk_cache=None,
        shared_cache=None,
        kv_events_config=None,
        role="both",
    )
    engine = Engine.from_loaded(small, loaded)
    # the pool is the replicas'; where it is not known here, they refuse what it does not hold
    known = None if config.num_blocks is None else config.num_blocks * config.block_size
    engine.request_factory.pool_len = engine.max_model_len if known is None else known
    return engine


def make_app(settings: dict[str, Any], server: ServerSettings, handle: Any, prefill: Any = None) -> Application:
    """The server's application; `handle`: Serve's, to the deployment of `Replica`; `prefill`: to that for prompts."""
    send = sender(handle)
    if prefill is not None:
        send = prefill_first(sender(prefill), send, is_worth_a_prefill)
    return app_over(RemoteEngine(engine_without_weights(EngineConfig(**settings)), send, reports), server)


def app_over(remote: RemoteEngine, server: ServerSettings, tracing: Tracing | None = None) -> Application:
    """The server's application over engines that are elsewhere; see `create_app`."""
    app = cast(Application, create_app(cast(Any, remote), server, tracing))
    app.state.service.metrics.registry.register(Retries(remote))
    # what is about the cache of one engine
    app.router.routes[:] = [route for route in app.router.routes if getattr(route, "path", "") != "/cache"]
    return app


class Retries(Collector):
    """For `/metrics`: how often a request went on at another replica."""

    def __init__(self, remote: RemoteEngine) -> None:
        self._remote = remote

    def collect(self) -> Iterable[Metric]:
        text = "Requests that went on at another replica."
        yield CounterMetricFamily("phloem_retries", text, value=self._remote.num_retries)


def reports() -> Iterable[Mapping[str, Any]]:
    """Statistics of the replicas, as this process has heard them last."""
    latest: dict[str, Mapping[str, Any]] = {}
    for router in list(known_routers.ROUTERS):
        latest.update({name: report["statistics"] for name, report in router.reports().items()})
    return latest.values()


def is_worth_a_prefill(tokens: bytes, namespace: str) -> bool:
    """Whether a prompt is to be computed by a prefill replica: there is one, as far as this process knows, and much is
    to be computed at the replica that the request would go to."""
    routers = list(known_routers.ROUTERS)
    ways = [router for router in routers if router.is_for_prefill]
    if ways and not any(router.has_replicas for router in ways):
        return False
    missing = (router.num_missing(tokens, namespace) for router in routers if not router.is_for_prefill)
    return min(missing, default=len(tokens) // 4) >= LEAST_TOKENS


def sender(handle: Any) -> Callable[[bytes, str, EngineCall], AsyncGenerator[Delta | PhloemError]]:
    """How `RemoteEngine` calls a replica."""
    from ray.exceptions import RayActorError, TaskCancelledError
    from ray.serve.exceptions import BackPressureError

    streaming = handle.options(stream=True)

    async def send(tokens: bytes, namespace: str, call: EngineCall) -> AsyncGenerator[Delta | PhloemError]:
        asked_at = time.monotonic()
        answers = streaming.generate.remote(tokens, namespace, call)
        is_whole = False
        try:
            async for answer in answers:
                if isinstance(answer, Delta) and answer.usage.admitted_at is not None:  # on that machine's clock
                    answer.usage.admitted_at = asked_at + answer.usage.queue_seconds
                yield answer
            is_whole = True
        except (RayActorError, TaskCancelledError) as error:
            raise Gone(type(error).__name__) from error
        except BackPressureError as error:
            raise QueueFull("all replicas are busy; try again later") from error
        finally:
            if not is_whole:
                with suppress(Exception):  # the replica may be gone
                    answers.cancel()

    return send
