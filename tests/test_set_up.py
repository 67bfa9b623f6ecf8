"""How a checkout is set up: which torch is chosen, and by which compiler the core is built."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
VERSIONS = ["2.15.0", "2.14.1+cpu", "2.13.0+cpu", "2.13.0", "2.12.0+cu126"]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("set_up", ROOT / "scripts" / "set_up.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "set_up", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "BIN", Path(sys.executable).parent)
    monkeypatch.delenv("TORCH", raising=False)
    return module


@pytest.mark.parametrize(
    ("system", "has_gpu", "own", "official", "arguments", "said"),
    [
        ("Linux", True, VERSIONS, [], ["torch===2.13.0"], "an NVIDIA GPU is here: about 3 GB"),
        ("Linux", False, VERSIONS, [], ["torch==2.13.0+cpu"], "the CPU wheel, about 0.2 GB"),
        ("Linux", False, ["2.15.0", "2.14.1+cpu", "2.14.0+cpu"], [], ["torch==2.14.1+cpu"], "the CPU wheel"),
        ("Linux", False, ["2.13.0"], VERSIONS, ["--extra-index-url", "INDEX", "torch==2.13.0+cpu"], "the CPU wheel"),
        ("Linux", False, ["2.13.0"], ["2.13.0"], ["torch==2.13.0"], "does not answer"),
        ("Linux", False, [], [], ["torch==2.13.0"], "may take 3 GB"),
        ("Darwin", False, VERSIONS, VERSIONS, ["torch==2.13.0"], "the only wheel for this system"),
    ],
)
def test_torch_is_chosen_for_the_machine(
    script: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    system: str,
    has_gpu: bool,
    own: list[str],
    official: list[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setattr(script.platform, "system", lambda: system)
    monkeypatch.setattr(script, "has_nvidia_gpu", lambda: has_gpu)
    monkeypatch.setattr(script, "versions", lambda *given: official if given else own)
    found = script.choose_torch()
    assert found.arguments == [script.CPU_INDEX if each == "INDEX" else each for each in arguments]
    assert said in found.reason
    monkeypatch.setenv("TORCH", "--pre 'torch>=3'")
    assert script.choose_torch().arguments == ["--pre", "torch>=3"]


def test_versions_are_those_of_pips_own_folders_and_indexes(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for version in ("2.13.0+cpu", "2.13.0", "2.12.1+cpu"):
        (tmp_path / f"torch-{version}-py3-none-any.whl").touch()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert script.versions() == []
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    assert script.versions() == ["2.13.0+cpu", "2.13.0", "2.12.1+cpu"]
    assert script.cpu_version(script.versions()) == "2.13.0+cpu"


def test_a_step_is_one_line_and_shows_what_failed(script: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    script.step("counting", sys.executable, "-c", "print(7)")
    assert capsys.readouterr().out == "set-up: counting …\n"
    with pytest.raises(SystemExit, match="set-up: failed: "):
        script.step("failing", sys.executable, "-c", "print('the reason'); raise SystemExit(3)")
    assert capsys.readouterr().out == "set-up: failing …\nthe reason\n"


# -- the compiler --------------------------------------------------------------------------------------------------

FAKE = """\
#!{python}
import sys
from pathlib import Path
if "--version" in sys.argv:
    sys.exit(print("{name} 1.0"))
made = Path(sys.argv[sys.argv.index("-o") + 1])
made.write_text("{name}")
if "-c" in sys.argv:
    read = Path(sys.argv[sys.argv.index("-MF") + 1])
    read.write_text(f"{{made}}: {{sys.argv[sys.argv.index('-o') - 1]}}")
with open("log", "a") as log:
    log.write("{name} " + made.suffix + "\\n")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """As much of the project as builds the core, with two sources."""
    folder = tmp_path / "source"
    (folder / "native").mkdir(parents=True)
    (folder / "src").mkdir()
    (folder / "src" / "phloem").symlink_to("..")
    (folder / "native" / "module.cpp").write_text("int one;")
    (folder / "native" / "other.cpp").write_text("int two;")
    shutil.copy(ROOT / "setup.py", folder)
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "phloem"\nversion = "0"\n'
        '[tool.setuptools]\npackages = ["phloem"]\npackage-dir = {"" = "src"}\n'
    )
    (folder / "__init__.py").touch()
    return folder


def _fake(path: Path, name: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FAKE.format(python=sys.executable, name=name))
    path.chmod(0o755)


def _build(source: Path, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """What a build of the core says, and which compilers it called; the system's own are not on the path."""
    (source / "log").unlink(missing_ok=True)
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    kept = {name: value for name, value in os.environ.items() if name not in ("CXX", "PATH", "PYTHONPATH")}
    done = subprocess.run(
        command, cwd=source, env={**kept, "PATH": "", **environment}, capture_output=True, text=True, timeout=240
    )
    return done, (source / "log").read_text().split("\n")[:-1] if (source / "log").exists() else []


def test_the_core_is_compiled_by_what_is_there(source: Path, tmp_path: Path) -> None:
    """CXX before the system's compilers, those before the wheel's; all for another compiler, else what has changed."""
    _fake(tmp_path / "bin" / "clang++", "clang")
    _fake(tmp_path / "site" / "ziglang" / "__main__.py", "zig")
    _fake(tmp_path / "own", "own")
    path, site = str(tmp_path / "bin"), str(tmp_path / "site")
    first = ["zig .o"] * 3 + ["zig .so"]  # nanobind's own source is the third
    assert _build(source, PYTHONPATH=site)[1] == first
    assert _build(source, PYTHONPATH=site, PATH=path)[1] == ["clang .o"] * 3 + ["clang .so"]
    later = (source / "native" / "other.cpp").stat().st_mtime + 60
    os.utime(source / "native" / "other.cpp", (later, later))
    assert _build(source, PATH=path)[1] == ["clang .o", "clang .so"]
    assert _build(source, PATH=path, CXX=f"{tmp_path / 'own'} --fast")[1] == ["own .o"] * 3 + ["own .so"]


def test_a_compiler_that_setuptools_fetched_is_found(source: Path, tmp_path: Path) -> None:
    """It is in a folder on the path of that process alone."""
    _fake(tmp_path / "fetched" / "ziglang" / "__main__.py", "zig")
    code = f"""
import runpy, setuptools, sys
setuptools._install_setup_requires = lambda attributes: sys.path.insert(0, {str(tmp_path / "fetched")!r})
runpy.run_path("setup.py")
"""
    kept = {name: value for name, value in os.environ.items() if name != "CXX"}
    command = [sys.executable, "-c", code, "-q", "build_ext", "--inplace"]
    subprocess.run(command, cwd=source, env={**kept, "PATH": ""}, check=True, timeout=240)
    assert (source / "log").read_text().split() == ["zig", ".o"] * 3 + ["zig", ".so"]


def test_without_a_compiler_the_error_gives_the_remedy(source: Path) -> None:
    code = """
import importlib.util, runpy, setuptools
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "ziglang" else find_spec(name, *rest)
setuptools._install_setup_requires = lambda attributes: None  # as pip does where a build is not isolated
runpy.run_path("setup.py")
"""
    kept = {name: value for name, value in os.environ.items() if name != "CXX"}
    command = [sys.executable, "-c", code, "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=source, env={**kept, "PATH": ""}, capture_output=True, text=True, timeout=240)
    assert done.returncode == 1
    assert "no C++ compiler here; install g++ or clang++, or give one in CXX, or pip install ziglang" in done.stderr
