"""Follows every link of a built site: each leads to a page and a place that is there, and no page loads a foreign file.

Links in text (`<a href>`) may lead to other hosts, and are not followed there. Scripts, style sheets, fonts, pictures
and frames may not.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LOADS = {
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("source", "srcset"),
    ("use", "href"),
}
_LOADS |= {
    ("link", "href"),
    ("object", "data"),
    ("embed", "src"),
    ("video", "src"),
    ("audio", "src"),
    ("image", "href"),
}
_STYLE_URL = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class _Page(HTMLParser):
    """What a page loads, where its links lead, and the places that links may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self._in_style = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_style = tag == "style"
        for name, value in attrs:
            if value is None:
                continue
            if name == "id":
                self.places.add(value)
            elif name == "style":
                self.loads += style_urls(value)
            elif (tag, name) in _LOADS:
                self.loads.append(value)
            elif (tag, name) == ("a", "href"):
                self.links.append(value)

    def handle_data(self, data: str) -> None:
        if self._in_style:
            self.loads += style_urls(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_style = False


def style_urls(text: str) -> list[str]:
    """What a style sheet loads; not what it has inside itself (`data:`)."""
    found = [first or second for first, second in _STYLE_URL.findall(text)]
    return [url for url in found if not url.startswith("data:")]


def is_foreign(url: str) -> bool:
    parts = urlsplit(url)
    return bool(parts.netloc) or parts.scheme not in ("", "data")


def faults(site: Path) -> list[str]:
    """A line for each fault, in the order of the files; empty: there is none."""
    pages = {path: _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        found += [f"{name}: loads {url}" for url in page.loads if is_foreign(url)]
        inner = [url for url in page.links + page.loads if not is_foreign(url) and not url.startswith("data:")]
        found += [f"{name}: {url} leads nowhere" for url in inner if not _leads_somewhere(path, url, pages)]
    for path in sorted(site.rglob("*.css")):
        loads = style_urls(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site).as_posix()}: loads {url}" for url in loads if is_foreign(url)]
    return found


def _leads_somewhere(path: Path, url: str, pages: dict[Path, _Page]) -> bool:
    parts = urlsplit(url)
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return False
    return not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].places
