"""The JSON Schema of what pydantic reads, where its own schema takes more than its validators do.

A `Decimal` may be any string under pydantic's schema, an `EmailStr` may lack the dot, a `UUID4` may be any text: all of
that is valid, and refused when the finished answer becomes an object. Here types are described as narrowly as they are
read. What is left out beside that is how a value can also be spelt (`1_000`, `.5`), rare addresses (`"a b"@c.de`), and
of decimals with bounds the strings, since only numbers have bounds in JSON Schema.

Not known: validators of the user's own, and types whose values depend on the day (`PastDate`) or on files.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

_DAY = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])"
_CLOCK = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,6})?"
_WORD = r"[A-Za-z0-9]+(-[A-Za-z0-9]+)*"  # of a host name; no two hyphens in a row, as in xn--
_HOST = rf"({_WORD}\.)+[A-Za-z]{{2,63}}"
_RESERVED = "arpa|invalid|local|localhost|onion|test"  # RFC 6761: nobody has mail there
_WEB = frozenset(("http", "https", "ws", "wss", "ftp"))

# What a format means to pydantic, beside what it means to JSON Schema, if anything.
_FORMATS: dict[str, JsonSchemaValue] = {
    "email": {
        "pattern": rf"^(?=[^@]{{1,64}}@)(?!.*[^.@]{{64}})(?!.*\.({_RESERVED})$)"
        rf"[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*@{_HOST}$",
        "maxLength": 254,
    },
    "ipvanyaddress": {"anyOf": [{"format": "ipv4"}, {"format": "ipv6"}]},
    "duration": {"pattern": "^(?!.*[0-9]{7})"},  # a timedelta has at most 999,999,999 days
}
_FORMATS |= {
    f"uuid{version}": {
        "pattern": rf"^[0-9a-f]{{8}}-[0-9a-f]{{4}}-{version}[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}$"
    }
    for version in (1, 3, 4, 5, 6, 7, 8)
}


class NarrowSchema(GenerateJsonSchema):
    """Pydantic's generator, with schemas as narrow as its validators."""

    def generate_inner(self, schema: Any) -> JsonSchemaValue:
        """Adds to every format what pydantic means by it."""
        found = super().generate_inner(schema)
        narrow = _FORMATS.get(found.get("format", ""))
        return {**narrow, **found} if narrow is not None else found

    def decimal_schema(self, schema: core_schema.DecimalSchema) -> JsonSchemaValue:
        """A number, or its digits as text; only text if they are counted, only a number if it has bounds."""
        number: JsonSchemaValue = super().decimal_schema(schema)["anyOf"][0]
        bounds = {name: schema[name] for name in ("le", "lt", "ge", "gt", "multiple_of") if name in schema}
        if bounds not in ({}, {"ge": 0}, {"gt": 0}):
            return number
        text = {"type": "string", "pattern": _digits(schema.get("max_digits"), schema.get("decimal_places"), bounds)}
        is_counted = "max_digits" in schema or "decimal_places" in schema
        return text if is_counted else {"anyOf": [number, text]}

    def url_schema(self, schema: core_schema.UrlSchema) -> JsonSchemaValue:
        """One of the schemes that are taken, with a host name."""
        found = super().url_schema(schema)
        schemes = schema.get("allowed_schemes")
        if schemes and _WEB.issuperset(schemes):
            found["pattern"] = rf"^({'|'.join(schemes)})://{_HOST}(:[1-9][0-9]{{0,3}})?([/?#][!-~]*)?$"
        return found

    def datetime_schema(self, schema: core_schema.DatetimeSchema) -> JsonSchemaValue:
        """A format has a time zone, so a time without one is a pattern."""
        if schema.get("tz_constraint") == "naive":
            return {"type": "string", "pattern": f"^{_DAY}T{_CLOCK}$"}
        return super().datetime_schema(schema)


def _digits(max_digits: int | None, decimal_places: int | None, bounds: Collection[str]) -> str:
    """The pattern of a decimal with so many digits, of which so many may stand behind the point."""
    sign = "-?" if not bounds else "" if "ge" in bounds else r"(?!0(\.0+)?$)"
    before = "(0|[1-9][0-9]*)"
    if max_digits is not None and decimal_places is not None:
        if max_digits <= decimal_places:  # none stand before the point, and a zero alone is one that does
            return rf"^{sign}0\.[0-9]{{1,{max_digits}}}$"
        before = f"(0|[1-9][0-9]{{0,{max_digits - decimal_places - 1}}})"
        max_digits = None
    counted = "" if max_digits is None else rf"(?=-?(\.?[0-9]){{1,{max_digits}}}$)"
    if decimal_places == 0:
        return f"^{sign}{before}$"
    places = "+" if decimal_places is None else f"{{1,{decimal_places}}}"
    return rf"^{counted}{sign}{before}(\.[0-9]{places})?$"
