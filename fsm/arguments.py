"""Arguments of what `phloem.fsm` exports: a wrong type or value is refused at once, with its name and the remedy."""

from __future__ import annotations

from operator import index
from typing import TypeVar, get_args

from ..errors import ConfigError, ConstraintError

_Error = TypeVar("_Error", bound=ConstraintError)


def check_type(name: str, value: object, wanted: type | tuple[type, ...], remedy: str) -> None:
    """TypeError unless the value is of a type; `remedy`: what to give instead. True and False are no numbers."""
    is_wrong = isinstance(value, bool) and wanted is int
    if is_wrong or not isinstance(value, wanted):
        raise TypeError(f"{name}: give {remedy}, not {type(value).__name__}")


def whole_number(name: str, value: object, what: str) -> int:
    """The value as an int, also one of numpy's or torch's. TypeError: it is none; True and False are no numbers."""
    try:
        if not isinstance(value, bool):
            return index(value)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise TypeError(f"{name}: give {what}, not {type(value).__name__}")


def token_count(name: str, value: object) -> int:
    """A number of tokens as an int, which it mostly is already. TypeError: it is none."""
    return value if type(value) is int else whole_number(name, value, "a number of tokens")


def check_at_least(name: str, value: object, least: int, what: str) -> None:
    """TypeError, or ConfigError for a number below the least one."""
    check_type(name, value, int, what)
    assert isinstance(value, int)
    if value < least:
        raise ConfigError(f"{name}: give {what}, {least} or more, not {value}")


def check_text(name: str, value: object, error: type[_Error]) -> None:
    """The error unless the value is text."""
    if not isinstance(value, str):
        raise error(f"{name}: expected text, not {type(value).__name__}; decode bytes first", param=name)


def check_option(name: str, value: object, options: object) -> None:
    """ConstraintError unless the value is one of a `Literal`'s."""
    allowed = get_args(options)
    if not isinstance(value, str) or value not in allowed:
        raise ConstraintError(f"{name}: {value!r} is not one of {', '.join(allowed)}; choose one of these", param=name)
