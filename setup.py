"""Builds `phloem._core`: the inner loops, in C++ (`native/`, and the folder `core` of each room), bound by nanobind.

Each source is compiled to an object under `build/core`, several at once, and only if it or a header of the project that
it includes is newer than that object. In place, and in an editable install, loops over tensors are compiled for the
processor of this machine. What may be carried elsewhere (a wheel, `pip install .`) runs on every processor of its kind.
What the project is stands in `pyproject.toml`.
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
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import nanobind
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
NANOBIND = Path(nanobind.include_dir()).parent
SOURCES = sorted([*ROOT.glob("native/*.cpp"), *ROOT.glob("*/core/*.cpp")])
FLAGS = ["-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-ffp-contract=off", "-DNDEBUG"]
WARNINGS = ["-Wall", "-Wextra", "-Wno-missing-field-initializers"]
# the oldest processors that a core may be carried to, as the compiler calls them; the last is Apple's
OLDEST = {"x86_64": "x86-64", "aarch64": "armv8-a", "arm64": "armv8.4-a"}
LEVELS = ["x86-64", "x86-64-v3", "x86-64-v4"]  # `choose_level.cpp` knows the names
Source = tuple[Path, str, Path]  # the source, its level, the object
PERIOD = 10  # seconds between two lines of progress where no terminal shows them


def processor(in_place: bool) -> str:
    """The processor to compile for, as `-march` takes it; "any": a machine of another kind, as its compiler chooses."""
    return os.environ.get("PHLOEM_PROCESSOR") or ("native" if in_place else OLDEST.get(platform.machine(), "any"))


def compiler() -> list[str] | None:
    """The C++ compiler, as a command: what CXX says, the system's, or that of the ziglang wheel; None: none."""
    if os.environ.get("CXX"):
        return shlex.split(os.environ["CXX"])
    for name in ("c++", "g++", "clang++"):
        if shutil.which(name):
            return [name]
    ziglang = importlib.util.find_spec("ziglang")  # run by its path: where setuptools fetched it, only we find it
    return [sys.executable, *(ziglang.submodule_search_locations or [])[:1], "c++"] if ziglang else None


def written_after(made: Path) -> bool:
    """Whether an object is newer than all files of the project that the compiler read for it (its `.d` file).

    Others may be gone, such as nanobind in the environment of an isolated build: the key stands for their contents.
    """
    dependencies = made.with_suffix(".d")
    if not made.exists() or not dependencies.exists():
        return False
    read = re.split(r"\s+", dependencies.read_text().replace("\\\n", " ").split(":", 1)[1].strip())
    own = [path for path in map(Path, read) if path.is_relative_to(ROOT)]
    return all(path.exists() and path.stat().st_mtime <= made.stat().st_mtime for path in own)


def write_hash(header: Path) -> None:
    """The hash of what computes keys and values, for `_core.kernels_hash`; written only if it is another one."""
    found = hashlib.sha256()
    for path in sorted([*ROOT.glob("kernels/core/*.cpp"), *ROOT.glob("kernels/core/*.h")]):
        found.update(path.read_bytes())
    line = f'#define PHLOEM_KERNELS_HASH "{found.hexdigest()}"\n'
    if not header.exists() or header.read_text() != line:
        header.write_text(line)


