"""The kernels compile for real GPUs without one: no spills, shared memory that fits, two buffers in flight."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = ROOT / "scripts"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the scripts keep what they compile: some kernels are in both subsets."""
    return tmp_path_factory.mktemp("compiled")


def lines_of(compiled: Path, script: str, *options: str) -> list[str]:
    """What the script prints of its subset, but for the last line, which says that nothing is wrong."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(compiled)
    command = [sys.executable, SCRIPTS / script, "--subset", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert last == "0 faults"
    return lines


def test_a_representative_subset_compiles_for_ampere_hopper_and_blackwell(compiled: Path) -> None:
    lines = lines_of(compiled, "check_kernels.py", "--jobs", "1")
    assert {line.split()[1] for line in lines} == {"sm_80", "sm_90", "sm_100"}
    assert sum(" buffers" in line for line in lines) == 21


def test_walking_kernels_do_what_merged_ones_do_and_fold(compiled: Path) -> None:
    assert {line.split()[1] for line in lines_of(compiled, "check_folds.py")} == {"sm_90"}


def test_the_oldest_triton_can_read_the_kernels() -> None:
    """3.6 does not know targets within targets, `(a, b), c = …`; newer ones, as here, do."""
    paths = list((ROOT / "kernels" / "triton").glob("*.py"))
    assert len(paths) > 5
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                parts = target.elts if isinstance(target, ast.Tuple) else ()
                assert not any(isinstance(part, ast.Tuple) for part in parts), f"{path.name}:{node.lineno}"
