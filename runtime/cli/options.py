"""What options are made of: their variables in the environment, sizes with units, files, and the model."""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated, Any

import typer

from ...errors import ConfigError
from ..path_fault import path_fault

UNITS = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4}
MAX_TEXT_CHARS = 1 << 26  # of a file that is named on the command line
BINARY_UNITS = {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


def option(*names: str, help: str, panel: str | None = None, **rest: Any) -> Any:
    """An option that can also be set in the environment: `--max-tokens` as `PHLOEM_MAX_TOKENS`."""
    variable = names[0].partition("/")[0].removeprefix("--").replace("-", "_").upper()
    return typer.Option(
        *names, help=help, envvar=f"PHLOEM_{variable}", show_envvar=False, rich_help_panel=panel, **rest
    )


def size(text: str, name: str, least: int = 0) -> int:
    """`"2GiB"`, `"500M"`, `"1e9"` → bytes, at least `least`; `name`: of the option, for the error."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?(?:e[0-9]+)?)\s*([kmgt]i?)?b?\s*", text, re.IGNORECASE)
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a size; write for example 2GiB, 500M or 1000000000", param_hint=name)
    number, unit = float(match[1]), (match[2] or "").lower()
    num_bytes = int(number * {**UNITS, **BINARY_UNITS}[unit])
    if num_bytes < least:
        raise typer.BadParameter(f"{text!r} is {num_bytes} bytes; do you mean {match[1]}GiB?", param_hint=name)
    return num_bytes


def size_text(num_bytes: int) -> str:
    """The shortest of the texts that `size` reads as this number: `16GiB`, `0`."""
    for unit, count in reversed(BINARY_UNITS.items()):
        if num_bytes and num_bytes % count == 0:
            return f"{num_bytes // count}{unit.capitalize()}B"
    return str(num_bytes)


def complete_model(incomplete: str) -> list[str]:
    """What a model's name may go on as: "nano", folders, GGUF files.

    Folders end with a slash; names with spaces are left to the shell, and so is everything that begins with `~`.
    """
    at, _, begin = incomplete.rpartition("/")
    place = f"{at}/" if "/" in incomplete else ""
    try:
        with os.scandir(place or ".") as entries:
            found = sorted(
                f"{place}{entry.name}/" if entry.is_dir() else f"{place}{entry.name}"
                for entry in entries
                if entry.name.startswith(begin) and (begin or not entry.name.startswith("."))
                if entry.is_dir() or entry.name.lower().endswith(".gguf")
            )
    except OSError:
        found = []
    names = [name for name in ("nano",) if name.startswith(incomplete)]
    return names + [name for name in found if not any(character.isspace() for character in name)]


ModelArgument = Annotated[
    str,
    typer.Argument(
        autocompletion=complete_model,
        help='A checkpoint folder, a GGUF file, a hub id (owner/name), or "nano" (the bundled model).',
        envvar="PHLOEM_MODEL",
        show_envvar=False,
    ),
]
ModelOption = Annotated[
    str,
    option(
        "--model",
        "-m",
        help='A checkpoint folder, a GGUF file, a hub id (owner/name), or "nano".',
        autocompletion=complete_model,
    ),
]


def read_text(path: str, what: str) -> str:
    """A file's text; "-" is stdin. Raises `ConfigError` that names it."""
    fault = path_fault(path)
    if fault is not None:
        raise ConfigError(f"{what} {path[:200]!r}: {fault}")
    try:
        if path == "-":
            return sys.stdin.read()
        with open(path, encoding="utf-8") as file:  # a pipe (<(…)) is welcome, a device that never ends is not
            text = file.read(MAX_TEXT_CHARS + 1)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{what} {path}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise ConfigError(f"{what} {path}: {(error.strerror or str(error)).lower()}") from error
    if len(text) > MAX_TEXT_CHARS:
        raise ConfigError(f"{what} {path}: more than {MAX_TEXT_CHARS:,} characters; give a smaller file")
    return text