@dataclass(frozen=True)
class Compilation:
    """Compiles sources by one compiler (a command) for one processor (`-march`)."""

    command: list[str]
    processor: str

    @property
    def is_zig(self) -> bool:
        return any(Path(word).name in ("zig", "ziglang") for word in self.command)

    @property
    def levels(self) -> list[str]:
        """What loops over tensors are compiled for: where they may run on any x86-64, three times."""
        return LEVELS if self.processor == "x86-64" else [self.processor]

    def levels_of(self, source: Path) -> list[str]:
        """What a source is compiled for, one after the other: only loops over tensors depend on the processor."""
        return self.levels if '#include "level.h"' in source.read_text(encoding="utf-8") else [""]

    def march(self, level: str) -> list[str]:
        """The flag for a level, or for all other sources: what is carried elsewhere takes no compiler's default."""
        if not self.is_zig:
            level = level or self.processor.replace("native", "any")
            return [] if level == "any" else [f"-march={level}"]
        # zig compiles for this machine unless another processor is named, and has other names
        level = level or self.processor
        return [f"-march={level.replace('-', '_') if level.startswith(('x86', 'native')) else 'baseline'}"]

    def flags(self, source: Path, level: str) -> list[str]:
        """The flags for a source; loops over tensors are in a namespace with the level's name."""
        flags = [*FLAGS, *self.march(level)]
        if source.is_relative_to(NANOBIND):
            return flags
        several = ["-DPHLOEM_HAS_X86_LEVELS"] if len(self.levels) > 1 else []
        if not level:
            return [*flags, *WARNINGS, *several]
        # vectors are wider than the registers of the lowest level; gcc 12 warns of its own AVX-512 header
        quiet = ["-Wno-psabi", "-Wno-maybe-uninitialized", "-Wno-unknown-warning-option"]
        name = level.replace("-", "_") if several else "native"
        return [*flags, *WARNINGS, *quiet, "-O3", f"-DPHLOEM_LEVEL={name}"]

    def folder(self) -> Path:
        """Where the objects are, by all that they depend on besides the project's sources."""
        version = subprocess.run([*self.command, "--version"], capture_output=True, text=True, check=False).stdout
        # not by the name of the Python that runs it, of which .venv/bin has three, nor by where it is
        command = ["zig"] if self.is_zig else self.command
        machine = [platform.node(), platform.machine()] if self.processor == "native" else []
        parts = [command, version, FLAGS, self.processor, machine, nanobind.__version__, str(ROOT)]
        key = hashlib.sha256(json.dumps([*parts, Path(__file__).read_text()]).encode()).hexdigest()[:16]
        return ROOT / "build" / "core" / f"{sysconfig.get_config_var('SOABI')}-{key}"

    def compile(self, source: Path, level: str, made: Path) -> None:
        """Compiles a source to an object."""
        others = [sysconfig.get_path("include"), nanobind.include_dir(), NANOBIND / "ext/robin_map/include"]
        includes = [
            f"-I{ROOT / 'native'}",
            f"-I{made.parent}",
            *(word for path in others for word in ("-isystem", path)),
        ]
        flags = [*self.flags(source, level), *includes, "-MMD", "-MF", made.with_suffix(".d")]
        new = made.with_suffix(f".{os.getpid()}.o")  # so that no half of an object is ever taken for one
        subprocess.run([*self.command, *map(str, flags), "-c", str(source), "-o", str(new)], check=True)
        new.replace(made)

    def objects(self) -> list[Path]:
        """All objects, after those that are not there, or are out of date, have been compiled."""
        folder = self.folder()
        folder.mkdir(parents=True, exist_ok=True)
        write_hash(folder / "kernels_hash.h")
        sources = [(NANOBIND / "src/nb_combined.cpp", "")]
        sources += [(source, level) for source in SOURCES for level in self.levels_of(source)]
        made = [folder / f"{s.parent.parent.name}-{s.stem}{level and '-'}{level}.o" for s, level in sources]
        old = [(*source, path) for source, path in zip(sources, made, strict=True) if not written_after(path)]
        run_all(lambda source: self.compile(*source), old)
        return made


class Progress:
    """Tells how many files are compiled: on a terminal in one line, elsewhere at the start, the end, and in between
    every ten seconds."""

    def __init__(self, total: int, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self.total, self.out, self.clock = total, out, clock
        self.begin = self.next = clock()

    def show(self, done: int) -> None:
        now = self.clock()
        line = f"phloem: {done} of {self.total} files of the C++ core compiled, {now - self.begin:.0f} s"
        if self.out.isatty():
            print(f"\r{line}", end="\n" if done == self.total else "", file=self.out, flush=True)
        elif now >= self.next or done == self.total:
            print(line, file=self.out, flush=True)
            self.next = now + PERIOD


def run_all(work: Callable[[Source], None], sources: Sequence[Source]) -> None:
    """Compiles sources, several at once, and prints its progress; ends at the first that does not compile."""
    if not sources:
        return
    progress = Progress(len(sources), sys.stdout)
    progress.show(0)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        waiting = {pool.submit(work, source) for source in sources}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=1, return_when=FIRST_COMPLETED)
                for each in done:
                    each.result()
                progress.show(len(sources) - len(waiting))
        except subprocess.CalledProcessError as error:
            sys.exit(f"\nphloem: the C++ core does not compile: {shlex.join(error.cmd)}")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class BuildCore(build_ext):
    def run(self) -> None:
        self.is_in_place = bool(self.inplace)  # setuptools hides it from what follows
        super().run()

    def build_extension(self, extension: Extension) -> None:
        command = compiler()
        if command is None:
            sys.exit("phloem: no C++ compiler here; install g++ or clang++, or give one in CXX, or pip install ziglang")
        objects = Compilation(command, processor(self.is_in_place)).objects()
        target = Path(self.get_ext_fullpath(extension.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        link = [*command, "-shared", *map(str, objects), "-o", str(target), "-lpthread"]
        subprocess.run(link if os.uname().sysname != "Darwin" else [*link, "-undefined", "dynamic_lookup"], check=True)


class BuildPython(build_py):
    def run(self) -> None:
        folder = Path(self.build_lib).resolve()
        if not self.editable_mode and folder.is_relative_to(ROOT / "build"):
            shutil.rmtree(folder, ignore_errors=True)  # modules of an earlier build may be gone from the project
        super().run()

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """All but this file: the package's folder is the project's."""
        return [found for found in super().find_package_modules(package, package_dir) if found[1] != "setup"]


setup(
    ext_modules=[Extension("phloem._core", [])],
    cmdclass={"build_ext": BuildCore, "build_py": BuildPython},
    setup_requires=[] if compiler() else ["ziglang"],  # which pip then brings to where it builds
)
