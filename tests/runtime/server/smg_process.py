"""SGLang's router, SMG, as a process of its own, on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from .loopback import PATIENCE, until


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


@contextmanager
def routing(options: Sequence[str], num_workers: int) -> Iterator[httpx.Client]:
    """SMG, once it takes requests for `num_workers` workers, which `options` name."""
    port, metrics = str(_free_port()), str(_free_port())
    command = [sys.executable, "-m", "smg.launch_router", "--host", "127.0.0.1", "--port", port]
    command += [
        "--prometheus-host",
        "127.0.0.1",
        "--prometheus-port",
        metrics,
        "--disable-tokenizer-autoload",
        *options,
    ]
    with ExitStack() as stack:
        log = stack.enter_context(tempfile.TemporaryFile("w+"))
        router = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "NO_PROXY": "127.0.0.1"})
        stack.callback(router.wait)
        stack.callback(router.kill)
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, trust_env=False)
        stack.enter_context(client)

        def is_ready() -> bool:
            if router.poll() is not None:
                log.seek(0)
                pytest.fail(f"the router has ended:\n{log.read()}")
            try:
                found = client.get("/workers").json()["workers"]
            except httpx.TransportError:
                return False
            return len(found) == num_workers and all(worker["is_healthy"] for worker in found)

        until(is_ready)
        yield client
