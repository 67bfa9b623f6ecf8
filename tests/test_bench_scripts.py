"""The scripts that measure a GPU run as far as a machine without one lets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench" / "studies"
# scripts in one process, as torch takes long to load: what each exits with, and what it says on stderr
ENDS = """
import contextlib, io, json, runpy, sys
for script, *options in json.loads(sys.argv[1]):
    sys.argv[:], sys.path[0] = [script, *options], script.rpartition("/")[0]
    code, said = None, io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, said.getvalue()]))
"""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, timeout=900)


@pytest.mark.parametrize("script", ["decode_step.py", "decode_experts.py"])
def test_decode_steps_run_in_small_on_a_cpu(script: str) -> None:
    done = run(str(BENCH / script), "--tiny")
    assert done.returncode == 0, done.stderr
    assert "a step" in done.stdout


def test_without_a_gpu_they_say_so() -> None:
    scripts = ("decode_step.py",), ("decode_experts.py",), ("attention.py", "--fit", "--device", "cuda")
    done = run("-c", ENDS, json.dumps([(str(BENCH / script), *options) for script, *options in scripts]))
    assert (done.returncode, done.stderr) == (0, ""), "no traceback"
    ends = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ends) == len(scripts)
    for code, said in ends:  # `sys.exit(a sentence)` is written to stderr at the end, and the status is 1
        assert not said and isinstance(code, str)
        assert "no CUDA device" in code and "\n" not in code
