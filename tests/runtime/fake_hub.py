"""A hub of one model on this machine, as much of the protocol as `huggingface_hub` asks for; run as a process.

    python fake_hub.py FOLDER          prints its port; files of FOLDER are `owner/model`

It notes requests for files, and from which byte on, in `FOLDER.log`. A file of the name in `FOLDER.cut` is cut off in
the middle, once. While there is `FOLDER.wrong`, weights are sent with a wrong byte.
"""

from __future__ import annotations

import hashlib
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    folder: Path

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def _answer(self, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/owner/model"):
            self._send_json(path)
        elif path.startswith("/owner/model/resolve/"):
            self._send_file(path.split("/", 5)[5], with_body)
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _send_json(self, path: str) -> None:
        files = [str(file.relative_to(self.folder)) for file in sorted(self.folder.rglob("*")) if file.is_file()]
        if "/tree/" in path:
            sizes = {name: (self.folder / name).stat().st_size for name in files}
            data: object = [{"type": "file", "path": name, "size": size, "oid": name} for name, size in sizes.items()]
        else:
            names = [{"rfilename": name} for name in files]
            data = {"_id": "1", "id": "owner/model", "sha": COMMIT, "siblings": names, "private": False, "tags": []}
        body = json.dumps(data).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_file(self, name: str, with_body: bool) -> None:
        """Weights are named by their SHA-256, as the hub names large files, others by the SHA-1."""
        body = (self.folder / name).read_bytes()
        etag = hashlib.sha256(body).hexdigest() if name.endswith(".safetensors") else hashlib.sha1(body).hexdigest()
        if self.folder.with_suffix(".wrong").exists() and name.endswith(".safetensors"):
            body = b"x" + body[1:]
        begin, wanted = 0, self.headers.get("Range", "")
        if wanted.startswith("bytes="):
            begin = int(wanted.removeprefix("bytes=").partition("-")[0])
        self.send_response(206 if begin else 200)
        self.send_header("ETag", f'"{etag}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        if not with_body:
            return
        with self.folder.with_suffix(".log").open("a") as log:
            log.write(f"{name} {begin}\n")
        cut = self.folder.with_suffix(".cut")
        if cut.exists() and cut.read_text() == name:
            cut.unlink()
            self.wfile.write(body[begin : begin + (len(body) - begin) // 2])
            self.wfile.flush()
            self.connection.close()
            return
        self.wfile.write(body[begin:])


if __name__ == "__main__":
    Hub.folder = Path(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    print(server.server_address[1], flush=True)
    server.serve_forever()
