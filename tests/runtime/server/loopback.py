"""A real server on a loopback port, over a fake engine or another, and sockets that behave as they like."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI

from phloem.runtime.server import ServerSettings, create_app
from phloem.runtime.server.serve import DrainingServer, listen, server_of, url_of

from .fakes import FakeAsyncEngine

PATIENCE = 120.0  # seconds; far more than anything here takes


def until(holds: Callable[[], object]) -> None:
    """Waits until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


@dataclass
class Loopback:
    """A running server."""

    port: int
    server: DrainingServer
    engine: FakeAsyncEngine

    @property
    def num_open(self) -> int:
        """Connections that the server holds."""
        return len(self.server.server_state.connections)

    def connect(self, sent: bytes = b"", *, receive_buffer: int | None = None) -> socket.socket:
        """A connection on which something was sent."""
        made = socket.socket()
        made.settimeout(PATIENCE)
        if receive_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.connect(("127.0.0.1", self.port))
        made.sendall(sent)
        return made

    def ask(self, sent: bytes) -> bytes:
        """Sends all of it, and only then reads all that comes."""
        with self.connect(sent) as made:
            return read_all(made)


def read_all(made: socket.socket) -> bytes:
    """What comes until the server closes."""
    pieces = []
    while piece := made.recv(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


def can_send(made: socket.socket, piece: bytes) -> bool:
    """Sends a piece; False if the connection has ended."""
    try:
        made.sendall(piece)
    except OSError:  # which one depends on what is on its way
        return False
    return True


def is_closed(made: socket.socket) -> bool:
    """Whether the server has ended a connection, on which nothing was left to read."""
    made.setblocking(False)
    try:
        return made.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@contextmanager
def running(
    app: FastAPI, *, send_buffer: int | None = None, log_level: str = "error"
) -> Iterator[tuple[str, DrainingServer]]:
    """An application's address and its server, which ends with the block as after SIGTERM; `send_buffer`: SO_SNDBUF of
    the server's side of connections."""
    bound = listen("127.0.0.1", 0)
    if send_buffer is not None:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    server = server_of(app, log_level=log_level, access_log=False)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        assert thread.is_alive(), "the server did not start"
        yield url_of(bound), server
    finally:
        server.handle_exit(signal.SIGTERM, None)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not end"


@contextmanager
def loopback(engine: FakeAsyncEngine | None = None, **options: Any) -> Iterator[Loopback]:
    """Serves a fake engine; options: of `running`, and settings."""
    engine = engine or FakeAsyncEngine()
    own = {name: options.pop(name) for name in ("send_buffer", "log_level") if name in options}
    app = create_app(engine, ServerSettings(drain_timeout=PATIENCE, **options))  # type: ignore[arg-type]
    with running(app, **own) as (url, server):
        yield Loopback(int(url.rpartition(":")[2]), server, engine)
