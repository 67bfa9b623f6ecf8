"""Requests for foreign names are refused where callers are on this machine and there is no key."""

from __future__ import annotations

import pytest

from phloem.runtime.cli.serve import for_host
from phloem.runtime.server import ServerSettings

from .wire import client


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        ("localhost", True),
        ("localhost:8000", True),
        ("LOCALHOST.", True),
        ("127.0.0.1:8000", True),
        ("10.1.2.3", True),
        ("[::1]:8000", True),
        ("chat.localhost:8000", True),
        ("here.example", True),
        ("evil.example", False),
        ("evil.example:8000", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("notlocalhost", False),
        ("here.example@evil.example", False),
        ("[::1", False),
        ("evil.example:x", False),
    ],
)
def test_a_foreign_name_is_refused(host: str, is_own: bool) -> None:
    asked = client(check_host=True, page=True, cors_origins=("https://here.example",))
    for path in ("/", "/page/now", "/v1/models", "/health", "/nowhere"):
        answer = asked.get(path, headers={"host": host})
        assert (answer.status != 403) == is_own, path
        if not is_own:
            assert answer.error["code"] == "host_not_allowed" and "--api-key" in answer.error["message"]
    assert client().get("/v1/models", headers={"host": host}).status == 200


@pytest.mark.parametrize(
    ("host", "settings", "is_checked"),
    [
        ("127.0.0.1", {}, True),
        ("127.0.0.1", {"api_keys": ("k",)}, False),
        ("0.0.0.0", {}, False),
        ("localhost", {"check_host": False}, False),
        ("0.0.0.0", {"check_host": True}, True),
    ],
)
def test_it_is_looked_at_on_loopback_without_a_key(host: str, settings: dict[str, object], is_checked: bool) -> None:
    assert for_host(ServerSettings(**settings), host).check_host is is_checked  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("origin", "may"),
    [
        (None, True),
        ("http://own", True),
        ("https://here.example", True),
        ("https://evil.example", False),
        ("null", False),
    ],
)
def test_a_foreign_page_empties_no_cache(origin: str | None, may: bool) -> None:
    asked = client(admin=True, cors_origins=("https://here.example",))
    headers = {"host": "own"} | ({} if origin is None else {"origin": origin, "content-type": "text/plain"})
    assert (asked.request("POST", "/flush_cache", headers=headers).status != 403) == may
