"""Whether a request is for this machine by a name of its own, and not for a foreign name that was bound to its address.

A page of `http://evil.example` may have its name answered with 127.0.0.1 once it is loaded (DNS rebinding): then the
browser takes this server for the page's own origin, and lets the page read all it answers. Such a request has the
foreign name in `Host`. Addresses cannot be rebound, so they are let through.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from .errors import ApiError

MAX_CHARS = 100


def own_hosts(origins: Collection[str]) -> frozenset[str]:
    """Names that requests may be for: `localhost`, and the hosts of origins that may call."""
    return frozenset({"localhost", *(urlsplit(origin).hostname or "" for origin in origins)})


def check_host(given: str, hosts: Collection[str]) -> None:
    """given: the header `Host`; "" if there is none, as clients that are no browsers may have it.

    Raises:
        ApiError: 403, it is for another name.
    """
    if not given:
        return
    try:
        name = urlsplit(f"//{given}").hostname or ""
    except ValueError:
        name = ""
    name = name.removesuffix(".")
    if name in hosts or name.endswith(".localhost") or _is_address(name):
        return
    raise ApiError(
        403,
        f"This server is for callers on its own machine, and this request is for {given[:MAX_CHARS]!a}. Ask for "
        "localhost or 127.0.0.1; to serve that name, start it with --api-key, or with --no-check-host.",
        code="host_not_allowed",
    )


def check_origin(headers: Headers, origins: Collection[str]) -> None:
    """For a request without a body that changes something: a browser sends it for any page, without asking first.

    Raises:
        ApiError: 403, it is of a page of another origin.
    """
    origin = headers.get("origin")
    if origin is None or origin in origins or urlsplit(origin).netloc == headers.get("host"):
        return
    raise ApiError(
        403,
        f"This is asked for by a page of {origin[:MAX_CHARS]!a}; allow it with --cors-origin.",
        code="origin_not_allowed",
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
