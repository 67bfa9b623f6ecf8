"""Running the application with uvicorn: the listening socket, and how it ends.

::

    SIGTERM or Ctrl-C ──► draining: /ready is 503, new requests get 503, running ones go on
                     ──► idle, or the drain timeout: the engine stops, late streams end with an error frame
                     ──► exit code 0.         A second signal ends at once.
"""

from __future__ import annotations

import socket
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI

from ...errors import ConfigError
from .service import Service

BACKLOG = 2048  # connections that wait to be accepted
CLOSING_SECONDS = 5  # for connections to close after the engine has stopped


def listen(host: str, port: int) -> socket.socket:
    """A listening socket, taken before the model is loaded, so that a used port is known at once.

    Raises:
        ConfigError: the address cannot be used.
    """
    bound = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
        bound.listen(BACKLOG)
    except (OSError, OverflowError, UnicodeError) as error:
        if bound is not None:
            bound.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"--host {host} --port {port}: {reason}; choose another address or port") from error
    return bound


def url_of(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(app: FastAPI, *, log_level: str = "info", access_log: bool = True) -> DrainingServer:
    """uvicorn around the application. `run(sockets=[bound])` serves until a signal and until all is answered."""
    config = uvicorn.Config(
        app,
        log_level=log_level,
        access_log=access_log,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=CLOSING_SECONDS,
    )
    return DrainingServer(config, app.state.service)


class DrainingServer(uvicorn.Server):
    """uvicorn's server, except that the first signal drains instead of closing the door."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service
        self._deadline: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by the interpreter between two instructions: only sets flags."""
        if self._deadline is not None:
            self.should_exit = self.force_exit = True
            return
        self._deadline = time.monotonic() + self._service.settings.drain_timeout
        self._service.lifecycle.drain()

    async def on_tick(self, counter: int) -> bool:
        if self._deadline is not None and not self.should_exit:
            overdue = time.monotonic() >= self._deadline
            if overdue:
                await self._service.async_engine.close()
            self.should_exit = overdue or self._service.lifecycle.num_active == 0
        return await super().on_tick(counter)
