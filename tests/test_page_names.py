"""What the guides name of phloem is there: options, fields of requests, routes, metrics, Python names and arguments.

In the tables for those who come from elsewhere, "the same" says that phloem takes the first column's names as they are.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

import phloem as ph
from phloem.runtime.cli import COMMANDS, command_line
from phloem.runtime.config import EngineSettings
from phloem.runtime.execute.adapters import Adapters
from phloem.runtime.program.options import RunOptions
from phloem.runtime.request import RequestOptions
from phloem.runtime.server import metric_tables
from phloem.runtime.server.metric_tables import COUNTERS, GAUGES

from .page_blocks import read_options
from .runtime.server.wire import client

DOCS = Path(__file__).resolve().parent.parent / "docs"
PAGES = [DOCS / "getting-started.md", *sorted((DOCS / "guides").glob("*.md"))]
MIGRATIONS = sorted((DOCS / "guides").glob("from-*.md"))
ROOTS = {  # what a name stands for in the tables
    "ph": ph,
    "engine": ph.Engine,
    "completion": ph.Completion,
    "program": ph.Program,
    "s": ph.ProgramState,
    "forks": ph.ForkGroup,
}
OBJECTS = {(ph.Engine, "adapters"): Adapters}  # attributes that an instance has
OPEN = {"settings": EngineSettings, "options": RequestOptions}  # arguments `**settings`, `**options` by their types


@cache
def options() -> frozenset[str]:
    commands = typer.main.get_command(command_line([])).commands.values()  # type: ignore[attr-defined]
    parameters = [parameter for command in commands for parameter in command.params]
    return frozenset(name for p in parameters for name in (*p.opts, *p.secondary_opts) if name.startswith("-"))


@cache
def document() -> Any:
    return client(admin=True, adapter_loading=True).get("/openapi.json").json()


@cache
def fields() -> frozenset[str]:
    return frozenset(name for schema in document()["components"]["schemas"].values() for name in schema["properties"])


def check_python(text: str) -> None:
    """Names and arguments of an expression or an assignment, by what they belong to; `…` stands for anything."""
    for node in ast.walk(ast.parse(text.replace("…", "..."))):
        if isinstance(node, ast.Attribute):
            resolve(node)
        elif isinstance(node, ast.Call):
            called = resolve(node.func)
            signature = inspect.signature(called)
            named = set(signature.parameters)
            for parameter in signature.parameters.values():
                if parameter.kind is parameter.VAR_KEYWORD:
                    kinds = (OPEN[parameter.name],) if called in (ph.Engine, ph.Engine.generate) else (RunOptions,)
                    named |= {name for kind in kinds for name in kind.__annotations__}
            if called is ph.SamplingParams:
                eval(ast.unparse(node), {"ph": ph})  # its values are checked as well
            given = {keyword.arg for keyword in node.keywords}
            assert given <= named | ({"topic"} if called is ph.Program.run else set()), text


def resolve(node: ast.expr) -> Any:
    if isinstance(node, ast.Name):
        return ROOTS[node.id]
    assert isinstance(node, ast.Attribute), ast.dump(node)
    owner = resolve(node.value)
    return OBJECTS.get((owner, node.attr)) or getattr(owner, node.attr)


def check(name: str) -> None:
    """A name that phloem has, in the words of the tables."""
    if name.startswith("-"):
        assert name.split()[0] in options(), name
    elif name.startswith("phloem "):
        words = name.split()[1:]
        assert words[0] in COMMANDS
        read_options(words)
    elif re.match(r"(GET|POST) /", name):
        method, path = name.split()
        assert method.lower() in document()["paths"][path], name
    elif re.match(r"(ph|engine|completion|program|s|forks)\b[.\[( ]", name):
        check_python(name)
    else:
        for part in re.split(r"\.(?=\w)", name.partition(":")[0]):
            assert part in fields(), name


def rows(page: Path) -> list[list[str]]:
    """The rows of a page's tables, as cells, without their headings."""
    found: list[list[str]] = []
    for table in re.findall(r"(?:^\|.*\|\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
        lines = table.splitlines()[2:]
        found += [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return found


@pytest.mark.parametrize("page", MIGRATIONS, ids=lambda path: path.stem)
def test_what_takes_the_place_of_another_name_is_there(page: Path) -> None:
    table = rows(page)
    assert len(table) >= 15
    for row in table:
        theirs, ours = row[0], row[1]
        assert ours.startswith(("`", "the same", "not there", "not needed")), row
        names = re.findall(r"`([^`]+)`", theirs if ours == "the same" else ours.partition(" with `")[0])
        assert names or not ours.startswith("`"), row
        for name in names:
            check(name.split()[0] if ours == "the same" and name.startswith("-") else name)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_options_and_metrics_that_a_guide_names_are_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    if page in MIGRATIONS:
        text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.MULTILINE)
    named = set(re.findall(r"`(--[\w-]+)", text)) - {"--help"}
    assert sorted(named - options()) == []
    metrics = {f"phloem_{name}" for name, *_ in GAUGES} | {f"phloem_{name}_total" for name, *_ in COUNTERS}
    metrics |= set(re.findall(r'"(phloem_\w+)"', inspect.getsource(metric_tables)))  # those with labels of their own
    assert set(re.findall(r"`(phloem_\w+)`", text)) <= metrics
