"""The notebooks run, cell by cell, and show what they are about; what they print is not compared."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "notebooks"
SHOWN = {"constraints": "<svg", "prefix_cache": "evictable", "programs": 'title="cached"'}


def cells_of(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    return found


def test_the_notebooks_are_these() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
def test_a_notebook_is_small_and_was_executed_from_top_to_bottom(name: str) -> None:
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 60_000
    code = [cell for cell in cells_of(name) if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert SHOWN[name] in "".join(str(output.get("data", "")) for output in outputs)
    assert {output["output_type"] for output in outputs} <= {"stream", "execute_result"}
    assert not re.search(r"/(home|root|work|tmp)/", json.dumps(outputs))


@pytest.mark.parametrize("name", SHOWN)
def test_its_cells_run(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, Any] = {}
    pages = []
    for cell in cells_of(name):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body[-1]
        value = None
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(tree.body[:-1], []), name, "exec"), scope)
            value = eval(compile(ast.Expression(last.value), name, "eval"), scope)
        else:
            exec(compile(tree, name, "exec"), scope)
        pages += [getattr(value, show)() for show in ("_repr_svg_", "_repr_html_") if hasattr(value, show)]
    assert SHOWN[name] in "".join(pages)
    assert capsys.readouterr().out
