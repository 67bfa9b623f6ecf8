"""Options out of settings classes: one for each field that is made by `setting`.

Names are the fields', and vLLM's and SGLang's where they have the option (`--max-num-seqs`, `--page-size` …).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from ...errors import ConfigError
from ..setting import Flag, flags
from .options import option, size, size_text


def with_options(only: Collection[str] = (), /, **groups: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command the options of settings classes.

    Args:
        only: names of fields; the others have no option here, and no value. None: all have one.
        groups: a settings class by the name of the command's parameter that receives the values, as a dict by
            field; the class's name begins with the heading of its options in the help ("Engine…").
    """

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name not in groups]
        made = {group: _parameters(settings, only) for group, settings in groups.items()}

        def run(**values: Any) -> None:
            taken = {
                group: _values(settings, {name: values.pop(p.name) for name, p in made[group].items()})
                for group, settings in groups.items()
            }
            command(**taken, **values)

        listed = [*own, *(parameter for group in made.values() for parameter in group.values())]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in listed]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # read by typer
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return wrap


def _parameters(settings: type, only: Collection[str]) -> dict[str, inspect.Parameter]:
    hints = get_type_hints(settings)
    defaults = {field.name: field.default for field in fields(settings)}
    panel = settings.__name__.removesuffix("Config").removesuffix("Settings")
    found = {name: flag for name, flag in flags(settings).items() if not only or name in only}
    return {name: _parameter(name, flag, hints[name], defaults[name], panel) for name, flag in found.items()}


def _parameter(name: str, flag: Flag, kind: Any, default: Any, panel: str) -> inspect.Parameter:
    plain = flag.name or name.replace("_", "-")
    names = f"--{plain}"
    if flag.is_size:
        kind = str if default is not None else str | None
        default = default if default is None else size_text(default)
    elif get_origin(kind) in (tuple, Mapping):
        each = get_args(kind)[0] if get_origin(kind) is tuple else str
        kind, default = list[each] | None, None  # type: ignore[valid-type]
    elif any(get_origin(part) is Mapping for part in get_args(kind)):
        kind = str | None  # JSON text
    elif bool in (kind, *get_args(kind)) and default is not False:
        names = f"--{plain}/--no-{plain}"
    bound = {} if flag.least is None else {"min": flag.least}
    made = option(names, *flag.others, help=flag.help, panel=panel, **bound)
    name = plain.replace("-", "_")
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, made])


def _values(settings: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """What typer has read, as the fields have it."""
    values: dict[str, Any] = {}
    hints = get_type_hints(settings)
    for name, value in given.items():
        flag = flags(settings)[name]
        if flag.is_size and value is not None:
            value = size(value, f"--{flag.name or name.replace('_', '-')}")
        elif get_origin(hints[name]) is tuple:
            value = tuple(value or ())
        elif get_origin(hints[name]) is Mapping:
            value = folders_by_name(value, f"--{flag.name}")
        values[name] = value
    return values


def folders_by_name(given: list[str] | None, option: str) -> dict[str, str]:
    """Folders by name, out of NAME=FOLDER."""
    folders: dict[str, str] = {}
    for text in given or ():
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise ConfigError(f"{option} {text}: expected NAME=FOLDER")
        if name in folders:
            raise ConfigError(f"{option} {text}: {name} is given twice")
        folders[name] = folder
    return folders
