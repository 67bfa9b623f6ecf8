"""A running server, as commands ask it over HTTP.

No redirect is followed, so a key goes to the server that was named and to no other; the time and the size of an answer
are bounded, and what an error quotes of it shows no control characters.
"""

from __future__ import annotations

import json
from typing import Any

from ...errors import ConfigError, ProgramError, RequestError
from .terminal import visible

HINTS = {401: "give the server's key with --api-key", 404: "is it a phloem server?"}


class RunningServer:
    """Asks a server for what it shows of itself.

    Args:
        url: of the server, with or without `/v1`; a host alone is asked over http.
        option: what the URL was given with, for errors.

    Raises:
        ConfigError: `url` is none.
    """

    def __init__(self, url: str, api_key: str | None, option: str, timeout: float = 60.0) -> None:
        self.url = (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"{option} {url}: give a URL, for example http://127.0.0.1:8000")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout = timeout

    def text(self, path: str) -> str:
        """What `GET path` answers.

        Raises:
            ConfigError: there is no such server, it does not let us in, it has no such route, or what it answers does
                not end.
        """
        from ..program.backends.http_call import HttpClient  # here, since few commands speak HTTP

        try:
            client = HttpClient(self.url, self._headers, self._timeout, max_retries=0, hints=HINTS)
            return client.call(path).text()
        except (RequestError, ProgramError) as error:
            raise ConfigError(visible(str(error))) from error

    def json(self, path: str) -> Any:
        """The same as a value; what is no JSON raises ConfigError too."""
        text = self.text(path)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{self.url}{path}: answered no JSON; is it a phloem server?") from error
