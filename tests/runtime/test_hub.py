"""Models from a hub: fetched once, taken up after a break, checked, and the remedy where it cannot be reached."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from phloem.runtime.models import resolve_model

FAKE = Path(__file__).with_name("fake_hub.py")
FETCH = """
import sys
from phloem.errors import ModelError
from phloem.runtime.models import resolve_model
try:
    print(resolve_model(sys.argv[1]))
except ModelError as error:
    sys.exit(f"error: {error}")
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """The hub's folder, which holds the bundled model, and the hub's address."""
    folder = tmp_path / "model"
    shutil.copytree(resolve_model("nano"), folder)
    (folder / "pickled.bin").write_bytes(b"never asked for")
    for part, name in (("1_Pooling", "config.json"), ("onnx", "config.json")):
        (folder / part).mkdir()
        (folder / part / name).write_text("{}")
    with subprocess.Popen([sys.executable, str(FAKE), str(folder)], stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield folder, f"http://127.0.0.1:{int(running.stdout.readline())}"
        finally:
            running.kill()


def fetch(name: str, address: str, cache: Path) -> subprocess.CompletedProcess[str]:
    """What a new process finds under a name; the package reads where the hub is when it is imported."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING"))}
    environment = {**kept, "HF_ENDPOINT": address, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", "no_proxy": "*"}
    command = [sys.executable, "-W", "ignore", "-c", FETCH, name]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)


def asked(folder: Path) -> list[list[str]]:
    """The files that the hub was asked for since the last call, and from which byte on."""
    log = folder.with_suffix(".log")
    found = sorted(line.split() for line in log.read_text().splitlines()) if log.exists() else []
    log.unlink(missing_ok=True)
    return found


def test_a_model_is_fetched_once_and_then_found_without_the_hub(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, address = served
    first = fetch("owner/model", address, tmp_path / "cache")
    assert first.returncode == 0, first.stderr
    found = Path(first.stdout.strip())
    wanted = {path.name for path in folder.iterdir() if path.is_file() and path.suffix != ".bin"} | {
        "1_Pooling/config.json"  # of a model for vectors; what is below other folders is the same in other forms
    }
    assert {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()} == wanted
    assert all((found / name).read_bytes() == (folder / name).read_bytes() for name in wanted)
    assert asked(folder) == [[name, "0"] for name in sorted(wanted)]
    for hub in (address, "http://127.0.0.1:9"):  # where no server answers
        assert fetch("owner/model", hub, tmp_path / "cache").stdout == first.stdout
    assert asked(folder) == []


def test_a_connection_that_breaks_is_taken_up_where_it_broke(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, address = served
    content = bytes(range(256)) * 100_000  # some of the pieces in which it is written
    (folder / "large.safetensors").write_bytes(content)
    folder.with_suffix(".cut").write_text("large.safetensors")
    done = fetch("owner/model", address, tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    starts = sorted(int(begin) for name, begin in asked(folder) if name == "large.safetensors")
    assert len(starts) == 2 and 0 == starts[0] < starts[1] <= len(content) // 2
    assert (Path(done.stdout.strip()) / "large.safetensors").read_bytes() == content


def test_what_came_otherwise_than_the_hub_has_it_is_refused(served: tuple[Path, str], tmp_path: Path) -> None:
    folder, address = served
    wrong = folder.with_suffix(".wrong")
    wrong.touch()
    done = fetch("owner/model", address, tmp_path / "cache")
    assert "error: 'owner/model': model.safetensors came otherwise than the hub has it (SHA-256 " in done.stderr
    wrong.unlink()
    assert fetch("owner/model", address, tmp_path / "cache").returncode == 0


def test_without_a_network_the_way_around_is_told(tmp_path: Path) -> None:
    done = fetch("owner/model", "http://127.0.0.1:9", tmp_path)
    assert "not in the hub's cache, and the hub cannot be reached" in done.stderr
    assert "`hf download owner/model --exclude '[!0-9]*/*' --local-dir FOLDER`" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_name_that_the_hub_does_not_know(served: tuple[Path, str], tmp_path: Path) -> None:
    done = fetch("owner/other", served[1], tmp_path)
    assert done.returncode == 1 and "error: 'owner/other': cannot be fetched from the hub (" in done.stderr


def command(address: str, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of a new process."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGING", "PHLOEM_"))}
    environment = {**kept, "HF_ENDPOINT": address, "HF_HOME": str(cache), "no_proxy": "*"}
    line = [sys.executable, "-W", "ignore", "-m", "phloem", *arguments]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False, timeout=240)


def test_a_command_tells_a_pipe_in_one_line(served: tuple[Path, str], tmp_path: Path) -> None:
    done = command(served[1], tmp_path / "cache", "plan", "owner/model")
    assert done.stdout.startswith("device        one CPU, computing in float32")
    assert done.stderr == "owner/model: from the Hugging Face hub, or its cache on this disk\n"


@pytest.mark.parametrize("arguments", [["plan"], ["inspect"], ["inspect", "--regex", "a+"]], ids=" ".join)
def test_what_only_describes_a_model_fetches_no_weights(
    served: tuple[Path, str], tmp_path: Path, arguments: list[str]
) -> None:
    folder, address = served
    cache = tmp_path / "cache"
    done = command(address, cache, arguments[0], "owner/model", *arguments[1:])
    assert done.returncode == 0, done.stderr
    small = {path.name for path in folder.iterdir() if path.is_file()} - {"pickled.bin", "model.safetensors"}
    small.add("1_Pooling/config.json")
    assert {name for name, _ in asked(folder)} == small
    if arguments == ["plan"]:
        assert fetch("owner/model", address, cache).returncode == 0
        assert asked(folder) == [["model.safetensors", "0"]]
