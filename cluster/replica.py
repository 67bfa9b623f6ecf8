"""An engine as a deployment of Ray Serve: takes calls, streams deltas, says what it has cached and what is queued.

An error of a request is yielded by its stream, not raised: Serve would wrap an exception.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, cast

from ..errors import EngineStopped, PhloemError
from ..runtime.config import EngineConfig
from ..runtime.request import Delta
from ..runtime.server.prefill import answers
from ..runtime.server.prepare import EngineCall

if TYPE_CHECKING:
    from ..runtime.engine.async_engine import AsyncEngine


class Replica:
    """One engine, with its own cache. Serve makes one in each process.

    Args:
        settings: fields of `EngineConfig`; `kv_events_config` is set here.
        events_host: address at which KV events are published, for fronts to read; None: that of the node.
    """

    def __init__(self, settings: dict[str, Any], events_host: str | None = None) -> None:
        import ray
        from ray import serve

        from ..runtime.engine.async_engine import AsyncEngine
        from ..runtime.engine.engine import Engine
        from ..runtime.engine.warmup import warm_up
        from ..runtime.execute.loading import load

        name = serve.get_replica_context().replica_id.unique_id
        address = events_host or ray.util.get_node_ip_address()
        events = {
            "endpoint": f"tcp://{address}:*",
            "replay_endpoint": f"tcp://{address}:*",
            "topic": name,
            "bind": True,
            "include_salted": True,
        }
        config = replace(EngineConfig(**settings), kv_events_config=events)
        engine = Engine.from_loaded(config, load(config))
        warm_up(engine)
        self._engine: AsyncEngine = AsyncEngine(engine)
        followers = engine.prefix_cache.followers
        assert followers is not None and followers.events is not None
        publisher = cast(Any, followers.events.publisher)
        self._facts = {
            "endpoint": publisher.endpoint,
            "replay_endpoint": publisher.replay_endpoint,
            "root_key": followers.keys.fingerprint.hex(),
        }

    async def generate(self, tokens: bytes, namespace: str, call: EngineCall) -> AsyncGenerator[Delta | PhloemError]:
        """The deltas of a request, and an error at the end if it fails.

        Args:
            tokens: of the prompt, packed; `call` has none.
            namespace: for the router.
        """
        options = call.options.copy()
        options.pop("request_id", None)  # several fronts may use the same
        try:
            async with aclosing(answers(self._engine, array("i", tokens), replace(call, options=options))) as deltas:
                async for delta in deltas:
                    yield delta
        except PhloemError as error:
            yield error

    def record_routing_stats(self) -> dict[str, Any]:
        """What the router and `/metrics` read, about once a second."""
        found = self._engine.statistics()
        return {**self._facts, "queued_tokens": found.num_waiting_tokens, "statistics": asdict(found)}

    def record_autoscaling_stats(self) -> dict[str, float]:
        """What the number of replicas may be chosen by; see `autoscaling`."""
        return {"queued_tokens": float(self._engine.statistics().num_waiting_tokens)}

    async def check_health(self) -> None:
        """Called by Serve every few seconds; a replica that raises here is replaced."""
        if not self._engine.is_alive:
            raise EngineStopped("the engine has stopped")

    async def __del__(self) -> None:
        """Called by Serve when all requests have been answered, or have had their time."""
        await asyncio.to_thread(self._engine.stop)
