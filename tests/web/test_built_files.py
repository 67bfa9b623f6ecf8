"""The page that is served is the one that the sources make. Needs neither Node nor a browser."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from phloem.runtime.server.page.static_files import STATIC_FILES

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "web"
ASSETS = ROOT / "runtime" / "server" / "page" / "assets"
MAX_BYTES = 300_000
BUILT_FROM = re.search(r"BUILT_FROM = \[(.*?)\]", (WEB / "plugins/committed_files.ts").read_text(), re.DOTALL)


def hash_of_sources() -> str:
    """As `hashOfSources` in web/plugins/committed_files.ts."""
    assert BUILT_FROM is not None
    lines = []
    for name in re.findall(r'"(.+?)"', BUILT_FROM[1]):
        paths = [WEB / name] if (WEB / name).is_file() else [path for path in (WEB / name).rglob("*") if path.is_file()]
        for path in paths:
            lines.append(f"{path.relative_to(WEB).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


def test_they_are_built_from_these_sources() -> None:
    built = re.match(r"/\* sources: (\w+) \*/\n", (ASSETS / "app.js").read_text())
    assert built is not None
    assert built[1] == hash_of_sources(), "web/ has changed: npm ci && npm run build there"


def test_they_are_the_served_ones_and_light() -> None:
    built = {path.name: path.stat().st_size for path in ASSETS.iterdir()}
    assert set(built) == {name for name, _ in STATIC_FILES.values()}
    assert sum(built.values()) <= MAX_BYTES


def test_nothing_is_inline_or_from_elsewhere() -> None:
    page = (ASSETS / "index.html").read_text()
    assert re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL) == [""]
    assert not re.search(r"<style|style=|\son\w+=|https?:|data:|blob:", page)
    assert set(re.findall(r'(?:src|href)="(.+?)"', page)) == {"page/app.js", "page/app.css", "page/icon.svg"}
    assert not re.search(r"url\(|@import|sourceMappingURL", (ASSETS / "app.css").read_text())
    assert "sourceMappingURL" not in (ASSETS / "app.js").read_text()
