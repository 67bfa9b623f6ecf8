"""The workflows for GitHub: they parse, and name commands, files and Pythons that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_is_whole(path: Path) -> None:
    workflow = _read(path)
    assert workflow["name"] == path.stem
    assert workflow[True], "`on`, which YAML reads so"
    for name, job in workflow["jobs"].items():
        assert "runs-on" in job, name
        assert set(job.get("needs", [])) <= workflow["jobs"].keys(), name
        assert all(("uses" in step) != ("run" in step) for step in job["steps"]), name
        assert all("@" in step["uses"] for step in job["steps"] if "uses" in step), name
    text = path.read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z]+)", text)) <= set(targets)
    assert all((ROOT / script).exists() for script in re.findall(r"scripts/[\w.]+", text))
    used = set(re.findall(r"matrix\.(\w+)", text))
    given = {key for job in workflow["jobs"].values() for key in _keys(job.get("strategy", {}).get("matrix", {}))}
    assert used <= given


def _keys(matrix: dict[str, Any]) -> set[str]:
    return {*matrix, *(key for row in matrix.get("include", []) for key in row)}


def test_tests_and_wheels_are_for_the_pythons_that_the_project_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = {line.rpartition(" ")[2] for line in project["classifiers"] if re.search(r":: 3\.\d+$", line)}
    assert set(_read(ROOT / ".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]) == named
    [steps] = [
        job["steps"] for name, job in _read(ROOT / ".github/workflows/wheels.yml")["jobs"].items() if name == "wheels"
    ]
    [build] = [step["env"]["CIBW_BUILD"] for step in steps if "env" in step]
    assert {f"3.{number}" for number in re.findall(r"cp3(\d+)-", build)} == named
    script = (ROOT / "scripts/build_wheels.py").read_text(encoding="utf-8")
    assert set(re.findall(r'"(3\.\d+)"', script)) == named
