"""A running server, as commands ask it over HTTP."""

from __future__ import annotations

import json
from typing import Any

from ...errors import ConfigError


class RunningServer:
    """Asks a server for what it shows of itself.

    Args:
        url: of the server, with or without `/v1`.
        option: what the URL was given with, for errors.

    Raises:
        ConfigError: `url` is none.
    """

    def __init__(self, url: str, api_key: str | None, option: str, timeout: float = 60.0) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"{option} {url}: give a URL, for example http://127.0.0.1:8000")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = timeout

    def text(self, path: str) -> str:
        """What `GET path` answers.

        Raises:
            ConfigError: there is no such server, it does not let us in, or it has no such route.
        """
        import urllib.error  # here, since few commands speak HTTP
        import urllib.request
        from http.client import HTTPException

        url = f"{self.url}{path}"
        try:
            request = urllib.request.Request(url, headers=self._headers)
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                return str(answer.read().decode("utf-8"))
        except urllib.error.HTTPError as error:
            hints = {401: "; give the server's key with --api-key", 404: "; is it a phloem server?"}
            raise ConfigError(f"{url}: answered {error.code} {error.reason}{hints.get(error.code, '')}") from error
        except (OSError, ValueError, HTTPException) as error:
            raise ConfigError(f"{url}: cannot be reached ({getattr(error, 'reason', error)})") from error

    def json(self, path: str) -> Any:
        """The same as a value; what is no JSON raises ConfigError too."""
        text = self.text(path)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.url}{path}: answered no JSON; is it a phloem server?") from error
