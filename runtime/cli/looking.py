"""What `phloem inspect` prints of a constraint: drawn, listed, stepped through, or refused with the place."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import typer

from ...errors import ConfigError, ConstraintError
from ..path_fault import path_fault
from .busy import busy
from .options import read_text
from .terminal import takes_colours

if TYPE_CHECKING:
    from ...fsm.look.terminal import Paint
    from ..constrain.spec import ConstraintSpec
    from ..explain import Refusal

MIN_WIDTH, MAX_WIDTH = 60, 140
MAX_PART_LINES = 12
_STYLES = {"title": "1;34", "note": "2", "error": "1;31"}
_PARTS = (
    (re.compile(r"'(?:\\.|[^'])*'"), "32"),  # bytes in quotes
    (re.compile(r"→ [^ ]+|‹[^›]*›"), "33"),  # rules, texts
    (re.compile(r"◎ \d+"), "1;35"),  # accepting
    (re.compile(r"[─├└│▶▷]+"), "2"),  # lines
)


def constraint_spec(
    regex: str | None,
    choice: list[str] | None,
    schema: str | None,
    json_object: bool,
    grammar: str | None,
    structural_tag: str | None,
    whitespace: str | None,
    key_order: str,
    extra_keys: str = "schema",
) -> ConstraintSpec | None:
    """The one constraint that the options ask for; schema, grammar and structural tag as a file or as text."""
    from ..constrain import spec as specs

    given = {
        "--regex": regex,
        "--choice": choice,
        "--schema": schema,
        "--json-object": json_object,
        "--grammar": grammar,
        "--structural-tag": structural_tag,
    }
    names = [name for name, value in given.items() if value]
    if len(names) > 1:
        raise ConfigError(f"{' and '.join(names)} exclude each other; give one of them")
    if whitespace is not None and whitespace not in get_args(specs.Whitespace):
        raise ConfigError(f"--whitespace {whitespace}: choose compact, spaced or flexible")
    if key_order not in get_args(specs.KeyOrder):
        raise ConfigError(f"--key-order {key_order}: choose schema or any")
    if extra_keys not in get_args(specs.ExtraKeys):
        raise ConfigError(f"--extra-keys {extra_keys}: choose schema or never")
    layout = cast("specs.Whitespace | None", whitespace)
    if regex:
        return specs.ConstraintSpec(
            "regex", regex
        )  # parsed when it is compiled: then its faults are shown with their place
    if choice:
        return specs.choice(choice)
    if schema:
        order = cast("specs.KeyOrder", key_order)
        others = cast("specs.ExtraKeys", extra_keys)
        text = _json_text(schema, "--schema")
        return specs.json_schema(text, whitespace=layout, key_order=order, extra_keys=others)
    if structural_tag:
        return specs.structural_tag(_json_text(structural_tag, "--structural-tag"), whitespace=layout)
    if json_object:
        return specs.json_object(whitespace=layout)
    if grammar:
        is_text = not os.path.isfile(grammar) and (":" in grammar or "\n" in grammar)
        return specs.grammar(grammar if is_text else read_text(grammar, "--grammar"))
    return None


def _json_text(given: str, name: str) -> str:
    """The option's value if it is JSON, else what is in the file of that name."""
    if given.lstrip()[:1] in ("{", "") or given in ("true", "false"):
        return given
    text = read_text(given, name)
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} {given}: the text is not JSON: {error}") from error
    return text


def show(
    spec: ConstraintSpec,
    *,
    tokenizer: str,
    text: str | None,
    svg: str | None,
    as_json: bool,
    max_nodes: int,
    width: int | None,
) -> None:
    """Prints the explanation of a constraint; exit code 2 and the place if it cannot be enforced."""
    if text == "-":
        text = read_text("-", "--text").removesuffix("\n")
    try:
        with busy("compiling"):
            from ...fsm.look import as_data, lines
            from ..explain import explain, refusal

            found = explain(spec, tokenizer=tokenizer, text=text)
    except ConstraintError as error:
        _refuse(refusal(error, spec), as_json)
        raise typer.Exit(2) from error
    if svg is not None:
        _write(svg, found.svg(max_drawn=max_nodes).document)
    if as_json:
        typer.echo(json.dumps(as_data(found), ensure_ascii=False, indent=2))
    else:
        typer.echo("\n".join(lines(found, width=width or _width(), paint=_paint(), max_drawn=max_nodes)))
    if found.steps is not None and found.steps.leaves:
        raise typer.Exit(1)


def _write(path: str, document: str) -> None:
    if path == "-":
        raise ConfigError("--svg -: give a file; stdout has the description")
    fault = path_fault(path)
    if fault is not None:
        raise ConfigError(f"--svg {path[:200]!r}: {fault}")
    try:
        Path(path).write_text(document, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--svg {path}: {(error.strerror or str(error)).lower()}") from error


def _refuse(refused: Refusal, as_json: bool) -> None:
    if as_json:
        data = {"refused": refused.reason, "pointer": refused.pointer, "part": refused.part, "remedy": refused.remedy}
        typer.echo(json.dumps(data, ensure_ascii=False, indent=2))
    typer.echo(f"error: {refused.reason}", err=True)
    typer.echo(f"  at      {refused.pointer or '(the whole)'}", err=True)
    part = refused.part.splitlines()
    if len(part) > MAX_PART_LINES:
        part = [*part[:MAX_PART_LINES], f"… {len(part) - MAX_PART_LINES} more lines"]
    for index, line in enumerate(part):
        typer.echo(f"  {'there   ' if index == 0 else '        '}{line}", err=True)
    typer.echo(f"  remedy  {refused.remedy}", err=True)


def _width() -> int:
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        return 100
    return min(max(shutil.get_terminal_size((100, 24)).columns, MIN_WIDTH), MAX_WIDTH)


def _paint() -> Paint:
    """Colours on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    if not takes_colours(sys.stdout):
        return lambda text, role: text
    return _coloured


def _coloured(text: str, role: str) -> str:
    if role in _STYLES:
        return f"\x1b[{_STYLES[role]}m{text}\x1b[0m"
    pattern = re.compile("|".join(f"({part.pattern})" for part, _ in _PARTS))
    return pattern.sub(lambda m: f"\x1b[{_PARTS[(m.lastindex or 1) - 1][1]}m{m.group()}\x1b[0m", text)
