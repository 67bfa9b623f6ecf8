"""The pages under docs/: their links and anchors lead somewhere, and their pictures are what is drawn today."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from phloem.fsm.explain import lines
from phloem.runtime.explain import explain

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "bench/README.md")),
]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("draw_docs", ROOT / "scripts" / "draw_docs.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRAW = _script()


@pytest.mark.parametrize("name", DRAW.PICTURES)
def test_pictures_are_what_is_drawn_today(name: str) -> None:
    """If the automaton was changed on purpose: python scripts/draw_docs.py, and look at what has become of it."""
    assert (DRAW.IMAGES / name).read_text(encoding="utf-8") == DRAW.draw(name)


def test_all_pictures_are_shown_and_no_others_lie_around() -> None:
    page = (ROOT / "docs" / "structured-generation.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\(images/([^)]+)\)", page))
    assert shown == set(DRAW.PICTURES) == {path.name for path in DRAW.IMAGES.iterdir() if path.is_file()}


def test_all_screenshots_are_shown() -> None:
    """They are made by scripts/draw_page.py, which tests/web runs where there is a browser."""
    shown = {
        Path(found).name
        for page in [*PAGES, ROOT / "README.md"]
        for found in re.findall(r"\]\(([^)]*images/page/[^)]+)\)", page.read_text(encoding="utf-8"))
    }
    assert shown == {path.name for path in (DRAW.IMAGES / "page").iterdir()} != set()


def test_the_example_of_a_text_is_what_is_printed() -> None:
    page = (ROOT / "docs" / "structured-generation.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```\w*\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    example = next(block for block in blocks if "leaves the language" in block)
    found = explain(DRAW.PICTURES["shirt.svg"], text='{"name":"Nora","size":"L"}')
    assert example.strip("\n") in "\n".join(lines(found))


def _anchors(page: Path) -> set[str]:
    """The places of a page that links may name, as GitHub and the site make them of headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda path: path.name)
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", text):
        if not re.match(r"https?:", link):
            target = page.parent / link if link else page
            assert target.exists(), link
            assert not anchor or anchor in _anchors(target), f"{link}#{anchor}"


def test_names_that_contributing_gives_are_in_the_code() -> None:
    """Constants, classes and functions; what is written `like_this` and has a capital or an underscore in it."""
    code = "\n".join(
        path.read_text()
        for folder in ("radix", "fsm", "kernels", "runtime", "cluster", "faces", "tests", "scripts", "web/src")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".h", ".cpp", ".ts", ".tsx")
    )
    named = set(re.findall(r"`([A-Za-z_]*(?:[A-Z]|_)[A-Za-z_]*)`", (ROOT / "CONTRIBUTING.md").read_text()))
    named.remove("PreTrainedModel")  # transformers' own
    assert len(named) > 50 and [name for name in sorted(named) if not re.search(rf"\b{name}\b", code)] == []


def test_slow_tests_that_are_named_are_there() -> None:
    for line in (ROOT / "tests" / "slow_tests.txt").read_text().splitlines():
        file, *names = re.sub(r"\[.*", "", line).split("::")
        text = (ROOT / file).read_text() if (ROOT / file).exists() else ""
        assert all(re.search(rf"\b{name}\b", text) or name == "runTest" for name in names) and text, line


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda path: path.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    folders = "bench|cluster|deploy|docs|examples|fsm|kernels|native|radix|runtime|scripts|tests"
    named = re.findall(rf"`((?:{folders})/[\w./-]+\.\w+)(?: [^`]*)?`", page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []
