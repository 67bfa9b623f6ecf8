"""An HTTP server on a loopback port whose answers are written down beforehand."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Reply:
    """One answer. stays: nothing more is sent after `body`, and the connection is open until the client closes it."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    stays: bool = False


@dataclass
class Script:
    """What is answered, in order (the last one again and again), and what was asked."""

    url: str
    replies: list[Reply] = field(default_factory=list)
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def bodies(self) -> list[Any]:
        return [body for _, _, body in self.asked]


@contextmanager
def scripted() -> Iterator[Script]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length", 0)))
            with script.lock:
                headers = {name.lower(): value for name, value in self.headers.items()}
                script.asked.append((self.path, headers, json.loads(data or b"null")))
                reply = script.replies.pop(0) if len(script.replies) > 1 else script.replies[0]
            try:
                self._answer(reply)
            except OSError:  # the client has left
                script.left.set()

        def _answer(self, reply: Reply) -> None:
            self.send_response(reply.status)
            for name, value in ({"Content-Type": "application/json"} | reply.headers).items():
                self.send_header(name, value)
            if not reply.stays:
                self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
            self.wfile.flush()
            if reply.stays:
                assert self.rfile.read(1) == b""
                script.left.set()

        do_GET = do_POST

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    script = Script(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def events(*bodies: Any, done: bool = True, stays: bool = False) -> Reply:
    """A stream."""
    frames = [f"data: {json.dumps(body)}\n\n".encode() for body in bodies]
    return Reply(
        b": ping\n\n" + b"".join(frames) + (b"data: [DONE]\n\n" if done else b""),
        headers={"Content-Type": "text/event-stream"},
        stays=stays,
    )


def chat_events(texts: Sequence[str], reason: str | None = "stop", **usage: Any) -> Reply:
    """OpenAI's stream of one choice."""
    chunks = [{"id": "c", "choices": [{"index": 0, "delta": {"content": text}}]} for text in texts]
    if reason is not None:
        chunks.append({"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return events(*chunks, {"id": "c", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, **usage}})


def message_events(texts: Sequence[str], reason: str = "end_turn") -> Reply:
    """Anthropic's stream."""
    usage = {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 1}
    return events(
        {"type": "message_start", "message": {"id": "m", "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "ping"},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
        done=False,
    )


def error(status: int, message: str, **headers: str) -> Reply:
    body = {"error": {"message": message, "type": "t", "param": None, "code": None}}
    return Reply(json.dumps(body).encode(), status, headers)
