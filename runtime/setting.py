"""A field of a settings class, with what the command line has to know of it.

A settings class is a frozen dataclass whose fields are made by `setting`. `cli/setting_options.py` makes the options
out of them, so that a new setting is one field.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..errors import ConfigError


@dataclass(frozen=True, slots=True)
class Flag:
    """How a setting is given on the command line.

    Attributes:
        name: the option without its dashes; `PHLOEM_<NAME>` is its variable in the environment. Empty: as the
            field.
        others: further names, as typer has them: vLLM's and SGLang's.
        help: one line.
        is_size: bytes, written as 2GiB, 500M …
        least: the smallest number.
    """

    name: str
    others: tuple[str, ...]
    help: str
    is_size: bool
    least: float | None


def setting(
    default: Any, help: str, *others: str, flag: str = "", size: bool = False, least: float | None = None
) -> Any:
    """A field with an option. An empty dict as the default is made anew for each object."""
    metadata = {"flag": Flag(flag, others, help, size, least)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=dict, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def flags(settings: type) -> Mapping[str, Flag]:
    """The fields of a settings class that have an option."""
    fields = dataclasses.fields(settings)
    return {field.name: field.metadata["flag"] for field in fields if "flag" in field.metadata}


def check_choices(settings: Any) -> None:
    """Raises `ConfigError` where a field of a few texts (a `Literal`) has another value."""
    for name, kind in get_type_hints(type(settings)).items():
        if get_origin(kind) is Literal and getattr(settings, name) not in get_args(kind):
            listed = ", ".join(f'"{choice}"' for choice in get_args(kind))
            raise ConfigError(f"{name}: {getattr(settings, name)!r} is not one of {listed}")
