"""Getting started and the guides: what they say to type works, and prints what they show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from phloem.runtime.cli import run
from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import load
from phloem.runtime.server import ServerSettings, create_app

from .page_blocks import Block, blocks, is_shown, run_python, run_shell
from .runtime.server.conftest import running

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = [DOCS / "getting-started.md", *sorted((DOCS / "guides").glob("*.md"))]
ADDRESS = "http://127.0.0.1:8000"  # as the pages have it
NOT_RUN = {  # blocks by how they begin, and why
    "pip install torch": "installs phloem",
    "from anthropic import": "anthropic's client is not among what tests need",
    "smg --worker-urls": "a router; runtime/server/test_smg.py runs it",
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server as `phloem serve nano` starts it, on a port of its own."""
    async_engine = AsyncEngine(Engine.from_loaded(EngineConfig(num_blocks=512), load(EngineConfig(device="cpu"))))
    try:
        with running(create_app(async_engine, ServerSettings())) as (url, _):
            yield url
    finally:
        async_engine.stop()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_what_a_page_says_to_type_prints_what_it_shows(
    page: Path, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}

    def command(*words: str) -> str:
        code = run(words)
        printed = capsys.readouterr()
        assert code == 0, printed.err
        return printed.out

    for block in blocks(page):
        if block.language not in ("python", "sh") or block.code.startswith(tuple(NOT_RUN)):
            continue
        here = Block(block.place, block.language, block.code.replace(ADDRESS, address), block.shown)
        if block.language == "python":
            printed = run_python(here, page, names)
        else:
            printed = run_shell(here, command)
            if block.shown is None or "curl " in block.code:  # runtime/server/test_documented_curl.py
                continue
        assert is_shown(block.shown or "", printed), f"{block.place} prints:\n{printed}"


def test_what_is_not_run_is_there() -> None:
    codes = [block.code for page in PAGES for block in blocks(page)]
    assert all(any(code.startswith(beginning) for code in codes) for beginning in NOT_RUN)
