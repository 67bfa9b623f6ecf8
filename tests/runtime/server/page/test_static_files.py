"""The files of the page: without a key, with headers that let nothing else in, and only where there is a page."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest

from phloem.runtime.cli.serve import for_host
from phloem.runtime.server import ServerSettings
from phloem.runtime.server.page.static_files import STATIC_FILES

from ..wire import client

POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
    "frame-ancestors": "'none'",
}
DATA = ("/page/about", "/page/now", "/page/tree", "/page/tree/1", "/page/requests")


@pytest.mark.parametrize("path", STATIC_FILES)
def test_a_file_needs_no_key_and_lets_nothing_else_in(path: str) -> None:
    asked = client(page=True, api_keys=("sk-a",))
    found = asked.get(path)
    assert found.status == 200 and found.body
    policy = dict(part.strip().split(" ", 1) for part in found.headers["content-security-policy"].split(";"))
    assert policy == POLICY
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer" and found.headers["cache-control"] == "no-cache"
    again = asked.get(path, headers={"if-none-match": f'"other", W/{found.headers["etag"]}'})
    assert again.status == 304 and not again.body and again.headers["content-security-policy"]
    head = asked.request("HEAD", path)
    assert head.status == 200 and not head.body and head.headers["content-length"] == str(len(found.body))


@pytest.mark.parametrize("path", DATA)
def test_data_is_behind_the_key(path: str) -> None:
    assert client(page=True, api_keys=("sk-a",)).get(path).status == 401


@pytest.mark.parametrize("page", [None, False])
@pytest.mark.parametrize("path", [*STATIC_FILES, *DATA])
def test_without_a_page_there_is_nothing(path: str, page: bool | None) -> None:
    assert client(page=page).get(path).status == 404
    assert client(page=page, api_keys=("sk-a",)).get(path).status == 401


@pytest.mark.parametrize(
    ("host", "page"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("10.0.0.7", False)]
)
def test_the_page_is_for_this_machine_unless_it_is_asked_for(host: str, page: bool) -> None:
    assert for_host(ServerSettings(), host).page is page
    assert for_host(ServerSettings(page=not page), host).page is not page


def test_the_files_keep_to_their_policy_and_are_small() -> None:
    folder = files("phloem.runtime.server.page") / "assets"
    contents: dict[str, Any] = {name: (folder / name).read_bytes() for name, _ in STATIC_FILES.values()}
    page = contents["index.html"].decode()
    assert "style=" not in page and "<style" not in page and page.count("<script") == page.count("src=")
    assert sum(map(len, contents.values())) <= 300_000
