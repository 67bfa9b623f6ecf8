"""The cache of a running server, as a picture on the terminal."""

from __future__ import annotations

from ...errors import ConfigError
from .running_server import RunningServer
from .terminal import visible


def cache_of(url: str, api_key: str | None) -> str:
    """What `GET /cache` of the server at `url` says, with its queue on top.

    Raises:
        ConfigError: there is no such server, or it does not let us in.
    """
    from ..cache.cache_report import CacheReport  # brings numpy, for which no other command line should wait

    server = RunningServer(url, api_key, "--cache")
    statistics = server.json("/statistics")
    data = server.json("/cache")
    try:
        queue = f"{statistics['num_running']} requests run, {statistics['num_waiting']} wait"
        report = CacheReport.from_data(data)
    except (KeyError, TypeError) as error:
        place = f"{server.url}/cache"
        raise ConfigError(f"{place}: this is no report of a cache ({error!r}); is it a phloem server?") from error
    hint = "" if report.tree is not None else "\n\n(the tree is shown by servers started with --enable-admin)"
    return visible(f"{queue}\n{report}{hint}")
