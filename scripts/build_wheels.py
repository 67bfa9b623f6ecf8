"""Builds the source distribution and this platform's wheels, and tries each wheel in an environment of its own.

    python scripts/build_wheels.py                          for python3.11, 3.12 and 3.13, as far as they are here
    python scripts/build_wheels.py --python /path/to/python3.12 --site /path/to/site-packages

Every wheel is built from the source distribution, unpacked elsewhere, so that nothing can be missing there. It is tried
far from the checkout: imports, the constraint engine's first mask, and, if torch is there, an answer of the bundled
model. Its dependencies are installed, all but torch (a matter of gigabytes; give TORCH to install it too, as arguments
of pip), or taken from the folder that `--site` names, where there is no network.

Wheels get the tag of this machine. Those for PyPI, manylinux and others, are built by `.github/workflows/wheels.yml`.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ("3.11", "3.12", "3.13")


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """What a command prints; if it fails, that is shown and the end."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode:
        sys.exit(f"{done.stdout}\nfailed: {shlex.join(map(str, command))}")
    return done.stdout


def pip(python: Path, *arguments: str | Path) -> None:
    run(python, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments)


def interpreters(given: list[str]) -> list[Path]:
    """Those that were named, else those that are found under their usual names and start."""
    found = []
    for name in given or [f"python{version}" for version in VERSIONS]:
        path = shutil.which(name)
        starts = path is not None and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0
        if starts and path is not None:
            found.append(Path(path))
        elif given:
            sys.exit(f"--python {name}: there is no such Python")
        else:
            print(f"{name} is not here, and left out")
    return found


def environment(python: Path, folder: Path) -> Path:
    """A new virtual environment's Python."""
    run(python, "-m", "venv", folder)
    return folder / "bin" / "python"


def build_sdist(out: Path) -> Path:
    """The source distribution, by the environment that runs this."""
    code = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
    name = run(sys.executable, "-c", code, out, cwd=ROOT).splitlines()[-1]
    return out / name


def build_wheel(python: Path, source: Path, out: Path) -> Path:
    """The wheel of a Python from an unpacked source distribution."""
    before = set(out.glob("*.whl"))
    pip(python, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", out, source)
    (wheel,) = set(out.glob("*.whl")) - before
    return wheel


def try_wheel(python: Path, wheel: Path, folder: Path, site: Path | None) -> str:
    """What the trial says of a wheel in an environment of its own."""
    inside = environment(python, folder)
    pip(inside, "install", "--no-deps", wheel)
    if site is not None:
        return run(inside, ROOT / "scripts" / "try_wheel.py", cwd=folder, PYTHONPATH=str(site.resolve()))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    if os.environ.get("TORCH"):
        pip(inside, "install", *shlex.split(os.environ["TORCH"]))
    pip(inside, "install", *[needed for needed in project["dependencies"] if not needed.startswith("torch")])
    return run(inside, ROOT / "scripts" / "try_wheel.py", cwd=folder, PYTHONPATH="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", default=[], help="an interpreter to build for (repeatable)")
    parser.add_argument(
        "--site", type=Path, help="folder of installed packages to try wheels with, in place of a network"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="folder for what is built (default: dist)")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for old in (*out.glob("phloem-*.whl"), *out.glob("phloem-*.tar.gz")):
        old.unlink()
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    sdist = build_sdist(out)
    print(f"{sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        source = folder / sdist.name.removesuffix(".tar.gz")
        for number, python in enumerate(interpreters(options.python)):
            builder = environment(python, folder / f"build-{number}")
            pip(builder, "install", *needed)
            wheel = build_wheel(builder, source, out)
            print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
            print(try_wheel(python, wheel, folder / f"trial-{number}", options.site), end="", flush=True)


if __name__ == "__main__":
    main()
