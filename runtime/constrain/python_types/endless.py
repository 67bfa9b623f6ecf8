"""Why no value at all satisfies the schema of a type: a definition that never ends, or bounds that exclude each other.

A schema *ends* if some value of it is finite: a least fixed point over the definitions, as for productive symbols of
a grammar. Only what pydantic's schemas are built of is looked at (`properties` that are required, `items`, `anyOf` …).
Whatever else there is counts as if it ends, and is left to the compiler of the schema.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from .forms import NO_TEXT, escaped

_DEFS = "#/$defs/"
Kind = TypeVar("Kind")


def find_endless(schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """JSON pointer and reason of what leaves the schema no value; None if it has one, as far as this is seen."""
    definitions: dict[str, Any] = _read(schema, "$defs", {})
    endless = set(definitions)
    while ending := {name for name in endless if _ends(definitions[name], endless)}:
        endless -= ending
    if _ends(schema, endless):
        return None
    pointer, seen, at = "", set[str](), schema
    while True:
        name = _definition(at)
        if name in seen:
            return pointer, (
                f"{name} contains itself wherever it stands, so it never ends; let it be left out (`{name} | None`), "
                "or be in a list"
            )
        if name in endless:
            seen.add(name)
            pointer, at = f"/$defs/{escaped(name)}", definitions[name]
        elif at.get("pattern") == NO_TEXT:
            return pointer, str(at.get("$comment"))
        else:
            step, at = next((step, part) for step, part in _needed(at, endless) if not _ends(part, endless))
            pointer += step


def _ends(schema: Any, endless: set[str]) -> bool:
    if not isinstance(schema, dict):
        return True
    if schema.get("pattern") == NO_TEXT or _definition(schema) in endless:
        return False
    return all(_ends(part, endless) for _, part in _needed(schema, endless))


def _definition(schema: Mapping[str, Any]) -> str:
    """The name that the schema refers to; "" if it does not."""
    reference = _read(schema, "$ref", "")
    return reference.removeprefix(_DEFS) if reference.startswith(_DEFS) else ""


def _needed(schema: Mapping[str, Any], endless: set[str]) -> Iterator[tuple[str, Any]]:
    """The parts of which a value has to satisfy every one, with their places; of options one, if none ends."""
    properties: dict[str, Any] = _read(schema, "properties", {})
    required: list[Any] = _read(schema, "required", [])
    for name in required:
        yield f"/properties/{escaped(str(name))}", properties.get(name)
    first: list[Any] = _read(schema, "prefixItems", [])
    least = _read(schema, "minItems", 0)
    for index, part in enumerate(first[:least]):
        yield f"/prefixItems/{index}", part
    if least > len(first):
        yield "/items", schema.get("items")
    if _read(schema, "minProperties", 0) > len(properties):
        yield "/propertyNames", schema.get("propertyNames")
        yield "/additionalProperties", schema.get("additionalProperties")
    parts: list[Any] = _read(schema, "allOf", [])
    for index, part in enumerate(parts):
        yield f"/allOf/{index}", part
    for key in ("anyOf", "oneOf"):
        options: list[Any] = _read(schema, key, [])
        if options and not any(_ends(option, endless) for option in options):
            yield f"/{key}/0", options[0]


def _read(schema: Mapping[str, Any], key: str, default: Kind) -> Kind:
    """A keyword's value; the default where it is of another type, as a schema that the user gives may have it."""
    value = schema.get(key)
    return value if isinstance(value, type(default)) else default
