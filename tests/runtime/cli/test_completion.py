"""Shell completion, by the protocol of the scripts that `phloem --install-completion` installs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from phloem.runtime.cli import COMMANDS, run
from phloem.runtime.cli.options import complete_model

Completed = Callable[[str, str], list[str]]
SHELLS = ("bash", "zsh", "fish")


@pytest.fixture
def completed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Completed:
    """What a shell gets for a line whose last word is to be completed."""

    def ask(shell: str, line: str) -> list[str]:
        monkeypatch.setenv("_PHLOEM_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
        with pytest.raises(SystemExit) as ended:
            run([])
        assert ended.value.code == 0
        shown = capsys.readouterr().out
        if shell == "zsh":  # _arguments '*: :(("chat":"Talks to a model …" "check"))'
            return [part.split('"')[0] for part in shown.replace('("', '\n"').split('\n"')[1:]]
        return [part.split("\t")[0] for part in shown.splitlines()]

    return ask


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_options_and_choices_are_completed(completed: Completed, shell: str) -> None:
    assert completed(shell, "phloem ") == list(COMMANDS)
    assert completed(shell, "phloem serve --max-waiting") == ["--max-waiting-requests"]
    assert completed(shell, "phloem serve --log-level ") == ["debug", "info", "warning", "error"]
    assert completed(shell, "phloem chat nan") == ["nano"]


def test_models_are_nano_folders_and_gguf_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("models/llama", ".hidden", "narrow", "with space"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "models" / "a.gguf").write_text("")
    (tmp_path / "models" / "b.txt").write_text("")
    assert complete_model("") == ["nano", "models/", "narrow/"]
    assert complete_model("na") == ["nano", "narrow/"]
    assert complete_model("models/") == ["models/a.gguf", "models/llama/"]
    assert complete_model(f"{tmp_path}/models/l") == [f"{tmp_path}/models/llama/"]
    assert complete_model("nowhere/x") == [] and complete_model(".h") == [".hidden/"]
