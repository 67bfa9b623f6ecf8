"""A newcomer's way through the live page, in a browser, and its pictures: `python scripts/draw_page.py [FOLDER]`.

Starts `phloem serve nano`, and does by hand of Chromium what one would try first: two chats that share a prompt, an
edit that computes nothing again, valid JSON under a schema, the tree in which all of it lies, a constraint and a text
that leaves it, the requests. Each place leaves a picture in docs/images/page/ (or FOLDER); what is not as it should be
is an error. Needs Playwright and a Chromium (`pip install '.[web-test]'`).
"""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images" / "page"
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PATIENCE = 60.0  # seconds
SYSTEM = "You read documents. Answer briefly, or give JSON."
LETTERS = (
    "Meet Toran Grinasen, 47 years old. Toran works as a baker. Toran has a house in Lumsasen. Toran works from home.",
    "Meet Nina Vesk, 31 years old. Nina works as a painter. Nina has a house in Tolva. Nina works in an office.",
)
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "job": {"type": "string", "maxLength": 20},
        "city": {"type": "string", "maxLength": 20},
        "remote": {"type": "boolean"},
    },
    "required": ["name", "age", "job", "city", "remote"],
    "additionalProperties": False,
}


def main(folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    with served() as address, sync_playwright() as playwright:
        own = playwright.chromium.executable_path
        found = next((path for name in ("chromium", "google-chrome") if (path := shutil.which(name))), own)
        browser = playwright.chromium.launch(executable_path=found, args=OPTIONS)
        page = browser.new_page(viewport={"width": 1280, "height": 760}, color_scheme="light")
        page.set_default_timeout(1000 * PATIENCE)
        faults: list[str] = []
        page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda raised: faults.append(str(raised)))
        page.goto(address)
        Tour(page, folder).go()
        assert not faults, faults
        browser.close()


@contextmanager
def served() -> Iterator[str]:
    """The address of a server on the bundled model."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        port = made.getsockname()[1]
    address = f"http://127.0.0.1:{port}/"
    command = [sys.executable, "-m", "phloem", "serve", "nano", "--port", str(port), "--enable-admin"]
    with tempfile.TemporaryFile() as log, tempfile.TemporaryDirectory() as folder:
        running = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + PATIENCE
            while not is_ready(address):
                if running.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    raise SystemExit(f"the server did not start:\n{log.read().decode()}")
                time.sleep(0.1)
            yield address
        finally:
            running.terminate()
            running.wait()


def is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}ready", timeout=PATIENCE) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


class Tour:
    """One way through the page; every step waits for what it asked for."""

    def __init__(self, page: Any, folder: Path) -> None:
        self.page = page
        self.folder = folder

    def go(self) -> None:
        self.set_up_chat()
        self.answer_is_json(LETTERS[0])
        self.shoot("chat")
        self.page.get_by_role("button", name="New conversation").click()
        self.set_up_chat()
        self.answer_is_json(LETTERS[1])
        hits, tokens = self.cached()
        assert hits >= 16, f"{hits} of {tokens}: the system prompt is computed once"
        before = self.edit("Extract the person as JSON, please.")
        assert before[0] > hits, f"{before}: what comes before the edit was not computed again"
        self.look_at_the_tree()
        self.look_at_a_constraint()
        self.shoot_view("now", ".tile")
        self.shoot_view("requests", "h1")

    def set_up_chat(self) -> None:
        self.field("Settings", "Temperature", "0")
        self.field("Settings", "System prompt", SYSTEM)
        bar = self.page.locator(".composer-bar")
        form = bar.get_by_role("button", name=re.compile("Format|JSON Schema"))
        if form.get_attribute("aria-expanded") != "true":
            form.click()
        self.page.get_by_label("JSON Schema").first.check()
        self.page.get_by_role("textbox", name="JSON Schema").fill(json.dumps(PERSON, indent=1))
        form.click()

    def field(self, panel: str, field: str, value: str) -> None:
        button = self.page.locator(".composer-bar").get_by_role("button", name=panel)
        if button.get_attribute("aria-expanded") != "true":
            button.click()
        self.page.locator(".panel").get_by_label(field).fill(value)

    def answer_is_json(self, letter: str) -> None:
        self.page.get_by_label("Message", exact=True).fill(f"{letter}\n\nExtract the person as JSON.")
        self.page.keyboard.press("Enter")
        self.finished()
        value = json.loads(self.page.locator(".reply .formatted").last.inner_text())
        assert set(value) == set(PERSON["properties"]), value  # type: ignore[call-overload]

    def finished(self) -> None:
        self.page.locator(".reply .formatted").last.wait_for()
        self.page.locator('.reply[aria-busy="true"]').wait_for(state="detached")

    def cached(self) -> tuple[int, int]:
        said = self.page.locator(".reply").last.inner_text()
        found = re.search(r"(\d+) of (\d+) prompt tokens? cached", said)
        assert found is not None, said
        return int(found[1]), int(found[2])

    def edit(self, ending: str) -> tuple[int, int]:
        self.page.get_by_role("button", name="Edit").last.click()
        form = self.page.get_by_role("form", name="Edit your message")
        form.get_by_role("textbox").fill(f"{LETTERS[1]}\n\n{ending}")
        self.page.get_by_role("button", name="Send as a new branch").click()
        self.page.get_by_text("2 of 2").wait_for()
        self.finished()
        return self.cached()

    def look_at_the_tree(self) -> None:
        self.view("tree", "canvas")
        self.page.wait_for_timeout(1500)  # a snapshot with what was just said
        box = self.page.locator("canvas").bounding_box()
        self.page.mouse.click(box["x"] + 60, box["y"] + 60)
        text = self.page.locator(".node-text")
        text.wait_for()
        assert "You read documents" in text.inner_text(), text.inner_text()
        self.page.mouse.move(5, 5)
        self.shoot("tree")

    def look_at_a_constraint(self) -> None:
        self.view("constraint", "textarea")
        self.page.get_by_role("textbox", name="Constraint").fill(json.dumps(PERSON, indent=1))
        self.page.get_by_role("textbox", name="Text").fill(
            '{"name":"Ada","age":36,"job":"poet","city":"London","remote":no}'
        )
        self.page.locator(".steps", has_text="is not allowed at").wait_for()
        self.shoot("constraint")

    def view(self, name: str, selector: str) -> None:
        self.page.goto(self.page.url.partition("#")[0] + f"#{name}")
        self.page.locator(selector).first.wait_for()

    def shoot_view(self, name: str, selector: str) -> None:
        self.view(name, selector)
        self.page.wait_for_timeout(2500)  # a few values in each series
        self.shoot(name)

    def shoot(self, name: str) -> None:
        self.page.screenshot(path=str(self.folder / f"{name}.png"))
        print(self.folder / f"{name}.png", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES)
