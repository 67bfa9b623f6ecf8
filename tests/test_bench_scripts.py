"""The scripts that measure a GPU run as far as a machine without one lets them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, BENCH / script, *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)


@pytest.mark.parametrize("script", ["studies/decode_step.py", "studies/decode_experts.py"])
def test_decode_steps_run_in_small_on_a_cpu(script: str) -> None:
    done = run(script, "--tiny")
    assert done.returncode == 0, done.stderr
    assert "a step" in done.stdout


def test_without_a_gpu_they_say_so() -> None:
    for script, options in (
        ("studies/decode_step.py", ()),
        ("studies/decode_experts.py", ()),
        ("studies/attention.py", ("--fit", "--device", "cuda")),
    ):
        done = run(script, *options)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1, "a sentence, no traceback"
        assert "no CUDA device" in done.stderr
