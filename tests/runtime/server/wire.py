"""A client that speaks ASGI straight to the application: sees every chunk, and can leave whenever it wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fastapi import FastAPI
from prometheus_client.parser import text_string_to_metric_families

from phloem.runtime.server import ServerSettings, create_app

from .fakes import FakeAsyncEngine


@dataclass
class Answer:
    """What came back.

    Attributes:
        chunks: the body as it was sent.
    """

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json()["error"]
        assert {"message", "type", "param", "code"} <= set(error)
        return error

    def events(self) -> list[Any]:
        """The data of every event, parsed; `[DONE]` stays text."""
        found = []
        for line in self.body.decode().split("\n\n"):
            if line and not line.startswith(":"):
                data = line.split("data: ", 1)[1]
                found.append(data if data == "[DONE]" else json.loads(data))
        return found


async def exchange(
    app: FastAPI,
    method: str,
    path: str,
    body: bytes = b"",
    headers: dict[str, str] | None = None,
    *,
    leave_after: Callable[[Answer], bool] | None = None,
    stalls: bool = False,
) -> Answer:
    """One request. `leave_after`: disconnect as soon as it holds; `stalls`: never take a body chunk."""
    answer = Answer()
    gone = asyncio.Event()
    pending = [body[start : start + 65536] for start in range(0, len(body), 65536)] or [b""]
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path.partition("?")[0],
        "raw_path": path.encode(),
        "query_string": path.partition("?")[2].encode(),
        "root_path": "",
        "headers": raw,
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
    }

    async def receive() -> dict[str, Any]:
        if pending:
            return {"type": "http.request", "body": pending.pop(0), "more_body": bool(pending)}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            if stalls:
                await asyncio.Event().wait()
            answer.chunks.append(message["body"])
        if leave_after is not None and leave_after(answer):
            gone.set()

    if leave_after is not None and leave_after(answer):
        asyncio.get_running_loop().call_later(0.05, gone.set)
    await app(scope, receive, send)
    return answer


@dataclass
class Client:
    """Synchronous calls to one application over a fake engine, each on a loop of its own."""

    app: FastAPI
    engine: FakeAsyncEngine

    def request(self, method: str, path: str, body: bytes = b"", **options: Any) -> Answer:
        async def run() -> Answer:
            async with self.app.router.lifespan_context(self.app):
                return await asyncio.wait_for(exchange(self.app, method, path, body, **options), 20)

        return asyncio.run(run())

    def get(self, path: str, **options: Any) -> Answer:
        return self.request("GET", path, **options)

    def post(self, path: str, value: object, headers: dict[str, str] | None = None, **options: Any) -> Answer:
        body = json.dumps(value).encode()
        return self.request(
            "POST", path, body, headers={"content-type": "application/json", **(headers or {})}, **options
        )

    def chat(self, text: str = "Hi", **fields: Any) -> Answer:
        return self.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], **fields})

    def complete(self, prompt: object = "Hi", **fields: Any) -> Answer:
        return self.post("/v1/completions", {"prompt": prompt, **fields})


def series_of(metrics: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Labels and values of each series of `/metrics`, by its name."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return found


def client(engine: FakeAsyncEngine | None = None, **settings: Any) -> Client:
    """A client of a new application named "fake" (other settings as given)."""
    engine = engine or FakeAsyncEngine()
    settings = {"model_name": "fake", **settings}
    return Client(create_app(engine, ServerSettings(**settings)), engine)  # type: ignore[arg-type]
