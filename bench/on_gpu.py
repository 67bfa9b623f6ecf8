"""Everything that only a GPU can measure, in one call: the tests that need one and every benchmark of the kernels.

    python bench/on_gpu.py                          all parts, tables into bench/results
    python bench/on_gpu.py --only tests decode_step some of them (--help names all)
    python bench/on_gpu.py --total 570              what fits into 570 seconds, the most informative parts first
    python bench/on_gpu.py --dry-run                without a GPU: every part as far as a CPU takes it, nothing is kept

A part that fails or outlasts its limit leaves what it had printed by then, and the next one starts; of --total every
part leaves the later ones what they need at least. Each table begins with the command, the machine, the versions, the
commit and the date, and ends with how it went. Nothing need be installed but the packages that
the parts import, and the core be built there (`python setup.py build_ext --inplace`): the tree is found as `phloem`
wherever it is. A first run compiles a few hundred kernels, so the tests are spread over processes if pytest-xdist is
there.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ("-P", "-m", "pytest", "-v", "--tb=short", "--timeout=400", "-p", "no:cacheprovider", "-W", "default")
HAS_XDIST = importlib.util.find_spec("xdist") is not None
SPREAD = ("-n", str(max(1, min(14, (os.cpu_count() or 1) - 2)))) if HAS_XDIST else ()
GPU_TESTS = (
    *("tests/kernels", "tests/runtime/test_on_gpu.py", "tests/runtime/models/test_published_models.py"),
    *("-m", "gpu"),
)
SHOWN_LINES = 40


@dataclass(frozen=True)
class Part:
    """One command: arguments for Python, here and in a dry run without a GPU."""

    table: str  # file name
    least: float  # seconds
    command: tuple[str, ...]
    dry: tuple[str, ...]


PARTS = {
    "attention": Part(
        "attention_gpu.txt",
        100,
        ("bench/studies/attention.py",),
        ("bench/studies/attention.py", "--device", "cpu", "--quick"),
    ),
    "decode_step": Part(
        "decode_step.txt", 150, ("bench/studies/decode_step.py",), ("bench/studies/decode_step.py", "--tiny")
    ),
    "decode_few_bits": Part(
        "decode_few_bits.txt",
        90,
        ("bench/studies/decode_step.py", "--weights", "bf16", "int4", "fp8"),
        ("bench/studies/decode_step.py", "--tiny"),
    ),
    "tests": Part("gpu_tests.txt", 200, (*PYTEST, *SPREAD, *GPU_TESTS), (*PYTEST, *GPU_TESTS, "--collect-only", "-q")),
    "run_ahead": Part(
        "run_ahead_gpu.txt",
        60,
        ("bench/studies/run_ahead.py",),
        ("bench/studies/run_ahead.py", "--simulated", "--steps", "5"),
    ),
    "decode_experts": Part(
        "decode_experts.txt", 60, ("bench/studies/decode_experts.py",), ("bench/studies/decode_experts.py", "--tiny")
    ),
    "fit": Part(
        "attention_fit.txt",
        80,
        ("bench/studies/attention.py", "--fit"),
        ("bench/studies/attention.py", "--fit", "--help"),
    ),
    "sampling": Part(
        "sampling_gpu.txt",
        120,
        ("bench/studies/sampling.py",),
        ("bench/studies/sampling.py", "--device", "cpu", "--quick"),
    ),
    "device_constraints": Part(
        "device_constraints_gpu.txt",
        100,
        ("bench/studies/device_constraints.py", "131072"),
        ("bench/studies/device_constraints.py",),
    ),
    "configs": Part(
        "attention_configs.txt",
        80,
        ("bench/studies/attention.py", "--configs"),
        ("bench/studies/attention.py", "--configs", "--help"),
    ),
    "all_kernel_tests": Part(
        "gpu_kernel_tests.txt",
        100,
        (*PYTEST, *SPREAD, "tests/kernels", "--deselect", "tests/kernels/triton/test_compile.py"),
        (*PYTEST, "tests/kernels", "--collect-only", "-q"),
    ),
}


def head(command: list[str], commit: str) -> str:
    """The line above a table."""
    place = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    try:
        import triton

        compiler = f"triton {triton.__version__}"
    except ImportError:
        compiler = "no triton"
    words = " ".join(command[1:])
    today = datetime.datetime.now(datetime.UTC).date()
    return f"python {words}; {place}; torch {torch.__version__}; {compiler}; commit {commit}; {today}\n"


def run(command: list[str], path: Path, limit: float, environment: dict[str, str], first_line: str) -> str:
    """Runs a command with its output in `path` and returns how it went. What it started ends with it."""
    start = time.monotonic()
    with path.open("w") as table:
        table.write(first_line)
        table.flush()
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=table, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = process.wait(limit)
            verdict = "complete" if status == 0 else f"failed with status {status}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            verdict = f"cut off after its {limit:.0f} s"
        verdict += f", {time.monotonic() - start:.0f} s"
        table.write(f"{verdict}\n")
    return verdict


def current_commit() -> str:
    """The tree's commit, with a plus sign if files differ from it."""
    try:
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"], cwd=ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit.stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="these parts, in this order"
    )
    parser.add_argument("--limit", type=float, default=540, help="seconds that a part may take")
    parser.add_argument("--total", type=float, default=float("inf"), help="seconds that all of them may take")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results", help="folder of the tables")
    parser.add_argument("--commit", default=current_commit(), help="to write into the tables, where git is not at hand")
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, without keeping anything")
    arguments = parser.parse_args()
    if not arguments.dry_run and not torch.cuda.is_available():
        sys.exit("bench/on_gpu.py found no CUDA device; --dry-run tries every part on a CPU")
    end = time.monotonic() + arguments.total
    all_fine = True
    with tempfile.TemporaryDirectory() as folder:
        parent = ROOT.parent
        if ROOT.name != "phloem":
            parent = Path(folder)
            (parent / "phloem").symlink_to(ROOT, target_is_directory=True)
        paths = [str(parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
        out = Path(folder) / "tables" if arguments.dry_run else arguments.out
        out.mkdir(parents=True, exist_ok=True)
        for index, name in enumerate(arguments.only):
            part = PARTS[name]
            kept_free = sum(PARTS[later].least for later in arguments.only[index + 1 :])
            left = end - time.monotonic()
            limit = min(arguments.limit, left, max(left - kept_free, part.least))
            if limit < 10:
                print(f"{name}: no time left")
                continue
            command = [sys.executable, *(part.dry if arguments.dry_run else part.command)]
            table = out / part.table
            verdict = run(command, table, limit, environment, head(command, arguments.commit))
            lines = table.read_text().splitlines()
            shown = lines[:1] + lines[1:-1][-12 if arguments.dry_run else -SHOWN_LINES :]
            print("\n".join([f"== {name}: {verdict}", *shown]), flush=True)
            all_fine &= verdict.startswith("complete")
    return 0 if all_fine else 1


if __name__ == "__main__":
    sys.exit(main())
