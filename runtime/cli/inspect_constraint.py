"""What `phloem inspect` prints of a constraint: drawn, listed, stepped through, or refused with the place."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import typer

from ...errors import ConfigError, ConstraintError
from ..path_fault import path_fault
from ..setting import setting
from .busy import busy
from .options import read_text
from .terminal import takes_colours

if TYPE_CHECKING:
    from ...fsm.explain.terminal import Paint
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


@dataclass(frozen=True, slots=True)
class ConstraintOptions:
    """The options of `phloem inspect` for constraints: which one, and how it is shown."""

    regex: str | None = setting(None, "Explain this regular expression.")
    choice: tuple[str, ...] = setting((), "Explain a choice of these (repeat the option).")
    schema: str | None = setting(None, "Explain a JSON Schema: a file, or JSON text.")
    grammar: str | None = setting(None, "Explain a grammar (EBNF or Lark): a file, or its text.")
    structural_tag: str | None = setting(None, "Explain a structural tag: a file, or JSON text.")
    json_object: bool = setting(False, "Explain “any JSON object”.")
    text: str | None = setting(None, 'Go through this text ("-": stdin) and show where it leaves the language.')
    svg: str | None = setting(None, "Also draw it into this SVG file.")
    as_json: bool = setting(False, "Print JSON.", flag="json")
    tokenizer: str | None = setting(None, "Model whose vocabulary to use (default: the model's own).")
    whitespace: str | None = setting(None, "Layout of JSON: compact, spaced or flexible (default: the model's).")
    key_order: str = setting("schema", "Order of the keys under a schema: schema or any.")
    extra_keys: str = setting(
        "schema",
        "Keys that a schema does not name: schema (as JSON Schema defines) or never (the server's default).",
    )
    max_nodes: int = setting(40, "Most nodes in one picture.")
    width: int | None = setting(None, "Columns to print in (default: the terminal's).")

    def constraint(self) -> ConstraintSpec | None:
        """The one that is asked for, if one is. Raises ConfigError or ConstraintError."""
        from ..constrain import spec as specs

        kinds = ("regex", "choice", "schema", "json_object", "grammar", "structural_tag")
        names = [f"--{kind.replace('_', '-')}" for kind in kinds if getattr(self, kind)]
        if len(names) > 1:
            raise ConfigError(f"{' and '.join(names)} exclude each other; give one of them")
        if self.whitespace is not None and self.whitespace not in get_args(specs.Whitespace):
            raise ConfigError(f"--whitespace {self.whitespace}: choose compact, spaced or flexible")
        if self.key_order not in get_args(specs.KeyOrder):
            raise ConfigError(f"--key-order {self.key_order}: choose schema or any")
        if self.extra_keys not in get_args(specs.ExtraKeys):
            raise ConfigError(f"--extra-keys {self.extra_keys}: choose schema or never")
        layout = cast("specs.Whitespace | None", self.whitespace)
        if self.regex:  # parsed when it is compiled: then its faults are shown with their place
            return specs.ConstraintSpec("regex", self.regex)
        if self.choice:
            return specs.choice(self.choice)
        if self.schema:
            order, others = cast("specs.KeyOrder", self.key_order), cast("specs.ExtraKeys", self.extra_keys)
            text = _json_text(self.schema, "--schema")
            return specs.json_schema(text, whitespace=layout, key_order=order, extra_keys=others)
        if self.structural_tag:
            return specs.structural_tag(_json_text(self.structural_tag, "--structural-tag"), whitespace=layout)
        if self.json_object:
            return specs.json_object(whitespace=layout)
        if self.grammar:
            is_text = not os.path.isfile(self.grammar) and (":" in self.grammar or "\n" in self.grammar)
            return specs.grammar(self.grammar if is_text else read_text(self.grammar, "--grammar"))
        return None

    def show(self, spec: ConstraintSpec, tokenizer: str) -> None:
        """Prints the explanation of a constraint; exit code 2 and the place if it cannot be enforced.

        tokenizer: the model whose vocabulary is used.
        """
        text = read_text("-", "--text").removesuffix("\n") if self.text == "-" else self.text
        try:
            with busy("compiling"):
                from ...fsm.explain import as_data, lines
                from ..explain import explain, refusal

                found = explain(spec, tokenizer=tokenizer, text=text)
        except ConstraintError as error:
            _refuse(refusal(error, spec), self.as_json)
            raise typer.Exit(2) from error
        if self.svg is not None:
            _write(self.svg, found.svg(max_drawn=self.max_nodes).document)
        if self.as_json:
            typer.echo(json.dumps(as_data(found), ensure_ascii=False, indent=2))
        else:
            shown = lines(found, width=self.width or _width(), paint=_paint(), max_drawn=self.max_nodes)
            typer.echo("\n".join(shown))
        if found.steps is not None and found.steps.leaves:
            raise typer.Exit(1)


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
