"""`phloem serve` as a process of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from http.client import HTTPConnection
from urllib.parse import urlsplit


class Process:
    """`phloem serve` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-c", "from phloem.runtime.cli import main; main()", "serve", "--port", "0"]
        self._process = subprocess.Popen([*command, *arguments], stderr=subprocess.PIPE, text=True)
        self.log: list[str] = []
        self._url = ""
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line)
            found = re.search(r"http://\S+", line)
            if found and not self._url:
                self._url = found[0]
            if "startup complete" in line:
                self._ready.set()
        self._ready.set()

    @property
    def url(self) -> str:
        assert self._ready.wait(240) and self._url, "".join(self.log)
        return self._url.removesuffix("/v1")

    def connect(self) -> HTTPConnection:
        address = urlsplit(self.url)
        return HTTPConnection(address.hostname or "", address.port, timeout=120)

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        code = self._process.wait(120)
        self._reader.join(60)
        return code

    def close(self) -> None:
        self._process.kill()
        self._process.wait(60)
        self._reader.join(60)
        assert self._process.stderr is not None
        self._process.stderr.close()
