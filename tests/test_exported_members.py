"""The public face: what `import phloem` offers, no more and no less, and how little it costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

import phloem

ROOT = Path(__file__).resolve().parent.parent
EXPORTED = re.findall(
    r"\w+",
    """
AsyncEngine Completion ConfigError ConstraintError ConstraintSpec ConstraintTooLarge DeadlineExceeded Delta
EmptyLanguage Engine EngineConfig EngineStatistics EngineStopped Expression FinishReason ForkGroup InvalidGrammar
InvalidRegex InvalidSchema InvalidStructuralTag ModelError PhloemError Program ProgramError ProgramState PromptTooLong
QueueFull RequestError SamplingParams Stream TokenLogprob UnsupportedSchema Usage __version__ assistant
assistant_begin assistant_end choice explain function gen gen_int gen_string grammar greedy_token_selection
json_object json_schema regex select set_default_backend structural_tag system system_begin system_end
token_length_normalized unconditional_likelihood_normalized user user_begin user_end
    """,
)


def test_the_exports_are_these() -> None:
    assert sorted(EXPORTED) == sorted(phloem.__all__) == dir(phloem)


@pytest.mark.parametrize("name", EXPORTED)
def test_every_export_loads(name: str) -> None:
    value = getattr(phloem, name)
    assert getattr(value, "__name__", name) == name


def test_what_type_checkers_see_is_what_loads() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {
        alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert declared == phloem._MODULE_OF
    assert sorted([*declared, "__version__"]) == sorted(phloem.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        phloem.nonsense  # noqa: B018


def test_the_version_is_said_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"] and project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "phloem.__version__"}
    assert phloem.__version__ == version("phloem")


def test_importing_phloem_imports_no_torch() -> None:
    code = "import sys, phloem; phloem.__version__; phloem.PhloemError; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=240).returncode == 0
