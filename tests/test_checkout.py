"""The editable install: type checkers find it from any folder, and Python in the checkout imports nothing twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_mypy_finds_the_package_from_any_folder(tmp_path: Path) -> None:
    """What an import hook hides, as setuptools makes it where a package's folder has another name."""
    user = tmp_path / "user.py"
    user.write_text("import phloem\nimport phloem.runtime.request\n")
    command = [sys.executable, "-m", "mypy", "--follow-imports=skip", "--cache-dir", str(tmp_path / "cache"), str(user)]
    done = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    "name", ["errors", "json_size", "fsm", "fsm.cursor", "kernels", "radix", "runtime", "runtime.config"]
)
def test_a_part_of_the_package_is_not_imported_under_another_name(name: str) -> None:
    room = name.partition(".")[0]
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=ROOT, check=False, capture_output=True, text=True, timeout=240
    )
    expected = f"ImportError: {room} is a part of the package phloem: import phloem.{room}"
    assert done.stderr.splitlines()[-1] == expected


@pytest.mark.parametrize("name", ["radix", "kernels"])
def test_nor_are_the_others(name: str) -> None:
    code = f"import sys\ntry:\n    import {name}\nexcept ImportError:\n    sys.exit(3)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=240).returncode == 3


def test_pytest_runs_in_a_folder_whose_name_is_no_identifier() -> None:
    """It then imports the package's `__init__.py` under that very name."""
    code = (
        "import importlib.util as util\n"
        "spec = util.spec_from_file_location('__init__', '__init__.py')\n"
        "spec.loader.exec_module(util.module_from_spec(spec))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=240)


def test_what_is_run_in_the_checkout_is_the_package() -> None:
    code = "import phloem.errors as e, phloem as ph; assert e.PhloemError is ph.PhloemError; print(e.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True, timeout=240
    )
    assert (ROOT / "errors.py").samefile(done.stdout.strip())


def test_a_core_that_is_not_compiled_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "phloem" / "_core").mkdir(parents=True)
    (tmp_path / "phloem" / "__init__.py").write_text((ROOT / "__init__.py").read_text(encoding="utf-8"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-c", "import phloem"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "python setup.py build_ext --inplace" in done.stderr
