"""Connections: how many may be open, and how long each may keep the server waiting.

uvicorn bounds neither. Its only timer ends when the first byte of a request arrives, and a connection that it closes
stays open until the client has read what is left for it. So every connection is looked at once a second::

    waits for …                          longest           then
    the head of a request                header_timeout    it is closed, whether or not bytes of it have arrived
    the client to take what was written  send_timeout      it is reset; any byte that the client's system takes counts

What the buffers of both systems hold (tens of kilobytes to some megabytes) is written and gone, whether the client has
read it or not. Knows uvicorn's protocols (h11 and httptools alike), no requests; time comes from the caller.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from .errors import dump_json, unavailable
from .settings import ServerSettings

MOST_CONNECTIONS = 8192
logger = logging.getLogger("phloem.server")


class Connections:
    """Makes the protocols of new connections, and ends those that wait for too long.

    Args:
        settings: its `max_connections`, `header_timeout` and `send_timeout` hold.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._limit = settings.max_connections or _most_connections()
        self._num_refused = 0
        self._seen: dict[Any, tuple[object, float]] = {}  # by protocol: what it waits for, and since when

    def protocol(self, **given: Any) -> asyncio.Protocol:
        """What uvicorn calls for a new connection, with arguments of its own (`server_state` is one)."""
        if len(given["server_state"].connections) < self._limit:
            return AutoHTTPProtocol(**given)
        self._num_refused += 1
        return _Refusal(self._settings.retry_after)

    def sweep(self, protocols: Iterable[Any], now: float) -> None:
        """Looks at every open connection; `now`: seconds of any clock that does not go back."""
        seen = self._seen
        self._seen = {}
        for protocol in list(protocols):
            waits_for = _waits_for(protocol)
            if waits_for is None:
                continue
            before, since = seen.get(protocol, (None, now))
            since = since if before == waits_for else now
            self._seen[protocol] = (waits_for, since)
            if waits_for[0] == "head" and now - since >= self._settings.header_timeout:
                protocol.transport.close()
            elif waits_for[0] == "reader" and now - since >= self._settings.send_timeout:
                protocol.transport.abort()
        if self._num_refused:
            text = "%d connections were refused, since %d are open (--max-connections)"
            logger.warning(text, self._num_refused, self._limit)
            self._num_refused = 0


class _Refusal(asyncio.Protocol):
    """One connection too many: a 503, whatever it asks for."""

    def __init__(self, retry_after: int) -> None:
        error = unavailable("Too many connections are open; try again later.", retry_after)
        body = dump_json(error.body(""))
        head = (
            "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Retry-After: {retry_after}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._answer = head.encode() + body

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(self._answer)
        transport.close()


def _waits_for(protocol: Any) -> tuple[object, ...] | None:
    """What keeps a connection waiting, equal as long as nothing has happened; None if the next move is the server's."""
    transport, cycle = protocol.transport, protocol.cycle
    if transport.is_closing() or protocol.flow.write_paused:
        return ("reader", transport.get_write_buffer_size())
    if cycle is None or cycle.response_complete:
        return ("head", cycle)
    return None


def _most_connections() -> int:
    """What the limit on open files leaves, with some for other files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(MOST_CONNECTIONS, max(files - 128, files // 2))
