"""A made-up server for the live page: the assets under the page's policy, and data routes that answer invented figures.

    python tests/web/made_up_server.py [--port 8123] [--nodes 20000] [--admin]

For looking at the page without a model, and for tests.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from made_up_answers import MadeUp

ASSETS = Path(__file__).resolve().parents[2] / "runtime" / "server" / "page" / "assets"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".css": "text/css",
    ".txt": "text/plain",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def handler(made_up: MadeUp) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def reply(self, status: int, body: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            for name, value in (
                ("Content-Type", kind), ("Content-Length", str(len(body))), ("Content-Security-Policy", POLICY),
                ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-cache"),
            ):  # fmt: skip
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def data(self, value: Any, status: int = 200) -> None:
            self.reply(status, json.dumps(value).encode())

        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            answers: dict[str, Callable[[], Any]] = {"/page/about": made_up.about, "/page/now": made_up.now}
            if path in answers:
                self.data(answers[path]())
            elif path == "/page/requests":
                self.data({"requests": []})
            elif path == "/page/tree":
                body = made_up.snapshot(query.partition("generation=")[2] or None)
                self.reply(*(204, b"") if body is None else (200, body), "application/octet-stream")
            elif path.startswith("/page/tree/"):
                node = made_up.node(int(path.rpartition("/")[2]))
                self.data(node or {"error": {"message": "There is no such node."}}, 200 if node else 404)
            else:
                file = ASSETS / ("index.html" if path == "/" else path.rpartition("/")[2])
                found = file.is_file()
                self.reply(
                    200 if found else 404, file.read_bytes() if found else b"", TYPES.get(file.suffix, "text/plain")
                )

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, value = made_up.constraint(body)
            self.data(value, status)

    return Handler


def start(num_nodes: int, *, admin: bool = False, port: int = 0) -> ThreadingHTTPServer:
    """Serves on a thread; `server_address` says where, `shutdown` ends it."""
    server = ThreadingHTTPServer(("127.0.0.1", port), handler(MadeUp(num_nodes, admin=admin)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--admin", action="store_true")
    options = parser.parse_args()
    print(start(options.nodes, admin=options.admin, port=options.port).server_address)
    threading.Event().wait()
