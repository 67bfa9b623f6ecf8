"""The scripts of the documentation site: what they make of pages and of the code, and what they find wrong with a site.

Sphinx itself is not among what tests need; `make docs` runs it, with warnings as errors.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

import phloem as ph

from .runtime.server.wire import client

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts" / "docs_site"))

import api_page  # noqa: E402
import check_site  # noqa: E402
import command_page  # noqa: E402
import http_page  # noqa: E402
import site_contents  # noqa: E402
import site_source  # noqa: E402


def test_every_page_has_its_place_in_the_table_of_contents() -> None:
    listed = [
        entry.partition("<")[2].rstrip(">") or entry for names in site_contents.SECTIONS.values() for entry in names
    ]
    made = {"reference/api", "reference/http", "reference/command-line"}
    pages = {page.removesuffix(".md") for page in site_source.pages().values() if not page.startswith("results/")}
    assert sorted(listed) == sorted(pages - {"index"} | made)
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert all(f"]({page.name})" in index for page in (ROOT / "docs").glob("*.md") if page.name != "index.md")
    assert all(f"](guides/{page.name}" in index for page in (ROOT / "docs" / "guides").glob("*.md"))


def test_links_are_those_of_the_site_and_code_stays() -> None:
    known = {"docs/a.md": "a.md", "docs/guides/b.md": "guides/b.md", "CONTRIBUTING.md": "contributing.md"}
    known["docs/index.md"] = "index.md"
    text = (
        "[1](../index.md#the-life) [2](../../CONTRIBUTING.md) [3](../../examples/hello.py) ![4](../images/date.svg)\n"
        "[5](https://example.org) [6](#here) [7](../../bench/results)\n```python\n[8](nowhere.md)\n```\n"
    )
    assert site_source.relinked("docs/guides/b.md", text, known) == (
        "[1](../index.md#the-life) [2](../contributing.md) [3](../files/examples/hello.py) ![4](../images/date.svg)\n"
        "[5](https://example.org) [6](#here) [7](../figures.md)\n```python\n[8](nowhere.md)\n```\n"
    )
    with pytest.raises(site_source.LinkFault, match=r"docs/guides/b\.md: there is no docs/guides/nowhere\.md"):
        site_source.relinked("docs/guides/b.md", "[8](nowhere.md)", known)
    with pytest.raises(site_source.LinkFault, match="is a folder"):
        site_source.relinked("docs/guides/b.md", "[9](../../fsm)", known)


def test_all_pages_of_the_repository_can_be_made() -> None:
    made = site_source.repository_pages()
    assert made["results/tiers.md"].startswith("# tiers\n")
    assert "[mask_tails.txt](mask_tails.md)" in made["results/maskbench.md"]
    assert all((ROOT / file).is_file() for file in site_source.linked_files(made))


def test_the_python_page_has_every_public_name() -> None:
    page = api_page.api_page()
    named = re.findall(r"^\.\. (?:auto\w+|py:data):: (\w+)$", page, re.MULTILINE)
    assert sorted([*named, "__version__"]) == sorted(ph.__all__)


def test_the_page_of_the_command_line_has_every_option_once_for_each_command() -> None:
    page = command_page.command_page()
    sections = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", page, re.MULTILINE))
    assert "| `--top-k` | whole number |" in sections["phloem generate"]
    assert "| `--port` | whole number from 0 to 65535 |" in sections["phloem serve"]
    assert "| `FILES` | text, may be repeated |" in sections["phloem extract"]
    assert "`--kv-dtype`, `--kv-cache-dtype` | `auto`, `fp8`" in sections["Options of the engine"]
    assert all(
        len(names) == len(set(names)) for names in (re.findall(r"^\| (`.*?`) ", t, re.M) for t in sections.values())
    )


def test_the_http_page_has_every_route_and_field() -> None:
    page = http_page.http_page()
    document = client(admin=True, adapter_loading=True).get("/openapi.json").json()
    for path, operations in document["paths"].items():
        assert all(f"\n### {method.upper()} {path}\n" in page for method in operations)
    for name, schema in document["components"]["schemas"].items():
        section = page.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert all(f"| `{field}` | " in section for field in schema["properties"]), name
    assert "| `top_p` | number (at least 1e-30, at most 1) | `1.0` |" in page


def test_a_site_is_searched_for_dead_links_and_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text(
        "@font-face { src: url(https://fonts.example/x.woff2) } p { background: url(data:x) }"
    )
    (tmp_path / "b.html").write_text('<h1 id="top">B</h1><a href="https://example.org/">elsewhere</a>')
    (tmp_path / "a.html").write_text(
        '<link rel="stylesheet" href="a.css"><link rel="stylesheet" href="//cdn.example/y.css">'
        '<script src="https://cdn.example/x.js"></script><img src="gone.png"><p style="background: url(http://x.example/)">'
        '<a href="b.html#top">right</a><a href="b.html#nowhere">wrong</a><a href="c.html">gone</a><a href="#">no</a>'
    )
    assert check_site.faults(tmp_path) == [
        "a.html: loads //cdn.example/y.css",
        "a.html: loads https://cdn.example/x.js",
        "a.html: loads http://x.example/",
        "a.html: b.html#nowhere leads nowhere",
        "a.html: c.html leads nowhere",
        "a.html: gone.png leads nowhere",
        "a.css: loads https://fonts.example/x.woff2",
    ]
