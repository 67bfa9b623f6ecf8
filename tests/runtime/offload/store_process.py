"""A `redis-server` as a process of its own, on a unix socket."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest


class Store:
    """A `redis-server` that keeps nothing; a test without one is skipped."""

    def __init__(self, folder: Path, *options: str) -> None:
        if shutil.which("redis-server") is None:
            pytest.skip("there is no redis-server")
        self.path = folder / "socket"
        self._command = ["redis-server", "--port", "0", "--unixsocket", str(self.path), "--save", "", *options]
        self.start()

    @property
    def url(self) -> str:
        return f"unix://{self.path}"

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < end and self.process.poll() is None, "the store does not start"
            time.sleep(0.02)

    def _answers(self) -> bool:
        import redis

        try:
            self.client().ping()
        except redis.AuthenticationError:
            return True
        except (redis.RedisError, OSError):
            return False
        return True

    def client(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url)

    def restart(self) -> None:
        """What it held is lost."""
        self.kill()
        self.path.unlink(missing_ok=True)
        self.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder with a short name, as a socket must have it."""
    with TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)
