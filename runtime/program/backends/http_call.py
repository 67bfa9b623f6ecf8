"""One request over HTTP that another thread may abort: its answer whole, or event by event.

The standard library's client: a connection for each request, through the environment's proxies (`https_proxy` …).
Connecting is bounded; so is the time from one event of an answer to the next, or until its end if it has none, and the
size of both. A server that is busy (429, 503, 529) is asked again a few times, before anything was read of an answer.
Knows JSON and server-sent events, and no API.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from ....errors import ProgramError, RequestError

CONNECT_SECONDS = 10.0
BUSY = (429, 503, 529)
MAX_RETRY_SECONDS = 30.0
MAX_WORDS = 2000
MAX_ANSWER = 256 << 20  # bytes of an event, or of an answer without
MAX_REFUSAL = 1 << 20  # bytes of an answer that is an error
CHUNK = 1 << 16


@dataclass(frozen=True)
class HttpClient:
    """A server, and how to speak to it.

    Attributes:
        base_url: paths are appended to it.
        headers: of every request, the key among them.
        timeout: seconds without a byte, or without a whole event, after which a request fails.
        max_retries: how often a server that is busy is asked again.
        ca_file: certificates to trust instead of the system's.
        errors: what class an error becomes, by the code that the server gives it; else it is a RequestError.
        hints: what its caller is told besides, by the status of the answer.
    """

    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 600.0
    max_retries: int = 2
    ca_file: str | None = None
    errors: Mapping[str, type[RequestError]] = field(default_factory=dict)
    hints: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ProgramError(f"backend: {self.base_url!r} is no URL of a server; give one such as http://host:8000")
        if parts.query or parts.fragment or parts.username or parts.password:
            what = "a query" if parts.query else "a fragment" if parts.fragment else "a name or a password"
            raise ProgramError(f"backend: {what} in the URL of {parts.hostname} would not be sent; leave it out")

    def call(self, path: str, body: Mapping[str, Any] | None = None) -> Call:
        """A request that begins when its answer is read: POST of `body`, or GET without one."""
        return Call(self, path, body)

    def connect(self) -> HTTPConnection:
        """A connection that is not open yet, to the server or to the proxy that the environment names for it."""
        parts = urlsplit(self.base_url)
        is_secure, host, port = parts.scheme == "https", parts.hostname or "", parts.port
        proxy = self._proxy()
        if proxy is not None:
            host, port = proxy.hostname or "", proxy.port
        if not is_secure:
            return HTTPConnection(host, port, timeout=CONNECT_SECONDS)
        context = ssl.create_default_context(cafile=self.ca_file)
        connection = HTTPSConnection(host, port, timeout=CONNECT_SECONDS, context=context)
        if proxy is not None:
            connection.set_tunnel(parts.hostname or "", parts.port, _credentials(proxy))
        return connection

    def target(self, url: str) -> tuple[str, dict[str, str]]:
        """What a request names: the path, or to a proxy without a tunnel the whole URL and what lets it through."""
        parts, proxy = urlsplit(url), self._proxy()
        if parts.scheme != "http" or proxy is None:
            return parts.path, {}
        return url, _credentials(proxy)

    def _proxy(self) -> SplitResult | None:
        parts = urlsplit(self.base_url)
        found = getproxies().get(parts.scheme)
        return urlsplit(found) if found and not proxy_bypass(parts.netloc) else None


class Call:
    """One request. Read it once, on one thread, with `json` or `events`; `abort` it from any."""

    def __init__(self, client: HttpClient, path: str, body: Mapping[str, Any] | None) -> None:
        self._client = client
        self._url = client.base_url.rstrip("/") + path
        self._body = body
        self._aborted = threading.Event()
        self._socket: socket.socket | None = None
        self._response: HTTPResponse | None = None

    def abort(self) -> None:
        """Closes the connection, by which the server knows. Reading ends with an error."""
        self._aborted.set()
        self._shut_down()

    @property
    def is_aborted(self) -> bool:
        return self._aborted.is_set()

    def json(self) -> Any:
        """The answer.

        Raises:
            RequestError: there is none: unreachable, too slow, refused (with the server's own words), or no JSON.
        """
        with self._answered() as response:
            return self._whole(response)

    def text(self) -> str:
        """The answer, whatever it is. Raises as `json`."""
        with self._answered() as response:
            return b"".join(self._chunks(response, MAX_ANSWER)).decode()

    def events(self) -> Generator[Any]:
        """The data of each event until the end of the stream; of an answer that is no stream, the whole.

        Raises:
            RequestError: as `json`.
        """
        with self._answered() as response:
            if "text/event-stream" in response.getheader("content-type", ""):
                yield from self._events(response)
            else:
                yield self._whole(response)

    def error(self, status: int | None, body: Any) -> RequestError:
        """What the server has said went wrong, with its own words."""
        found = body.get("error", body) if isinstance(body, Mapping) else body
        code = param = None
        words = found
        if isinstance(found, Mapping):
            words = found.get("message") or found.get("detail") or json.dumps(found)
            code, param = found.get("code"), found.get("param")
        hint = "" if status is None else self._client.hints.get(status, "")
        answered = "failed" if status is None else f"answered {status}"
        text = f"{self._url} {answered}: {str(words)[:MAX_WORDS].strip().removesuffix('.')}{hint and f'; {hint}'}"
        kind = self._client.errors.get(code, RequestError) if isinstance(code, str) else RequestError
        return kind(text, param=param if isinstance(param, str) else None)

    # -- the connection ----------------------------------------------------------------------------------------

    @contextmanager
    def _answered(self) -> Iterator[HTTPResponse]:
        """The beginning of a good answer, on a connection that is closed in the end. Raises as `json`."""
        connection = self._client.connect()
        try:
            yield self._open(connection)
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise self._failed(error) from error
        finally:
            self._close(connection)

    def _open(self, connection: HTTPConnection) -> HTTPResponse:
        """The beginning of a good answer."""
        for retries_left in range(self._client.max_retries, -1, -1):
            response = self._send(connection)
            if response.status < 300:
                return response
            seconds = _retry_seconds(response, self._client.max_retries - retries_left)
            data = b"".join(self._chunks(response, MAX_REFUSAL))
            if response.status not in BUSY or not retries_left:
                break
            connection.close()
            if self._aborted.wait(seconds):
                break
        try:
            body = json.loads(data)
        except (ValueError, RecursionError):  # no JSON, or too deep
            body = data.decode(errors="replace") or response.reason
        raise self.error(response.status, body)

    def _send(self, connection: HTTPConnection) -> HTTPResponse:
        connection.connect()
        self._socket = connection.sock
        self._socket.settimeout(self._client.timeout)
        if self._aborted.is_set():
            raise ConnectionAbortedError
        data = None if self._body is None else json.dumps(self._body).encode()
        target, credentials = self._client.target(self._url)
        headers = {"Content-Type": "application/json", "User-Agent": "phloem", **self._client.headers, **credentials}
        connection.request("GET" if data is None else "POST", target, data, headers)
        self._response = connection.getresponse()  # has the connection, where the server closes it after this answer
        return self._response

    def _close(self, connection: HTTPConnection) -> None:
        self._shut_down()
        self._socket = None
        if self._response is not None:
            self._response.close()
        connection.close()

    def _shut_down(self) -> None:
        found = self._socket
        if found is not None:
            with suppress(OSError):
                socket.socket.shutdown(found, socket.SHUT_RDWR)  # of TLS too: a thread that reads it wakes

    def _failed(self, error: Exception) -> RequestError:
        if self._aborted.is_set():
            return RequestError("the request was aborted")
        if isinstance(error, TimeoutError):
            seconds = CONNECT_SECONDS if self._socket is None else self._client.timeout
            return RequestError(f"{self._url}: no answer within {seconds:g} s")
        if self._socket is None:
            return RequestError(f"{self._url} cannot be reached: {error}")
        return RequestError(f"{self._url}: the answer broke off or is none: {type(error).__name__}: {error}")

    # -- the answer --------------------------------------------------------------------------------------------

    def _whole(self, response: HTTPResponse) -> Any:
        return json.loads(b"".join(self._chunks(response, MAX_ANSWER)))

    def _chunks(self, response: HTTPResponse, limit: int) -> Iterator[bytes]:
        """All of an answer, as it comes."""
        end, size = time.monotonic() + self._client.timeout, 0
        while chunk := response.read1(CHUNK):
            size += len(chunk)
            self._check(size, limit, end)
            yield chunk

    def _events(self, response: HTTPResponse) -> Iterator[Any]:
        end, rest = time.monotonic() + self._client.timeout, bytearray()
        data: list[bytes] = []
        while chunk := response.read1(CHUNK):
            rest += chunk
            *lines, rest = rest.split(b"\n") if b"\n" in chunk else [rest]
            for line in (bytes(one).rstrip(b"\r") for one in lines):
                if line.startswith(b"data:"):
                    data.append(line[5:].removeprefix(b" "))
                elif not line and data:
                    event = b"\n".join(data)
                    if event == b"[DONE]":
                        return
                    data.clear()
                    yield json.loads(event)
                    end = time.monotonic() + self._client.timeout
            self._check(len(rest) + sum(map(len, data)), MAX_ANSWER, end)
        if self._aborted.is_set():
            raise ConnectionAbortedError

    def _check(self, size: int, limit: int, end: float) -> None:
        if size > limit:
            raise ValueError(f"more than {limit:,} bytes")
        if time.monotonic() > end:
            raise TimeoutError


def _credentials(proxy: SplitResult) -> dict[str, str]:
    """The header with name and password of a proxy's URL, where it has them (RFC 7617)."""
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _retry_seconds(response: HTTPResponse, attempt: int) -> float:
    try:
        asked = int(response.getheader("retry-after", ""))
    except ValueError:
        asked = 0.5 * 2**attempt
    return min(max(asked, 0.0), MAX_RETRY_SECONDS)
