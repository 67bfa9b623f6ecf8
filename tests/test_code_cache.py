"""Compiled code is kept until its sources change: the key holds every file that a compiled function has names from."""

from __future__ import annotations

import ast
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from phloem.code_cache import tell_of_compiling
from phloem.kernels import compiled as kernels
from phloem.radix import compiled as radix

COMPILES = {"kernel", "inner_kernel", "compiled", "njit"}


def names_compiled(tree: ast.Module) -> set[str]:
    """The names that the compiled functions of a file speak of."""
    found: set[str] = set()
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            decorators = {n.id for d in function.decorator_list for n in ast.walk(d) if isinstance(n, ast.Name)}
            if decorators & COMPILES:
                found |= {n.id for part in function.body for n in ast.walk(part) if isinstance(n, ast.Name)}
    return found


def imports(path: Path, tree: ast.Module) -> Iterator[tuple[str, Path]]:
    """The names that a file imports from files of the same package, and these files."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            for alias in node.names:
                inside = folder / f"{alias.name}.py"
                yield alias.asname or alias.name, inside if inside.exists() else folder.with_suffix(".py")


@pytest.mark.parametrize("room", [radix, kernels], ids=lambda room: room.__name__)
def test_whatever_is_compiled_is_in_the_key(room: ModuleType) -> None:
    assert room.__file__ is not None
    folder, keyed, num_seen = Path(room.__file__).parent, {*room.source_files()}, 0
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = names_compiled(tree)
        assert not names or path in keyed, f"{path.name} has compiled functions"
        for name, source in imports(path, tree):
            num_seen += name in names
            assert name not in names or source in keyed, f"{path.name} compiles {name} of {source.name}"
    assert num_seen > 3


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stderr", "num_lines"), [(Terminal(), 1), (io.StringIO(), 0), (None, 0)])
def test_a_terminal_is_told_once_what_it_waits_for(
    stderr: io.StringIO | None, num_lines: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", stderr)
    tell_of_compiling.cache_clear()
    tell_of_compiling()
    tell_of_compiling()
    assert stderr is None or stderr.getvalue().count("compiling loops") == num_lines
