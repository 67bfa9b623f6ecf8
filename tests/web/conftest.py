"""A real server on the bundled model, and a real browser that shows its page.

Skipped only where Playwright or a Chromium is not installed: `pip install '.[web-test]'`, and a system's Chromium or
`playwright install chromium`.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PATIENCE = 60.0  # seconds; far more than anything here takes
COMMANDS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
OPTIONS += ["--disable-sync", "--no-first-run"]
AXE = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port: int = made.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    reason = "Playwright is not installed: pip install '.[web-test]'"
    sync_api = pytest.importorskip("playwright.sync_api", reason=reason)
    with sync_api.sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        found = next((path for name in COMMANDS if (path := shutil.which(name))), own)
        if not Path(found).exists():
            pytest.skip("no Chromium is installed: playwright install chromium")
        launched = playwright.chromium.launch(executable_path=found, args=OPTIONS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def address(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The page of `phloem serve nano`; after `browser`, so that nothing is started in vain."""
    port, folder = free_port(), tmp_path_factory.mktemp("served")
    command = [sys.executable, "-m", "phloem", "serve", "nano", "--port", str(port), "--num-blocks", "512"]
    with (folder / "log").open("wb") as log:
        running = subprocess.Popen([*command, "--enable-admin"], cwd=folder, stdout=log, stderr=log, env=os.environ)
    deadline = time.monotonic() + PATIENCE
    try:
        while not _is_ready(port):
            assert running.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        running.terminate()
        running.wait(PATIENCE)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@pytest.fixture
def open_at(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens an address in a fresh profile: `open_at(url, width=360, height=740, …)`; other options are those of a
    context. In the end nothing may have gone wrong in it but what `page.expected` has words of."""
    contexts, faults = [], list[tuple[Any, str]]()

    def opened(url: str, *, width: int = 1280, height: int = 800, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.expected = []
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", lambda said: faults.append((page, said.text)) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda raised: faults.append((page, str(raised))))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (fault) => console.error('CSP: ' + fault.violatedDirective))"
        )
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [text for page, text in faults if not any(words in text for words in page.expected)] == []


@pytest.fixture
def open_page(open_at: Callable[..., Any], address: str) -> Callable[..., Any]:
    """The same for a view of the real server's page: `open_page("#chat")`."""

    def opened(view: str = "", **options: Any) -> Any:
        return open_at(address + view, **options)

    return opened


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci in web/")
    return AXE.read_text()


@pytest.fixture
def accessibility_faults(axe: str) -> Callable[[Any], list[str]]:
    """What axe finds in a page: rule, and the elements."""

    def found(page: Any) -> list[str]:
        page.evaluate(axe)
        violations = page.evaluate("axe.run().then(({violations}) => violations)")
        return [f"{one['id']}: {[node['html'][:120] for node in one['nodes']]}" for one in violations]

    return found
