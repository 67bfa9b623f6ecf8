"""A shell, and files to give to commands."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from phloem.runtime.cli import busy

from .shell import DOCUMENT, PERSON, Shell


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr(busy, "PATIENCE", 3600.0)  # on a busy machine anything may take long
    for name in list(os.environ):
        if name.startswith("PHLOEM_"):
            monkeypatch.delenv(name)
    return Shell(capsys)


@pytest.fixture
def schema(tmp_path: Path) -> str:
    file = tmp_path / "person.json"
    file.write_text(json.dumps(PERSON))
    return str(file)


@pytest.fixture
def document(tmp_path: Path) -> str:
    file = tmp_path / "document.txt"
    file.write_text(DOCUMENT)
    return str(file)
