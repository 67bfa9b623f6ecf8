"""Builds the documentation site: the body of `make docs`.

    .venv/bin/python scripts/docs_site/build_site.py

Writes what Sphinx reads into `build/site-source/` (the pages of the repository, and a reference made from the code),
lets Sphinx make `build/site/` of it, with warnings as errors, and then follows every link of the pages. What has not
changed is not read again; all pages are written again, since the side bar of each names all others. Nothing is read
from a network, and no page needs one.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path

from api_page import api_page
from check_site import faults
from command_page import command_page
from http_page import http_page
from site_source import ROOT, linked_files, repository_pages

SOURCE = ROOT / "build" / "site-source"
SITE = ROOT / "build" / "site"
CACHE = ROOT / "build" / "site-cache"


def write_source() -> None:
    """Makes `SOURCE` hold what the site is made of and nothing else; files that would stay the same are not touched."""
    made = repository_pages()
    made |= {
        "reference/api.md": api_page(),
        "reference/http.md": http_page(),
        "reference/command-line.md": command_page(),
    }
    wanted = {page: text.encode() for page, text in made.items()}
    for file in linked_files(made):
        wanted[f"files/{file}"] = (ROOT / file).read_bytes()
    images = ROOT / "docs" / "images"
    for path in images.rglob("*.*"):
        wanted[f"images/{path.relative_to(images).as_posix()}"] = path.read_bytes()
    for path in SOURCE.rglob("*"):
        if path.is_file() and path.relative_to(SOURCE).as_posix() not in wanted:
            path.unlink()
    for name, content in wanted.items():
        path = SOURCE / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def main() -> None:
    began = time.monotonic()
    write_source()
    shutil.rmtree(SITE, ignore_errors=True)  # pages that are gone would stay
    here = Path(__file__).resolve().parent
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "--builder",
        "html",
        "--conf-dir",
        str(here),
        "--doctree-dir",
        str(CACHE),
    ]
    command += ["--fail-on-warning", "--write-all", "--quiet", str(SOURCE), str(SITE)]
    if subprocess.run(command, cwd=ROOT / "build", check=False).returncode:
        shutil.rmtree(CACHE, ignore_errors=True)  # or the next run would not see the warnings of what it keeps
        sys.exit("docs: failed: see the warnings above")
    found = faults(SITE)
    if found:
        sys.exit("docs: failed:\n" + "\n".join(found))
    num_pages = len(list(SITE.rglob("*.html")))
    print(f"docs: {num_pages} pages in build/site, {time.monotonic() - began:.0f} s; open build/site/index.html")


if __name__ == "__main__":
    main()
