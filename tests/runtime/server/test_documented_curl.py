"""Every `curl` line of the documentation, sent to the application as it stands there.

A block of `json` after one with a single line shows a part of its answer.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from phloem.runtime.config import EngineConfig
from phloem.runtime.engine.async_engine import AsyncEngine
from phloem.runtime.engine.engine import Engine
from phloem.runtime.execute.loading import LoadedModel
from phloem.runtime.models import resolve_model
from phloem.runtime.server import ServerSettings, create_app

from ...page_blocks import blocks
from ..models.saved_adapters import save_adapter
from .wire import Client

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass
class Call:
    """What curl would send. `-d` makes a POST of it, and a form unless a header says otherwise."""

    place: str
    url: str = ""
    method: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""
    shown: Any = None


def read_call(place: str, line: str) -> Call:
    call = Call(place)
    words = iter(shlex.split(line)[1:])
    for word in words:
        if word in ("-X", "--request"):
            call.method = next(words)
        elif word in ("-H", "--header"):
            name, _, value = next(words).partition(":")
            call.headers[name.strip().lower()] = value.strip()
        elif word in ("-d", "--data"):
            call.body = next(words)
            call.headers.setdefault("content-type", "application/x-www-form-urlencoded")
        elif word.startswith("-"):
            assert word in ("-s", "-N", "-i"), f"{place}: {word} is not known to this test"
        else:
            assert not call.url, f"{place}: two addresses"
            call.url = word if "://" in word else f"http://{word}"
    call.method = call.method or ("POST" if call.body else "GET")
    return call


def documented() -> Iterator[Call]:
    for page in PAGES:
        for block in blocks(page):
            name, _, number = block.place.partition(":")
            lines = list(re.finditer(r"^curl (?:.*\\\n)*.*", block.code, re.MULTILINE))
            for line in lines:
                at = int(number) + block.code[: line.start()].count("\n")
                call = read_call(f"{name}:{at}", line[0].replace("\\\n", " ").partition(" | ")[0])
                if block.shown is not None and len(lines) == 1:
                    call.shown = json.loads(block.shown)
                yield call


def is_part(shown: Any, answer: Any) -> bool:
    """Whether an answer is what is shown, and perhaps has more fields."""
    if isinstance(shown, dict):
        return isinstance(answer, dict) and all(k in answer and is_part(v, answer[k]) for k, v in shown.items())
    if isinstance(shown, list):
        return isinstance(answer, list) and len(shown) == len(answer) and all(map(is_part, shown, answer))
    return bool(shown == answer)


CALLS = list(documented())


def test_there_are_such_lines() -> None:
    everywhere = sum(len(re.findall(r"^\s*curl ", page.read_text(encoding="utf-8"), re.MULTILINE)) for page in PAGES)
    assert len(CALLS) == everywhere >= 3


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(resolve_model("nano"), dtype=torch.float32)
    place = tmp_path_factory.mktemp("adapters")
    save_adapter(place / "sql", model, r".*(q|v)_proj", {}, seed=0, size=0.1)
    return place


def test_each_is_answered(nano: LoadedModel, adapters: Path) -> None:
    """In the order of the pages: what is loaded in one line is unloaded in the next."""
    driver = AsyncEngine(Engine.from_loaded(EngineConfig(num_blocks=256, device="cpu"), nano))
    app = create_app(driver, ServerSettings(admin=True, adapter_loading=True))
    asked = Client(app, driver)  # type: ignore[arg-type]  # a real one does as well
    try:
        for call in CALLS:
            target = urlsplit(call.url)
            assert target.hostname in ("localhost", "127.0.0.1") and target.port == 8000, call.place
            body = call.body.replace("/adapters/", f"{adapters}/").encode()
            answer = asked.request(call.method, target.path, body, headers=call.headers)
            assert answer.status == 200, f"{call.place}: {answer.status} {answer.body.decode()}"
            assert call.shown is None or is_part(call.shown, answer.json()), f"{call.place}: {answer.json()}"
    finally:
        driver.stop()
