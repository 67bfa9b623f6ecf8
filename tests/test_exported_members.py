"""The public interface: what `import phloem` offers, no more and no less, and how little it costs."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import tomllib
import types
import typing
from importlib.metadata import version
from pathlib import Path

import pytest

import phloem
from phloem.runtime.cache.cache_explanation import CacheExplanation
from phloem.runtime.config import EngineConfig, EngineSettings
from phloem.runtime.readout import Rows

ROOT = Path(__file__).resolve().parent.parent
EXPORTED = re.findall(
    r"\w+",
    """
Anthropic AsyncEngine Compiler Completion ConfigError ConstraintError ConstraintSpec ConstraintTooLarge DeadlineExceeded
Delta
EmptyLanguage Engine EngineConfig EngineStatistics EngineStopped Expression FinishReason ForkGroup
GrammarMatcher InvalidGrammar InvalidRegex InvalidSchema InvalidStructuralTag KVStore ModelError OpenAI PhloemError
Program ProgramError ProgramState PromptTooLong QueueFull RequestError Runtime RuntimeEndpoint SamplingParams Stream
TokenLogprob UnsupportedSchema Usage Vocabulary __version__ assistant assistant_begin assistant_end choice explain
extract flush_cache function gen generate
gen_int gen_string grammar greedy_token_selection json_object json_schema regex select set_default_backend
structural_tag system system_begin system_end token_length_normalized unconditional_likelihood_normalized user
user_begin user_end
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


# values whose types the user's own function, schema or choice of n decides
ANY_BY_NATURE = {
    *("Program.__call__", "ProgramState.__getitem__", "ProgramState.get_meta_info", "ProgramState.parsed"),
    "ProgramState.get_var",
    "ProgramState.ret_value",
}


def _functions(name: str) -> dict[str, object]:
    """An exported function, or the methods and properties of an exported class, by their names."""
    value = getattr(phloem, name)
    if not isinstance(value, type):
        return {name: value} if isinstance(value, types.FunctionType) else {}
    found = {}
    for kind in value.__mro__[:-1]:
        for member, given in vars(kind).items():
            plain = given.fget if isinstance(given, property) else getattr(given, "__func__", given)
            is_public = not member.startswith("_") or member in ("__init__", "__call__", "__getitem__")
            if is_public and isinstance(plain, types.FunctionType) and plain.__module__.startswith("phloem."):
                found.setdefault(f"{name}.{member}", plain)
    return found


@pytest.mark.parametrize("name", [name for name in EXPORTED if _functions(name)])
def test_a_type_checker_knows_what_comes_back_and_what_may_be_named(name: str) -> None:
    for place, function in _functions(name).items():
        hints = typing.get_type_hints(function, localns={"CacheExplanation": CacheExplanation, "Rows": Rows})
        assert "return" in hints, place
        assert (hints["return"] is typing.Any) == (place in ANY_BY_NATURE), place
        code = inspect.unwrap(function).__code__  # type: ignore[arg-type]
        if code.co_flags & inspect.CO_VARKEYWORDS and not place.startswith(("Program.", "gen_")):
            named = code.co_varnames[
                code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS)
            ]
            assert hints[named] is not typing.Any, place


def test_the_settings_of_an_engine_are_typed_as_its_config_is() -> None:
    fields = typing.get_type_hints(EngineConfig)
    del fields["model"]
    assert typing.get_type_hints(EngineSettings) == fields
    assert typing.get_type_hints(phloem.Engine.__init__)["settings"] == typing.Unpack[EngineSettings]
