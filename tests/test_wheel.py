"""The built wheel, away from the checkout: every module inside, the bundled model with it, and it answers."""

from __future__ import annotations

import email
import hashlib
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import phloem

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("radix", "fsm", "kernels", "runtime", "cluster")
OTHERS = (
    "__init__.py",
    "__main__.py",
    "errors.py",
    "written_out.py",
    "py.typed",
    "fsm/regex/unicode_properties.txt",
    "fsm/regex/LICENSE-UNICODE",
    f"_core{sysconfig.get_config_var('EXT_SUFFIX')}",
)
# of https://www.unicode.org/license.txt, 1991-2026
UNICODE_LICENCE = "e7a93b009565cfce55919a381437ac4db883e9da2126fa28b91d12732bc53d96"

ANSWER = """
import phloem, sys
from pathlib import Path
assert Path(phloem.__file__).is_relative_to(sys.argv[1]), phloem.__file__
with phloem.Engine(device="cpu", num_blocks=64) as engine:
    spec = phloem.json_schema({
        "type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False
    })
    print(engine.generate("Hello", phloem.SamplingParams(max_tokens=20), spec).parsed)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, as it is unpacked elsewhere, with all of the core."""
    folder = tmp_path_factory.mktemp("wheel")
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, str(folder)], cwd=ROOT, check=True, capture_output=True, timeout=300)
    [packed] = folder.glob("phloem-*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    source = folder / packed.name.removesuffix(".tar.gz")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(source)], check=True, timeout=900)
    [built] = folder.glob("phloem-*.whl")
    return built


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    stubs = list((ROOT / "_core").glob("*.pyi"))
    model = [path for path in (ROOT / "runtime" / "assets" / "nano").iterdir() if path.is_file()]
    found = {f"phloem/{path.relative_to(ROOT)}" for path in (*modules, *stubs, *model)}
    found |= {f"phloem/{name}" for name in OTHERS}
    assert sorted(name for name in names if ".dist-info/" not in name) == sorted(found)


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    files = zipfile.ZipFile(wheel)
    [name] = [name for name in files.namelist() if name.endswith(".dist-info/METADATA")]
    told = email.message_from_string(files.read(name).decode())
    assert (told["Name"], told["Version"]) == ("phloem", phloem.__version__)
    assert told["License-Expression"] == "Apache-2.0 AND Unicode-3.0"
    assert told.get_all("License-File") == ["LICENSE", "fsm/regex/LICENSE-UNICODE"]
    for field in ("Author", "Keywords", "Classifier", "Project-URL", "Requires-Python", "Summary"):
        assert told[field], field
    licence = files.read("phloem/fsm/regex/LICENSE-UNICODE")
    assert hashlib.sha256(licence).hexdigest() == UNICODE_LICENCE


def test_the_installed_wheel_answers(wheel: Path, tmp_path: Path) -> None:
    """Installed into a folder of its own, run far from the checkout, with only the dependencies shared."""
    target = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(install, check=True, timeout=900)
    environment = {**os.environ, "PYTHONPATH": str(target), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", ANSWER, str(target)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("{'a': True}", "{'a': False}")
    command = [sys.executable, "-m", "phloem", "generate", "Hello", "--regex", "ab", "--num-blocks", "64"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900)
    assert (done.returncode, done.stdout) == (0, "ab\n"), done.stderr
