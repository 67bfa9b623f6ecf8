"""The page of the command line: every command and option, as their functions declare them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable
from typing import Annotated, Any, Literal, get_args, get_origin

import typer.models

from phloem.runtime import cli

_HEAD = """# Command line

Every command and every option; `phloem COMMAND --help` prints the same. Each option can also be set in the environment:
`PHLOEM_`, then its name in capitals with `_` for `-` (`PHLOEM_MAX_MODEL_LEN=4096`). Results go to stdout, everything
else to stderr; the exit code is 2 where what was asked cannot work, and 1 where it failed.
[The server and the command line](../server.md) says what the commands are for.
"""
_ENGINE = """
## Options of the engine

These commands take them: {names}. [Settings of the engine](../server.md#settings-of-the-engine) has the field of
`EngineConfig` that each sets.

"""


def command_page() -> str:
    """The page as MyST."""
    of_engine: dict[str, inspect.Parameter] = {}
    takers = []
    parts = [_HEAD]
    for name in cli.COMMANDS:
        command = getattr(importlib.import_module(f"phloem.runtime.cli.{name}"), name)
        parameters = inspect.signature(command, eval_str=True).parameters.values()
        engine = [parameter for parameter in parameters if _info(parameter).rich_help_panel == "Engine"]
        own = [parameter for parameter in parameters if parameter not in engine]
        of_engine |= {parameter.name: parameter for parameter in engine}
        usage = " ".join(["phloem", name, "[OPTIONS]", *(_usage(p) for p in own if _is_argument(p))])
        parts.append(f"\n## phloem {name}\n\n{inspect.getdoc(command)}\n\n```sh\n{usage}\n```\n\n")
        if own:
            parts.append(_table(own))
        if engine:
            takers.append(f"`{name}`")
            parts.append("\nIt also takes the [options of the engine](#options-of-the-engine).\n")
    parts += [_ENGINE.format(names=", ".join(takers)), _table(of_engine.values())]
    return "".join(parts)


def _info(parameter: inspect.Parameter) -> typer.models.ParameterInfo:
    [info] = [each for each in parameter.annotation.__metadata__ if isinstance(each, typer.models.ParameterInfo)]
    return info


def _is_argument(parameter: inspect.Parameter) -> bool:
    return isinstance(_info(parameter), typer.models.ArgumentInfo)


def _usage(parameter: inspect.Parameter) -> str:
    name = parameter.name.upper() + ("…" if _is_list(_kind(parameter)) else "")
    return name if parameter.default is inspect.Parameter.empty else f"[{name}]"


def _kind(parameter: inspect.Parameter) -> Any:
    """The type of its values, without None."""
    kind = get_args(parameter.annotation)[0] if get_origin(parameter.annotation) is Annotated else parameter.annotation
    kinds = [each for each in get_args(kind) if each is not type(None)]
    return kinds[0] if type(None) in get_args(kind) and len(kinds) == 1 else kind


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list


def _table(parameters: Iterable[inspect.Parameter]) -> str:
    rows = "".join(
        f"| {_names(p)} | {_takes(p)} | {_cell(_info(p).help or '')} | {_default(p)} |\n" for p in parameters
    )
    return f"| option | takes | what it is | default |\n|---|---|---|---|\n{rows}"


def _names(parameter: inspect.Parameter) -> str:
    info = _info(parameter)
    if not isinstance(info, typer.models.OptionInfo):
        return f"`{parameter.name.upper()}`"
    first = [info.default] if isinstance(info.default, str) else []  # where `Annotated` puts the first name
    names = [*first, *(info.param_decls or ())]
    return ", ".join(f"`{name.strip()}`" for each in names for name in each.split("/") if name.strip())


def _takes(parameter: inspect.Parameter) -> str:
    kind, info = _kind(parameter), _info(parameter)
    if kind is bool:
        return ""
    repeats = ", may be repeated" if _is_list(kind) else ""
    kind = get_args(kind)[0] if _is_list(kind) else kind
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind)) + repeats
    bounds = [f"from {info.min}"] * (info.min is not None) + [f"to {info.max}"] * (info.max is not None)
    names = {str: "text", int: "whole number", float: "number"}
    return " ".join([names.get(kind, str(kind)), *bounds]) + repeats


def _default(parameter: inspect.Parameter) -> str:
    value = parameter.default
    if value is inspect.Parameter.empty:
        return "required"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "" if value is None else f"`{value}`"


def _cell(text: str) -> str:
    """Text in a cell of a table: it means what it says, and nothing in it is Markdown or HTML."""
    return text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
