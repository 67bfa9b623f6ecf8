"""After warming up nothing is compiled any more: no request waits for numba, whatever it asks for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("warm_process.py")


@pytest.mark.parametrize("encodes", ["encodes", ""])
def test_no_kernel_is_compiled_after_warming_up(encodes: str) -> None:
    done = subprocess.run([sys.executable, PROGRAM, encodes], capture_output=True, text=True, timeout=300, check=False)
    assert (done.stdout.splitlines(), done.stderr) == (["never compiled: []", "compiled late: []"], "")
