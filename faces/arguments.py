"""Arguments of calls from other libraries: a wrong one is a ConfigError that names it, and says what to give."""

from __future__ import annotations

from pathlib import Path

from ..errors import ConfigError, ModelError
from ..fsm import Constraint
from ..fsm.arguments import whole_number


def number(name: str, value: object, what: str, least: int | None = None) -> int:
    """The value as an int; one of numpy's or torch's is a number as well. ConfigError: it is none, or too small."""
    try:
        found = whole_number(name, value, what)
    except TypeError as error:
        raise ConfigError(str(error)) from None
    if least is not None and found < least:
        raise ConfigError(f"{name}: give {what}, {least} or more, not {found}")
    return found


def compiled(name: str, value: object) -> Constraint:
    """The value, if it is a compiled constraint. ConfigError: it is none."""
    if isinstance(value, Constraint):
        return value
    makes = "ph.Compiler(vocabulary).json_schema(…) or the like makes"
    found, hint = type(value).__name__, ""
    if isinstance(value, type):
        found, hint = (
            f"the class {value.__name__}",
            f"; a pydantic class has its schema: {value.__name__}.model_json_schema()",
        )
    raise ConfigError(f"{name}: expected what {makes}, got {found}{hint}")


def content_of(path: object) -> bytes:
    """What is in a file. ConfigError: the path is none; ModelError: the file cannot be read."""
    if not isinstance(path, str | Path):
        raise ConfigError(f"path: give the path of a file, not {type(path).__name__}")
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}: cannot be read ({error}); give the path of a file") from None
