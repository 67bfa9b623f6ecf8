"""`phloem serve MODEL --replicas N`: Ray on this machine alone, for as long as the server runs.

Ray takes about 1.1 GB, and each replica what an engine takes; it is up after 10 to 40 seconds. The server is where
`--host` says, KV events are on the loopback interface. Ray's own processes are reached by the machine's address, and
ask for a token, which Ray keeps in `~/.ray/auth_token`. No dashboard is shown and no statistics are sent.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from ..errors import ConfigError
from ..runtime.server.settings import ServerSettings
from .application import application

STORE_BYTES = 100 << 20  # of Ray's object store: deltas and prompts are small


def serve_here(
    engine: dict[str, Any],
    server: ServerSettings,
    *,
    replicas: int,
    prefill_replicas: int,
    host: str,
    port: int,
    announce: Callable[[], None],
) -> None:
    """Serves until SIGTERM or Ctrl-C, lets requests end, and stops Ray.

    Args:
        engine: fields of `EngineConfig`.
        prefill_replicas: see `application.build`.
        announce: called when requests are taken.

    Raises:
        ConfigError: Ray is missing or too old, does not start, or a replica does not.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    deployed = application(
        engine, server, replicas=replicas, prefill_replicas=prefill_replicas, num_cpus=0, events_host="127.0.0.1"
    )
    import ray
    from ray import serve

    ended = threading.Event()
    try:
        ray.init(
            address="local",
            num_cpus=max(1, os.cpu_count() or 1),
            object_store_memory=STORE_BYTES,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="warning",
        )
        serve.start(proxy_location="HeadOnly", http_options={"host": host, "port": port})
        try:
            serve.run(deployed, name="phloem", route_prefix="/")
        except RuntimeError as error:
            raise ConfigError(f"--replicas {replicas}: Ray Serve has not started them: {error}") from error
        for number in (signal.SIGINT, signal.SIGTERM):  # not before: Ray takes them for itself
            signal.signal(number, lambda *_: ended.set())
        announce()
        ended.wait()
    finally:
        serve.shutdown()
        ray.shutdown()
