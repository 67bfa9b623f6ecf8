"""The pages of the repository as the site has them: the same text, with links that lead to pages of the site.

A link to a file that is a page of the site leads there, one to another file of the repository to a copy of it, and one
to a folder to the page that `FOLDERS` names. A link that leads nowhere is an error.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from site_contents import PAGES, trees

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDERS = {"bench/results": "figures.md", "examples/notebooks": "program.md"}
_FENCES = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")


class LinkFault(Exception):
    """A link of a page leads nowhere."""


def pages() -> dict[str, str]:
    """Which page of the site each Markdown file of the repository becomes."""
    docs = {f"docs/{name}": name for name in _below(ROOT / "docs", "*.md")}
    results = {f"bench/results/{name}": f"results/{PurePosixPath(name).stem}.md" for name in _results()}
    return {**docs, **PAGES, **results}


def _below(folder: Path, pattern: str) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob(pattern))


def _results() -> list[str]:
    return [name for name in _below(ROOT / "bench" / "results", "*") if name.endswith((".txt", ".md"))]


def repository_pages() -> dict[str, str]:
    """The text of every page that is a file of the repository, by its name on the site."""
    known = pages()
    made = {}
    for file, page in known.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        text = relinked(file, text, known) if file.endswith(".md") else text
        made[page] = result_page(file, text) if file.startswith("bench/results/") else text
    made["index.md"] += trees()
    made["figures.md"] += _all_results(known)
    return made


def relinked(file: str, text: str, known: dict[str, str]) -> str:
    """The text of a file, with its links as they are on the site; what is in code blocks stays."""
    parts, at = [], 0
    for fence in [*_FENCES.finditer(text), None]:
        begin, end = fence.span() if fence is not None else (len(text), len(text))
        parts += [_LINK.sub(lambda link: _relinked(file, link, known), text[at:begin]), text[begin:end]]
        at = end
    return "".join(parts)


def _relinked(file: str, link: re.Match[str], known: dict[str, str]) -> str:
    target, anchor = link[2], link[3] or ""
    if re.match(r"[a-z]+:", target):
        return link[0]
    path = os.path.normpath(os.path.join(os.path.dirname(file), target))
    if not (ROOT / path).exists():
        raise LinkFault(f"{file}: there is no {path}, which a link leads to")
    if path in FOLDERS:
        leads_to = FOLDERS[path]
    elif path in known:
        leads_to = known[path]
    elif path.startswith("docs/images/"):
        leads_to = path.removeprefix("docs/")
    elif (ROOT / path).is_dir():
        raise LinkFault(f"{file}: {path} is a folder, which is no page of the site; see FOLDERS in {__file__}")
    else:
        leads_to = f"files/{path}"
    here = os.path.dirname(known[file])
    return f"{link[1]}{os.path.relpath(leads_to, here or '.')}{anchor}{link[4]}"


def linked_files(made: dict[str, str]) -> set[str]:
    """The files of the repository, besides pages and pictures, that the pages lead to."""
    return {match for text in made.values() for match in re.findall(r"\]\((?:\.\./)*files/([^)#]+)", text)}


def result_page(file: str, text: str) -> str:
    """A table of measurements as a page: Markdown as it stands, anything else as it was printed."""
    title = PurePosixPath(file).stem
    origin = f"\n`{file}`, as it was measured; how to measure it again is said in it and in [Figures](../figures.md).\n"
    if file.endswith(".md"):
        lines = text.splitlines()
        heading = lines.pop(0) if lines[0].startswith("# ") else f"# {title}"
        return f"{heading}\n{origin}\n" + "\n".join(lines) + "\n"
    return f"# {title}\n{origin}\n````text\n{text.rstrip()}\n````\n"


def _all_results(known: dict[str, str]) -> str:
    names = [page.removesuffix(".md") for file, page in known.items() if file.startswith("bench/results/")]
    return "\n## All tables of results\n\n```{toctree}\n:maxdepth: 1\n\n" + "\n".join(names) + "\n```\n"
