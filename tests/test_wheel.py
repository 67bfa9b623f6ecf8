"""The built wheel, away from the checkout: every module inside, the bundled model with it, and it answers."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("radix", "fsm", "kernels", "runtime")

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
    """Built from a copy of the tracked tree, so that no build folder is left in the checkout."""
    source = tmp_path_factory.mktemp("source")
    for name in (
        *PACKAGES,
        "__init__.py",
        "__main__.py",
        "errors.py",
        "code_cache.py",
        "written_out.py",
        "py.typed",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    ):
        subprocess.run(["cp", "-r", str(ROOT / name), str(source / name)], check=True)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(source)]
    subprocess.run(command, check=True, timeout=900)
    return next(out.glob("phloem-*.whl"))


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = [p.relative_to(ROOT) for package in PACKAGES for p in (ROOT / package).rglob("*.py")]
    assert {f"phloem/{module}" for module in modules} <= names
    assert {
        "phloem/__main__.py",
        "phloem/py.typed",
        "phloem/errors.py",
        "phloem/code_cache.py",
        "phloem/written_out.py",
        "phloem/fsm/regex/unicode_properties.txt",
    } <= names
    assert "phloem/runtime/assets/nano/model.safetensors" in names
    assert all(name.startswith(("phloem/", "phloem-")) for name in names)
    assert not any(name.startswith(("phloem/tests", "phloem/bench", "phloem/examples")) for name in names)


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
