"""Running the application with uvicorn: the listening socket, and how it ends.

::

    SIGTERM or Ctrl-C ──► draining: /ready is 503, new requests get 503, running ones go on
                     ──► idle, or the drain timeout: the engine stops, late streams end with an error frame
                     ──► exit code 0.         A second signal waits for no request, a third one for nothing.

    the engine has stopped by a fault (a rank is lost …) ──► it is logged; the end, with exit code 1
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import time
from types import FrameType

import uvicorn
from fastapi import FastAPI
from uvicorn.config import LOGGING_CONFIG

from ...errors import ConfigError
from .connections import Connections
from .service import Service

BACKLOG = 2048  # connections that wait to be accepted
TICKS_PER_SWEEP = 10  # of uvicorn's loop, ten a second
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
    """uvicorn around the application. `run(sockets=[bound])` serves until a signal and until all is answered.

    Sets up logging: records of `phloem.server` go where uvicorn's go. access_log: whether uvicorn writes a line of its
    own for each request, with the caller's address.
    """
    service: Service = app.state.service
    connections = Connections(service.settings)
    own_logger = {"handlers": ["default"], "level": log_level.upper()}
    config = uvicorn.Config(
        app,
        http=connections.protocol,  # type: ignore[arg-type]  # called as the class would be
        ws="none",
        log_level=log_level,
        log_config={**LOGGING_CONFIG, "loggers": {**LOGGING_CONFIG["loggers"], "phloem.server": own_logger}},
        access_log=access_log,
        server_header=False,
        timeout_keep_alive=math.ceil(service.settings.header_timeout),
        timeout_graceful_shutdown=CLOSING_SECONDS,
    )
    logging.getLogger("uvicorn.error").addFilter(_is_no_upgrade)
    return DrainingServer(config, service, connections)


def _is_no_upgrade(record: logging.LogRecord) -> bool:
    """Whether a record says something else than that WebSockets are not spoken here; such a request is answered as any
    other, which leaves a line of its own."""
    text = record.getMessage()
    return "upgrade request" not in text and "WebSocket library" not in text


class DrainingServer(uvicorn.Server):
    """uvicorn's server, except that the first signal drains instead of closing the door."""

    def __init__(self, config: uvicorn.Config, service: Service, connections: Connections) -> None:
        super().__init__(config)
        self._service = service
        self._connections = connections
        self._deadline: float | None = None
        self._closing: asyncio.Task[None] | None = None  # of the engine
        self.has_failed = False  # the engine has stopped by itself, so that a supervisor may start another

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by the interpreter between two instructions: only sets flags."""
        now = time.monotonic()
        if self._deadline is None:
            self._deadline = now + self._service.settings.drain_timeout
            self._service.lifecycle.drain()
        elif now < self._deadline:
            self._deadline = now
        else:
            logging.getLogger("uvicorn.error").disabled = True  # what is torn down now leaves tracebacks there
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_PER_SWEEP == 0:
            self._connections.sweep(self.server_state.connections, time.monotonic())
        if self._deadline is None and not self._service.async_engine.is_alive:
            logging.getLogger("uvicorn.error").error("The engine has stopped by a fault, so the server ends.")
            self.has_failed, self._deadline = True, time.monotonic()
        if self._deadline is not None and not self.should_exit:
            if time.monotonic() >= self._deadline and self._closing is None:
                self._closing = asyncio.create_task(self._service.async_engine.close())
            is_closed = self._closing is not None and self._closing.done()
            self.should_exit = is_closed or self._service.lifecycle.num_active == 0
        return await super().on_tick(counter)
