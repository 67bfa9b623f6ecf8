"""The outermost layer: every request passes here once, whatever route it is for (or none).

It gives the request an id, refuses those for foreign names (`host_check`), asks for the API key (all paths but those of
`OPEN_PATHS` and the files of the page, if it is served; unknown paths too), counts it, leaves one line about it in the
log (at info; at debug for what monitoring and the page ask for again and again, if it went well), and turns an
unexpected exception into a 500 that names the id and says nothing else. Every answer tells browsers not to guess what
it is (nosniff). The id is our own; a caller's `X-Request-Id` is only sent back, and stands at the end of the line. HEAD
is GET without its body, on every route that has GET.
"""

from __future__ import annotations

import hmac
import logging
import uuid
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ApiError, internal
from .host_check import check_host, own_hosts
from .metrics import Metrics
from .page.recent_requests import RecentRequests
from .page.static_files import STATIC_FILES
from .request_record import RequestRecord
from .settings import ServerSettings
from .stream import ClientGone
from .unread import UnreadBody

OPEN_PATHS = frozenset({"/health", "/health_generate", "/ready"})
PROBED_PATHS = OPEN_PATHS | {"/metrics", "/v1/loads", "/page/now", "/page/tree", "/page/requests"}
MAX_PATH_CHARS = 200
MAX_ID_CHARS = 128
logger = logging.getLogger("phloem.server")


class Gate:
    """ASGI middleware. Sets `request_id`, `api_key` (the caller's key, or None) and `record` in `scope["state"]`.

    Args:
        recent: is told of all requests; None: there is no page.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: ServerSettings,
        metrics: Metrics,
        new_record: Callable[[Headers], RequestRecord],
        recent: RecentRequests | None = None,
    ) -> None:
        self._app = app
        self._keys = [key.encode() for key in settings.api_keys]
        self._metrics = metrics
        self._new_record = new_record
        self._recent = recent
        self._open_paths = OPEN_PATHS | STATIC_FILES.keys() if settings.page else OPEN_PATHS
        self._body_timeout = settings.body_timeout
        self._hosts = own_hosts(settings.cors_origins) if settings.check_host else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        method, is_head = scope["method"], scope["method"] == "HEAD"
        if is_head:  # what GET would answer, without the body
            scope = {**scope, "method": "GET"}
        request_id = f"req_{uuid.uuid4().hex}"
        headers = Headers(scope=scope)
        shown_id = _shown_id(headers.get("x-request-id"), request_id)
        body = UnreadBody(headers, receive, self._body_timeout)
        record = self._new_record(headers)
        if self._recent is not None:
            self._recent.begin(request_id, scope["path"], record)
        status = 0

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [(b"x-request-id", shown_id.encode()), (b"x-content-type-options", b"nosniff")]
                message["headers"] = [*message.get("headers", []), *own]
            elif is_head:
                message = {**message, "body": b""}
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                record.end()
                await body.send_last(message, send)
            else:
                await send(message)

        try:
            state = scope.setdefault("state", {})
            state["request_id"], state["record"] = request_id, record
            if self._hosts is not None:
                check_host(headers.get("host", ""), self._hosts)
            state["api_key"] = self._authorized(scope["path"], headers)
            await self._app(scope, body.receive, send_with_id)
        except (ClientGone, ClientDisconnect):
            status = 499
        except ApiError as error:
            if not status:
                record.fail(error.code, error.param)
                await error.response(scope["path"])(scope, receive, send_with_id)
        except Exception:
            logger.exception("%s: %s %s failed", request_id, scope["method"], scope["path"])
            if not status:
                fault = internal(request_id)
                record.fail(fault.code, fault.param)
                await fault.response(scope["path"])(scope, receive, send_with_id)
        finally:
            self._metrics.count_http(scope, status)
            if self._recent is not None:
                route = getattr(scope.get("route"), "path", None)
                self._recent.end(request_id, route, status, is_read_only=method in ("GET", "HEAD"))
            level = logging.DEBUG if status in (200, 204, 304) and scope["path"] in PROBED_PATHS else logging.INFO
            if scope["path"] not in PROBED_PATHS:
                record.close(method, getattr(scope.get("route"), "path", None), status, request_id)
            sent_id = f" client_id={shown_id!r}" if shown_id != request_id else ""
            logger.log(level, "%s %s %s %d %s%s", request_id, method, _place(scope), status, record.line(), sent_id)

    def _authorized(self, path: str, headers: Headers) -> str | None:
        """The caller's key, compared in constant time; raises `ApiError` 401."""
        if not self._keys or path in self._open_paths:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip()
        if not scheme and headers.get("x-api-key"):  # as Anthropic's clients send it
            scheme, given = "bearer", headers["x-api-key"].strip()
        if scheme.lower() != "bearer" or not given:
            raise _unauthorized(
                "You didn't provide an API key. Send it in an Authorization header: 'Authorization: Bearer YOUR_KEY'."
            )
        candidate = given.encode("latin-1", "replace")
        matches = [hmac.compare_digest(candidate, key) for key in self._keys]
        if not any(matches):
            raise _unauthorized("Incorrect API key provided.")
        return given


def _unauthorized(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def _place(scope: Scope) -> str:
    """The route, or the path of a request that has none, in printable characters."""
    route = getattr(scope.get("route"), "path", None)
    return route if route is not None else ascii(scope["path"][:MAX_PATH_CHARS])[1:-1]


def _shown_id(given: str | None, own: str) -> str:
    usable = given is not None and given.isascii() and given.isprintable() and 0 < len(given) <= MAX_ID_CHARS
    return given if usable and given is not None else own
