"""Sets up `.venv` for this checkout: the body of `make demo`, `make test` and `make docs` before they run anything.

    python3 scripts/set_up.py [test | docs]        TORCH="torch==2.13.0" python3 scripts/set_up.py

Steps: the virtual environment; torch; the C++ core; phloem as an editable install. With `test` or `docs`, what tests or
the documentation site need as well.

torch is the large part, and the only one that depends on the machine: the CPU wheel (about 0.2 GB) where there is no
NVIDIA GPU, the CUDA one (about 3 GB with NVIDIA's libraries) where there is. `TORCH` overrides that: arguments for
`pip install`. What is installed already stays.

Needs Python 3.11 or newer and nothing else. Works with whatever index pip is configured for, and without a network if
that has all wheels.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = ROOT / ".venv" / "bin"
TORCH_VERSION = "2.13.0"  # the one that phloem is tested with
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
ANSWER_SECONDS = 5
EXTRAS = {"test": "tests need", "docs": "the documentation site needs"}
PERIOD = 10  # seconds between two signs of life where no terminal shows the time
COMPILERS = ("c++", "g++", "clang++")  # as setup.py looks for them


@dataclass(frozen=True)
class Torch:
    """What to install, as arguments of pip, and why, in a few words."""

    arguments: list[str]
    reason: str


def has_nvidia_gpu() -> bool:
    """Whether the kernel's driver or its tool sees a GPU."""
    gpus = Path("/proc/driver/nvidia/gpus")
    if gpus.is_dir() and any(gpus.iterdir()):
        return True
    tool = shutil.which("nvidia-smi")
    return tool is not None and b"GPU" in subprocess.run([tool, "-L"], capture_output=True, check=False).stdout


def versions(*arguments: str) -> list[str]:
    """The versions of torch that pip finds for this Python, newest first; none where no index answers in time."""
    command = [BIN / "python", "-m", "pip", "index", "versions", "torch", *arguments]
    command += ["--disable-pip-version-check", "--retries", "0", "--timeout", str(ANSWER_SECONDS)]
    found = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    listed = re.search(r"^Available versions: (.*)$", found, re.MULTILINE)
    return listed[1].split(", ") if listed else []


def cpu_version(listed: list[str]) -> str | None:
    """The CPU build among them: of the tested version, or else the newest."""
    builds = [version for version in listed if version.endswith("+cpu")]
    tested = f"{TORCH_VERSION}+cpu"
    return tested if tested in builds else next(iter(builds), None)


def choose_torch() -> Torch:
    """The wheel for this machine."""
    given = os.environ.get("TORCH")
    if given:
        return Torch(shlex.split(given), "as TORCH says")
    if platform.system() != "Linux":
        return Torch([f"torch=={TORCH_VERSION}"], "the only wheel for this system, about 0.1 GB")
    if has_nvidia_gpu():
        # "===" is the version without a suffix, where a folder of wheels has builds for a CPU as well
        return Torch([f"torch==={TORCH_VERSION}"], "an NVIDIA GPU is here: about 3 GB with NVIDIA's libraries")
    reason = "no NVIDIA GPU is here: the CPU wheel, about 0.2 GB"
    found = cpu_version(versions())
    if found is not None:
        return Torch([f"torch=={found}"], reason)
    found = cpu_version(versions("--extra-index-url", CPU_INDEX))
    if found is not None:
        return Torch(["--extra-index-url", CPU_INDEX, f"torch=={found}"], reason)
    reason = f"no NVIDIA GPU is here, but {CPU_INDEX} does not answer: what pip's index has, which may take 3 GB"
    return Torch([f"torch=={TORCH_VERSION}"], reason)


def installed(name: str) -> str | None:
    """The version of a package in `.venv`; None: it is not there."""
    code = f"from importlib.metadata import version; print(version({name!r}))"
    done = subprocess.run([BIN / "python", "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def step(text: str, *command: str | Path) -> None:
    """Runs a command, and says what it does and how long it takes; what it prints is shown if it fails.

    The time is shown on a terminal each second, elsewhere in a line of its own every ten.
    """
    shows = sys.stdout.isatty()
    print(f"set-up: {text} …", end="" if shows else "\n", flush=True)
    begin = time.monotonic()
    printed = begin
    with tempfile.TemporaryFile() as output:
        running = subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)
        try:
            while True:
                try:
                    code = running.wait(timeout=1)
                    break
                except subprocess.TimeoutExpired:
                    now = time.monotonic()
                    if shows:
                        print(f"\rset-up: {text} … {now - begin:.0f} s", end="", flush=True)
                    elif now - printed >= PERIOD:
                        print(f"set-up: … {now - begin:.0f} s", flush=True)
                        printed = now
        finally:
            running.kill()
        if shows:
            print()
        if code:
            output.seek(0)
            sys.stdout.write(output.read().decode(errors="replace"))
            sys.exit(f"set-up: failed: {shlex.join(map(str, command))}")


def pip(text: str, *arguments: str) -> None:
    step(text, BIN / "python", "-m", "pip", "install", "--disable-pip-version-check", *arguments)


def main() -> None:
    extra = sys.argv[1] if sys.argv[1:] else None
    if extra not in (None, *EXTRAS):
        sys.exit(f"set-up: {extra} is not one of: {', '.join(EXTRAS)}")
    if not (BIN / "python").exists():
        step("virtual environment .venv", sys.executable, "-m", "venv", str(ROOT / ".venv"))
    has_torch = installed("torch")
    if has_torch is None or os.environ.get("TORCH"):
        torch = choose_torch()
        shown = f"{' '.join(torch.arguments)} ({torch.reason}; TORCH=… chooses another)"
        pip(shown, *torch.arguments)
    else:
        print(f"set-up: torch {has_torch} is there (TORCH=… chooses another)")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = list(project["build-system"]["requires"])
    compiler = os.environ.get("CXX") or next(filter(shutil.which, COMPILERS), None)
    if compiler is None:
        needed.append("ziglang")
    pip(f"what builds the C++ core: {', '.join(needed)}, {compiler or 'no compiler here, so that of ziglang'}", *needed)
    # by itself, for pip does not show how far it is
    if subprocess.run([BIN / "python", "setup.py", "-q", "build_ext", "--inplace"], cwd=ROOT, check=False).returncode:
        sys.exit("set-up: failed: the C++ core does not compile")
    # not isolated: it finds what was compiled
    what = "phloem with what it needs" + (f", and what {EXTRAS[extra]}" if extra else "")
    pip(what, "--no-build-isolation", "--editable", f".[{extra}]" if extra else ".")


if __name__ == "__main__":
    main()
