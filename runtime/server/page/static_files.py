"""The files of the page: read once, answered with headers that let it load nothing else and run nothing inline."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response

STATIC_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/page/app.css": ("app.css", "text/css; charset=utf-8"),
    "/page/icon.svg": ("icon.svg", "image/svg+xml"),
    "/page/LICENSES.txt": ("LICENSES.txt", "text/plain; charset=utf-8"),
}
"""By path: the name of the file and its media type."""
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page; tag: its entity tag, with quotes."""

    content: bytes
    media_type: str
    tag: str

    def response(self, request: Request) -> Response:
        """The file, or 304 if the caller has it."""
        headers = {**HEADERS, "ETag": self.tag}
        if has_tag(request, self.tag):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


def read_static_files() -> dict[str, StaticFile]:
    """By path."""
    folder = files(__package__) / "assets"
    found = {}
    for path, (name, media_type) in STATIC_FILES.items():
        content = (folder / name).read_bytes()
        found[path] = StaticFile(content, media_type, f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return found


def has_tag(request: Request, tag: str) -> bool:
    """Whether the caller has what has this entity tag (`If-None-Match`)."""
    given = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    return tag in given or "*" in given
