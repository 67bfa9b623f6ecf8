"""The scripts that measure a GPU run as far as a machine without one lets them."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCH = ROOT / "bench" / "studies"
# scripts in one process, as torch takes long to load: what each exits with, and what it says on stderr
ENDS = """
import contextlib, io, json, runpy, sys
path = sys.path[1:]
for script, *options in json.loads(sys.argv[1]):
    sys.argv[:], sys.path[:] = [script, *options], [script.rpartition("/")[0], *path]
    code, said, shown = None, io.StringIO(), io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(shown):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as ended:
            code = ended.code
        except ModuleNotFoundError as error:  # of a peer
            code = error.name
    print(json.dumps([code, said.getvalue(), shown.getvalue()]))
"""


HELP = [(str(path), "--help") for path in sorted((ROOT / "bench").rglob("*.py")) if "__main__" in path.read_text()]
WITHOUT = [
    (str(BENCH / script), *options)
    for script, *options in (("decode_step.py",), ("decode_experts.py",), ("attention.py", "--fit", "--device", "cuda"))
]
TINY = [(str(BENCH / script), "--tiny") for script in ("decode_step.py", "decode_experts.py")]


@pytest.fixture(scope="module")
def ends() -> dict[tuple[str, ...], list[Any]]:
    """What each of these commands exits with, says on stderr, and says on stdout."""
    commands = [*HELP, *WITHOUT, *TINY]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    program = [sys.executable, "-c", ENDS, json.dumps(commands)]
    done = subprocess.run(program, capture_output=True, text=True, env=environment, timeout=900)
    assert (done.returncode, done.stderr) == (0, ""), "no traceback"
    return dict(zip(commands, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("command", TINY, ids=["decode_step", "decode_experts"])
def test_decode_steps_run_in_small_on_a_cpu(command: tuple[str, ...], ends: dict[tuple[str, ...], list[Any]]) -> None:
    code, said, shown = ends[command]
    assert code in (0, None), said
    assert "a step" in shown


def test_programs_say_the_same_in_every_way(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script stops where they do not."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    programs = importlib.import_module("programs")
    programs.main(["--items", "1", "--rounds", "0", "--skip-transformers"])
    rows = {line[:20].strip(): line[20:].split() for line in capsys.readouterr().out.splitlines()}
    assert [*programs.PROGRAMS, "all"] == [name for name in rows if name in [*programs.PROGRAMS, "all"]]
    for name in programs.PROGRAMS:
        prompts, computed, cached, jumped, computed_off = (int(n.replace(",", "")) for n in rows[name][-5:])
        if name == "JSON decode":  # a single document shares its prompt with no other
            assert cached == 0
        else:
            assert 0 < cached < prompts and computed < computed_off
        assert jumped > 0 or name not in ("JSON decode", "LLM judge")


def test_without_a_gpu_they_say_so(ends: dict[tuple[str, ...], list[Any]]) -> None:
    for command in WITHOUT:  # `sys.exit(a sentence)` is written to stderr at the end, and the status is 1
        code, said, _ = ends[command]
        assert not said and isinstance(code, str)
        assert "no CUDA device" in code and "\n" not in code


def test_every_script_finds_what_it_imports_and_says_how_it_is_run(ends: dict[tuple[str, ...], list[Any]]) -> None:
    """Packages of peers may be missing; modules of the project may not."""
    assert len(HELP) > 40
    own = {path.stem for folder in ("bench", "scripts", "tests") for path in (ROOT / folder).rglob("*.py")}
    for command in HELP:
        code, said, shown = ends[command]
        if isinstance(code, str):
            assert code.partition(".")[0] not in {"phloem", "runtime", *own}, (command, code)
        else:
            assert code in (0, None) and "usage:" in shown, (command, code, said)
