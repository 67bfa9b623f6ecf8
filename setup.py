"""Builds `phloem._core`: the inner loops, in C++ (`native/`, and the folder `core` of each room), bound by nanobind.

Each source is compiled to an object under `build/core`, several at once, and only if it or a header that it includes is
newer than that object. What the project is stands in `pyproject.toml`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nanobind
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
NANOBIND = Path(nanobind.include_dir()).parent
SOURCES = sorted([*ROOT.glob("native/*.cpp"), *ROOT.glob("*/core/*.cpp")])
FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-ffp-contract=off", "-DNDEBUG"]
WARNINGS = ["-Wall", "-Wextra", "-Wno-missing-field-initializers"]
PROCESSOR = os.environ.get("PHLOEM_PROCESSOR", "native")  # what a wheel is built for, as the compiler calls it
# loops over tensors are compiled for each of these where they may run on any x86-64; `choose_level.cpp` knows the names
LEVELS = ["x86-64", "x86-64-v3", "x86-64-v4"] if PROCESSOR == "x86-64" else []


def levels_of(source: Path) -> list[str]:
    """What a source is compiled for, one after the other: loops over tensors use all that a processor has."""
    return (LEVELS or [PROCESSOR]) if '#include "level.h"' in source.read_text(encoding="utf-8") else [""]


def flags_of(source: Path, level: str) -> list[str]:
    """Nothing but loops over tensors depends on the processor; their namespace has the level's name."""
    if source.is_relative_to(NANOBIND):
        return FLAGS
    several = ["-DPHLOEM_HAS_X86_LEVELS"] if LEVELS else []
    if not level:
        return [*FLAGS, *WARNINGS, *several]
    # vectors are wider than the registers of the lowest level; gcc 12 warns of its own AVX-512 header
    quiet = ["-Wno-psabi", "-Wno-maybe-uninitialized", "-Wno-unknown-warning-option"]
    name = level.replace("-", "_") if several else "native"
    return [*FLAGS, *WARNINGS, *quiet, "-O3", f"-march={level}", f"-DPHLOEM_LEVEL={name}"]


def compiler() -> list[str] | None:
    """The C++ compiler, as a command: what CXX says, the system's, or that of the ziglang wheel; None: none."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    return [sys.executable, "-m", "ziglang", "c++"] if importlib.util.find_spec("ziglang") else None


def key_of(command: list[str]) -> str:
    """What objects depend on besides sources: the compiler, its flags, nanobind, this machine and this folder."""
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    machine = [platform.node(), platform.machine()] if PROCESSOR == "native" else []
    told = [command, version, FLAGS, PROCESSOR, machine, nanobind.__version__, str(ROOT), Path(__file__).read_text()]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]


def is_current(made: Path) -> bool:
    """Whether an object is newer than all that the compiler read for it (its `.d` file)."""
    dependencies = made.with_suffix(".d")
    if not made.exists() or not dependencies.exists():
        return False
    read = re.split(r"\s+", dependencies.read_text().replace("\\\n", " ").split(":", 1)[1].strip())
    return all(Path(path).exists() and Path(path).stat().st_mtime <= made.stat().st_mtime for path in read)


def write_hash(header: Path) -> None:
    """The hash of what computes keys and values, for `_core.kernels_hash`; written only if it is another one."""
    found = hashlib.sha256()
    for path in sorted([*ROOT.glob("kernels/core/*.cpp"), *ROOT.glob("kernels/core/*.h")]):
        found.update(path.read_bytes())
    line = f'#define PHLOEM_KERNELS_HASH "{found.hexdigest()}"\n'
    if not header.exists() or header.read_text() != line:
        header.write_text(line)


class BuildCore(build_ext):
    def build_extension(self, extension: Extension) -> None:
        command = compiler()
        if command is None:
            sys.exit("phloem: no C++ compiler here; install g++ or clang++, or give one in CXX, or pip install ziglang")
        folder = ROOT / "build" / "core" / f"{sysconfig.get_config_var('SOABI')}-{key_of(command)}"
        folder.mkdir(parents=True, exist_ok=True)
        write_hash(folder / "kernels_hash.h")
        includes = [
            sysconfig.get_path("include"),
            nanobind.include_dir(),
            NANOBIND / "ext/robin_map/include",
            ROOT / "native",
            folder,
        ]

        def compiled(source: Path, level: str) -> Path:
            made = folder / f"{source.parent.parent.name}-{source.stem}{level and '-'}{level}.o"
            if not is_current(made):
                flags = [
                    *flags_of(source, level),
                    *(f"-I{path}" for path in includes),
                    "-MMD",
                    "-MF",
                    made.with_suffix(".d"),
                ]
                new = made.with_suffix(f".{os.getpid()}.o")  # so that no half of an object is ever taken for one
                subprocess.run([*command, *flags, "-c", source, "-o", new], check=True)
                new.replace(made)
            return made

        sources = [(source, level) for source in SOURCES for level in levels_of(source)]
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, *zip((NANOBIND / "src/nb_combined.cpp", ""), *sources, strict=True)))
        target = Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        link = [*command, "-shared", *map(str, objects), "-o", str(target), "-lpthread"]
        subprocess.run(link if os.uname().sysname != "Darwin" else [*link, "-undefined", "dynamic_lookup"], check=True)


setup(
    ext_modules=[Extension("phloem._core", [])],
    cmdclass={"build_ext": BuildCore},
    setup_requires=[] if compiler() else ["ziglang"],  # which pip then brings to where it builds
)
