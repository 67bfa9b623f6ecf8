"""Names of files that no file can have, or that never end: one sentence that names them, on every way in."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phloem.errors import ConfigError, ModelError
from phloem.runtime.cli import options
from phloem.runtime.cli.inspect_constraint import ConstraintOptions
from phloem.runtime.engine.engine import Engine
from phloem.runtime.models.gguf.file import GgufFile
from phloem.runtime.models.json_file import read_json_object, read_text
from phloem.runtime.models.resolve import resolve_model
from phloem.runtime.path_fault import path_fault

HOSTILE = ["\0", "a\0b", "\ud800", "x" * 10_000, "x/" * 5000, "~nobody-of-this-name/x", "a\nb", " ", "é" * 300]
NAMES = st.text(st.sampled_from("\0\ud800\udc80/~.é x\n"), min_size=1, max_size=12)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: ascii(name)[:12])
def test_a_model_and_a_text_of_that_name_are_refused(name: str) -> None:
    for path in (name, Path(name)):
        with pytest.raises(ModelError):
            resolve_model(path)
    with pytest.raises(ConfigError, match="--schema"):
        options.read_text(name, "--schema")


@given(NAMES)
@settings(max_examples=200, deadline=None)
def test_a_fault_is_told_as_often_as_the_system_would_raise_something_else(name: str) -> None:
    try:
        os.stat(name)
        usual = True
    except (FileNotFoundError, NotADirectoryError):
        usual = True
    except (OSError, ValueError):
        usual = False
    assert (path_fault(name) is None) == usual


def test_a_folder_of_the_disk_cache_is_refused_with_its_name() -> None:
    for name in ("a\0b", "\ud800", "x" * 10_000):
        with pytest.raises(ConfigError, match="disk_cache"):
            Engine("nano", device="cpu", num_blocks=8, disk_cache=name)


def test_files_of_a_model_are_regular_files(tmp_path: Path) -> None:
    """A pipe would be waited for, by `serve` and by a route alike."""
    for name in ("config.json", "tokenizer.json", "tokenizer.model", "chat_template.jinja", "model.gguf"):
        os.mkfifo(tmp_path / name)
    (tmp_path / "folder").mkdir()
    for path in (*tmp_path.iterdir(), Path("/dev/zero")):
        with pytest.raises(ModelError, match="is no regular file"):
            read_text(path)
    with pytest.raises(ModelError, match="is no regular file"):
        read_json_object(tmp_path / "config.json")
    with pytest.raises(ModelError, match="is no regular file"):
        GgufFile(tmp_path / "model.gguf")


def test_text_on_the_command_line_is_bounded_and_may_come_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "MAX_TEXT_CHARS", 1000)
    with pytest.raises(ConfigError, match="more than 1,000 characters"):
        options.read_text("/dev/zero", "--schema")
    reading, writing = os.pipe()
    os.write(writing, b"{}")
    os.close(writing)
    assert options.read_text(f"/dev/fd/{reading}", "--schema") == "{}"
    os.close(reading)


def test_a_long_grammar_on_the_command_line_is_text() -> None:
    """As the name of a file it would be too long."""
    text = 'root ::= "' + "x" * 5000 + '"'
    spec = ConstraintOptions(grammar=text).constraint()
    assert spec is not None and spec.source == text
