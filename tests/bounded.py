"""Runs a file of tests in one child process in which no test can hang or fill the machine's memory.

The file is not collected by its name; a test next to it calls `run_bounded`. It takes `bounds` as an autouse fixture:
a test that needs more memory fails, and one that needs more CPU time ends the child, which has printed its name.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

MAX_GROWTH = 2 << 30  # bytes beyond what the process has before a test
MAX_SECONDS = 120  # of CPU time, for one test
ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def bounds() -> Iterator[None]:
    """Memory and CPU time of one test."""
    before = {kind: resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU)}
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = {
        resource.RLIMIT_AS: _address_space() + MAX_GROWTH,
        resource.RLIMIT_CPU: int(used.ru_utime + used.ru_stime) + MAX_SECONDS,
    }
    for kind, limit in soft.items():
        resource.setrlimit(kind, (limit, before[kind][1]))
    yield
    for kind, limits in before.items():
        resource.setrlimit(kind, limits)


def run_bounded(file: Path) -> None:
    """Fails with the names of the tests that fail in the child; the last one that it names ended it, if one did."""
    command = [sys.executable, "-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider", str(file)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    passed = [line for line in done.stdout.splitlines() if " PASSED " in line]
    shown = "\n".join(line for line in done.stdout.splitlines() if line not in passed)[-4000:]
    assert done.returncode == 0 and passed, f"exit status {done.returncode}\n{shown}\n{done.stderr[-2000:]}"


def _address_space() -> int:
    """Bytes; nothing where the system does not say, as none but Linux bounds them."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[0]) * resource.getpagesize() if statm.exists() else 1 << 46
