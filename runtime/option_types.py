"""Whether the options of a request are of their types, before anything is made of them. Knows no engine."""

from __future__ import annotations

import math
from dataclasses import fields
from numbers import Integral, Real
from typing import SupportsFloat

from ..errors import RequestError
from .request import RequestOptions
from .sampling_params import SamplingParams, shown

_KINDS: dict[str, tuple[type, str]] = {
    "request_id": (str, "a string"),
    "namespace": (str, "a string"),
    "priority": (Integral, "an integer"),
    "pin_ttl": (Real, "a number of seconds"),
    "conversation": (str, "a string (that of `encode_chat` is its `text`)"),
    "explain_cache": (bool, "True or False"),
    "explain_tokens": (bool, "True or False"),
    "deadline_seconds": (Real, "a number of seconds"),
    "shows_special": (bool, "True or False"),
    "is_probe": (bool, "True or False"),
}
_MAY_BE_NONE = ("deadline_seconds",)


def check_options(options: RequestOptions) -> None:
    """Names and values of options, but for `adapter` and `prediction`, which are checked where they are looked up.

    Raises:
        RequestError: it names the option.
    """
    unknown = options.keys() - RequestOptions.__annotations__.keys()
    if unknown:
        name, known = min(unknown), ", ".join(RequestOptions.__annotations__)
        remedy = f"there are {known}"
        if name in {field.name for field in fields(SamplingParams)}:
            remedy = f"give it as SamplingParams({name}=…)"
        raise RequestError(f"{name}: a request has no such option; {remedy}", param=name)
    for name in _KINDS:
        if name in options:
            check_option(name, options.get(name))
    makers: dict[str, object] = {name: options.get(name) for name in ("stop_guard", "thought_limit")}
    for name, maker in makers.items():
        if maker is not None and not callable(maker):
            raise RequestError(f"{name}: expected a function, got {shown(maker)}", param=name)
    deadline_seconds = options.get("deadline_seconds")
    if deadline_seconds is not None and not _as_float(deadline_seconds) > 0:
        text = f"deadline_seconds: {shown(deadline_seconds)} is out of range; it must be above 0"
        raise RequestError(text, param="deadline_seconds")
    check_seconds("pin_ttl", options.get("pin_ttl", 0.0))


def check_option(name: str, value: object) -> None:
    """One option of a simple type. Raises RequestError."""
    kind, expected = _KINDS[name]
    if value is None and name in _MAY_BE_NONE:
        return
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise RequestError(f"{name}: expected {expected}, got {shown(value)}", param=name)


def check_seconds(name: str, value: object) -> None:
    """Raises RequestError: it is no number of at least 0."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise RequestError(f"{name}: expected a number of seconds, got {shown(value)}", param=name)
    if not _as_float(value) >= 0:
        raise RequestError(f"{name}: {shown(value)} is out of range; it must be at least 0", param=name)


def _as_float(value: SupportsFloat) -> float:
    """NaN, which is in no range, for integers beyond all floats."""
    try:
        return float(value)
    except OverflowError:
        return math.nan
