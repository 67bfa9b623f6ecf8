"""The cache of a running server, as a picture on the terminal."""

from __future__ import annotations

import json
from typing import Any

from ...errors import ConfigError


def cache_of(url: str, api_key: str | None) -> str:
    """What `GET /cache` of the server at `url` says, with its queue on top.

    Raises:
        ConfigError: there is no such server, or it does not let us in.
    """
    from ..cache.cache_report import CacheReport  # brings numpy, for which no other command line should wait

    base = url.rstrip("/").removesuffix("/v1")
    if not base.startswith(("http://", "https://")):
        raise ConfigError(f"--cache {url}: give a URL, for example http://127.0.0.1:8000")
    statistics = _get(f"{base}/statistics", api_key)
    data = _get(f"{base}/cache", api_key)
    try:
        queue = f"{statistics['num_running']} requests run, {statistics['num_waiting']} wait"
        report = CacheReport.from_data(data)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{base}/cache: this is no report of a cache ({error!r}); is it a phloem server?") from error
    hint = "" if report.tree is not None else "\n\n(the tree is shown by servers started with --enable-admin)"
    return f"{queue}\n{report}{hint}"


def _get(url: str, api_key: str | None) -> Any:
    import urllib.error  # here, since no other command speaks HTTP
    import urllib.request

    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {api_key}"} if api_key else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        hint = "; give the server's key with --api-key" if error.code == 401 else ""
        raise ConfigError(f"{url}: answered {error.code} {error.reason}{hint}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{url}: cannot be reached ({getattr(error, 'reason', error)})") from error
