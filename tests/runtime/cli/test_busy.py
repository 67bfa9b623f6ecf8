"""What takes long is shown: a bar on a terminal, one line elsewhere, nothing of what is quick."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from phloem.runtime.cli import busy as module
from phloem.runtime.cli import engine_options
from phloem.runtime.cli.busy import busy
from phloem.runtime.config import EngineConfig
from phloem.runtime.execute.loading import load
from phloem.runtime.models import resolve, resolve_model

from .shell import Shell


class Stream(io.StringIO):
    """stderr; `written` is set as soon as something is."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal
        self.written = threading.Event()

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count


@pytest.mark.parametrize("is_terminal", [False, True], ids=["pipe", "terminal without escape codes"])
def test_a_line_is_written_if_it_takes_long(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(is_terminal)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    with busy("loading it") as report:
        assert stream.written.wait(60)
        report(1, 2)
    assert stream.getvalue() == "loading it …\n"


def test_a_pipe_gets_nothing_of_what_is_quick_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(is_terminal=False)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(module, "PATIENCE", 3600.0)
    with busy("loading it"):
        pass
    with pytest.raises(ZeroDivisionError), busy("loading it"):
        raise ZeroDivisionError
    assert stream.getvalue() == ""


def test_a_terminal_sees_how_far_it_is_and_results_do_not_pass_through_the_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = Stream(is_terminal=True)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with busy("loading it") as report:
        print("a result")
        report(3, 7)
    assert "loading it" in stream.getvalue() and "3/7" in stream.getvalue()
    assert capsys.readouterr().out == "a result\n" and "a result" not in stream.getvalue()


def test_loading_reports_layer_by_layer() -> None:
    reports: list[tuple[int, int]] = []
    load(EngineConfig(device="cpu"), lambda done, total: reports.append((done, total)))
    assert reports == [(index, 4) for index in range(1, 5)]


def test_a_hub_id_is_fetched_before_anything_is_loaded(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(hub_id: str, file: str | None, *, weights: bool) -> object:
        asked.append((hub_id, file, weights))
        return resolve_model("nano")

    monkeypatch.setattr(resolve, "download", download)
    assert shell("generate", "Hello", "-m", "owner/name", "--max-tokens", "2", "--num-blocks", "64") == 0
    assert asked == [("owner/name", None, True)]
    assert shell.err == "owner/name: from the Hugging Face hub, or its cache on this disk\n"


@pytest.mark.parametrize("name", ["nano", ".", "/", "owner/../name", "name", "~/x", "owner/name/more/parts"])
def test_other_names_are_left_as_they_are(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert engine_options.fetched(name) == name
    assert capsys.readouterr().err == ""
