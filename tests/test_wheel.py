"""The built wheel, away from the checkout: every module inside, the bundled model with it, and it answers.

The core's sources are all there, but what is compiled of them here is nothing: that takes minutes, and
`scripts/build_wheels.py` does it, with the wheel's flags, and tries what comes of it. The core that answers is the
checkout's, put in its place.
"""

from __future__ import annotations

import email
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import phloem
from phloem import _core

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("radix", "fsm", "kernels", "runtime", "cluster", "faces")
OTHERS = (
    "__init__.py",
    "__main__.py",
    "errors.py",
    "json_size.py",
    "py.typed",
    "fsm/regex/unicode_properties.txt",
    "fsm/regex/LICENSE-UNICODE",
    f"_core{sysconfig.get_config_var('EXT_SUFFIX')}",
)
# of https://www.unicode.org/license.txt, 1991-2026
UNICODE_LICENCE = "e7a93b009565cfce55919a381437ac4db883e9da2126fa28b91d12732bc53d96"

ANSWER = """
import phloem, runpy, sys
from pathlib import Path
assert Path(phloem.__file__).is_relative_to(sys.argv[1]), phloem.__file__
with phloem.Engine(device="cpu", num_blocks=64) as engine:
    spec = phloem.json_schema({
        "type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False
    })
    print(engine.generate("Hello", phloem.SamplingParams(max_tokens=20), spec).parsed)
sys.argv[1:] = ["generate", "Hello", "--regex", "ab", "--num-blocks", "64"]
runpy.run_module("phloem", run_name="__main__")
"""


# a compiler that reads nothing: each object is that of an empty file
COMPILER = """#!/bin/sh
made=; depends=
for word in "$@"; do
  case "$before" in -o) made=$word ;; -MF) depends=$word ;; esac
  [ "$word" = -shared ] && exec {compiler} "$@"
  before=$word
done
echo "$made:" > "$depends"
exec {compiler} -fPIC -x c++ -c /dev/null -o "$made"
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    folder = tmp_path_factory.mktemp("sdist")
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True, capture_output=True, timeout=300)
    [packed] = folder.glob("phloem-*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder / packed.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    """Built from the source distribution; its core is empty."""
    compiler = source.parent / "c++"
    compiler.write_text(COMPILER.format(compiler=shutil.which("c++") or shutil.which("clang++")))
    compiler.chmod(0o755)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    environment = {**os.environ, "CXX": str(compiler)}
    subprocess.run([*command, "--wheel-dir", str(source.parent), str(source)], check=True, timeout=900, env=environment)
    [built] = source.parent.glob("phloem-*.whl")
    return built


def test_the_sources_of_the_core_are_all_distributed(source: Path) -> None:
    for pattern in ("native/*.cpp", "native/*.h", "*/core/*.cpp", "*/core/*.h"):
        there = {path.relative_to(source): path.read_bytes() for path in source.glob(pattern)}
        assert there == {path.relative_to(ROOT): path.read_bytes() for path in ROOT.glob(pattern)} != {}, pattern


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    stubs = list((ROOT / "_core").glob("*.pyi"))
    folders = (ROOT / "runtime" / "assets" / "nano", ROOT / "runtime" / "server" / "page" / "assets")
    assets = [path for folder in folders for path in folder.iterdir() if path.is_file()]
    found = {f"phloem/{path.relative_to(ROOT)}" for path in (*modules, *stubs, *assets)}
    found |= {f"phloem/{name}" for name in OTHERS}
    assert sorted(name for name in names if ".dist-info/" not in name) == sorted(found)


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel)
    [name] = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = email.message_from_string(files.read(name).decode())
    assert (metadata["Name"], metadata["Version"]) == ("phloem", phloem.__version__)
    assert metadata["License-Expression"] == "Apache-2.0 AND Unicode-3.0 AND MIT"
    assert metadata.get_all("License-File") == [
        "LICENSE",
        "fsm/regex/LICENSE-UNICODE",
        "runtime/server/page/assets/LICENSES.txt",
    ]
    for field in ("Author", "Keywords", "Classifier", "Project-URL", "Requires-Python", "Summary"):
        assert metadata[field], field
    licence = files.read("phloem/fsm/regex/LICENSE-UNICODE")
    assert hashlib.sha256(licence).hexdigest() == UNICODE_LICENCE


def test_the_installed_wheel_answers(wheel: Path, tmp_path: Path) -> None:
    """Installed into a folder of its own, run far from the checkout, with only the dependencies shared."""
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(install, check=True, timeout=900)
    [core] = (target / "phloem").glob("_core*.so")
    core.write_bytes(Path(_core.__file__).read_bytes())
    environment = {**os.environ, "PYTHONPATH": str(target), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", ANSWER, str(target)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stdout in ("{'a': True}\nab\n", "{'a': False}\nab\n")
