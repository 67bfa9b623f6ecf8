"""Decimals and fractions as JSON Schemas: numbers, or their digits as text, as pydantic writes them.

Digits are counted in text alone, as a JSON number has a binary float's digits for its reader. Steps other than powers
of ten are numbers alone, and so are fractions with bounds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pydantic.json_schema import JsonSchemaValue

from .forms import BOUNDS, NO_TEXT, no_value, refused
from .ranges import decimals

_STEP = (
    "a `multiple_of` that is no power of ten cannot be enforced in the digits of text; leave it out, or else "
    "`max_digits` and `decimal_places`"
)
_FRACTION = r"^-?(0|[1-9][0-9]*)(/[1-9][0-9]*)?$"


def decimal(schema: Mapping[str, Any], *, is_key: bool) -> JsonSchemaValue:
    """A decimal with bounds, a step, and a number of digits; as the key of an object only text."""
    max_digits, places = schema.get("max_digits"), schema.get("decimal_places")
    is_counted = max_digits is not None or places is not None
    bounds = _exact(schema)
    step = bounds.pop("multiple_of", None)
    number: JsonSchemaValue = {"type": "number", **{BOUNDS[name]: _number(bound) for name, bound in bounds.items()}}
    if step is not None:
        power = _power_of_ten(step)
        number["multipleOf"] = _number(step)
        if power is None or power < 0:
            return refused(_STEP) if is_key or is_counted else number
        places = power if places is None else min(power, places)
    text = text_of(bounds, max_digits, places)
    return text if is_key or is_counted or text.get("pattern") == NO_TEXT else {"anyOf": [number, text]}


def text_of(bounds: Mapping[str, Decimal], max_digits: int | None, places: int | None) -> JsonSchemaValue:
    """The digits of a decimal as text."""
    forms = [rf"^-?(0|[1-9][0-9]*)(\.[0-9]{_most(places, least=1)})?$" if places != 0 else "^-?(0|[1-9][0-9]*)$"]
    if max_digits is not None and places is not None:
        whole = max_digits - places
        forms = [_places(whole, min(places, max_digits))]
    elif max_digits is not None:
        forms.append(rf"^-?(0?\.[0-9]{{1,{max_digits}}}|(?=(\.?[0-9]){{1,{max_digits}}}$)[0-9]+(\.[0-9]+)?)$")
    if bounds:
        low, high = bounds.get("ge"), bounds.get("le")
        above, below = bounds.get("gt"), bounds.get("lt")
        opens = (
            above is not None and (low is None or above >= low),
            below is not None and (high is None or below <= high),
        )
        least, most = above if opens[0] else low, below if opens[1] else high
        if least is not None and most is not None and (least > most or (least == most and any(opens))):
            return no_value("number", bounds)
        interval = decimals(least, most, opens=opens, places=places)
        forms.append(f"^({interval})$")
    patterns = [{"pattern": form} for form in forms]
    return {"type": "string", **patterns[0]} if len(patterns) == 1 else {"type": "string", "allOf": patterns}


def bounds_of_floats(schema: Mapping[str, Any]) -> dict[str, Decimal]:
    """Bounds on digits that are read as a float: what is more than a bound is at least the next float."""
    bounds = {name: float(schema[name]) for name in ("ge", "le") if schema.get(name) is not None}
    if schema.get("gt") is not None:
        bounds["ge"] = max(bounds.get("ge", -math.inf), math.nextafter(schema["gt"], math.inf))
    if schema.get("lt") is not None:
        bounds["le"] = min(bounds.get("le", math.inf), math.nextafter(schema["lt"], -math.inf))
    return {name: Decimal(repr(bound)) for name, bound in bounds.items()}


def fraction(schema: Mapping[str, Any], *, is_key: bool) -> JsonSchemaValue:
    """`"3/4"`, or a number; only a number where it has bounds."""
    bounds = {BOUNDS[name]: _number(bound) for name, bound in _exact(schema).items() if name in BOUNDS}
    number: JsonSchemaValue = {"type": "number", **bounds}
    text = {"type": "string", "pattern": _FRACTION}
    if bounds:
        return refused("bounds on fractions as keys cannot be enforced; leave them out") if is_key else number
    return text if is_key else {"anyOf": [number, text]}


def _power_of_ten(step: Decimal) -> int | None:
    """The decimal places of 0.01; None of a number that is no power of ten."""
    _, figures, exponent = step.normalize().as_tuple()
    return -exponent if figures == (1,) and isinstance(exponent, int) else None


def _places(whole: int, places: int) -> str:
    """A pattern: at most `whole` digits before the point and `places` after it. With no digit before it stands a
    zero.
    """
    if whole <= 0:
        return rf"^-?0\.[0-9]{{1,{places}}}$"
    before = rf"(0|[1-9][0-9]{{0,{whole - 1}}})"
    return rf"^-?{before}(\.[0-9]{{1,{places}}})?$" if places else f"^-?{before}$"


def _most(count: int | None, *, least: int) -> str:
    return f"{{{least},{'' if count is None else count}}}"


def _exact(schema: Mapping[str, Any]) -> dict[str, Decimal]:
    names = (*BOUNDS, "multiple_of")
    return {name: Decimal(str(schema[name])) for name in names if schema.get(name) is not None}


def _number(value: Decimal) -> int | float:
    return int(value) if value == value.to_integral_value() else float(value)
