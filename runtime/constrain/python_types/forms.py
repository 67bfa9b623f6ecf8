"""Small JSON Schemas: text of a pattern, text of bounded size, and the mark of a type that cannot be enforced."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic.json_schema import JsonSchemaValue

REFUSED = "$refused"
"""The key that marks a type; its value is the reason."""

BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""The bounds of a core schema, and JSON Schema's keywords for them."""

NO_TEXT = "^(?!)$"
"""A pattern that no text matches."""

_RELATIONS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}

ASCII = r"^[\u0000-\u007f]*$"
_LONGEST_CHARACTER = 4


def text(pattern: str) -> JsonSchemaValue:
    """Text that is matched from its beginning to its end."""
    return {"type": "string", "pattern": f"^({pattern})$"}


def refused(reason: str) -> JsonSchemaValue:
    """What stands for a type that cannot be enforced, until its place is known."""
    return {REFUSED: reason}


def no_value(noun: str, bounds: Mapping[str, Any]) -> JsonSchemaValue:
    """Text that there is not, under bounds (`ge`, `gt` …) that exclude each other; its `$comment` says so."""
    found = [f"{words} {bounds[name]}" for name, words in _RELATIONS.items() if bounds.get(name) is not None]
    reason = f"no {noun} is {' and '.join(found)}; change one of the bounds"
    return {"type": "string", "pattern": NO_TEXT, "$comment": reason}


def escaped(key: str) -> str:
    """A key in a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def as_key(form: JsonSchemaValue) -> JsonSchemaValue | None:
    """What of a schema is text, and so may be the key of an object; None if nothing is."""
    kinds = form.get("type", "string")
    if "string" not in ([kinds] if isinstance(kinds, str) else kinds):
        return None
    kept = {**form, "type": "string"} if "type" in form else form.copy()
    if "enum" in form:
        kept["enum"] = [value for value in form["enum"] if isinstance(value, str)]
    for name in ("anyOf", "oneOf"):
        if name in form:
            kept[name] = [option for option in map(as_key, form[name]) if option is not None]
    if "allOf" in form:
        kept["allOf"] = [as_key(part) for part in form["allOf"]]
    if None in kept.get("allOf", ()) or any(kept.get(name) == [] for name in ("enum", "anyOf", "oneOf")):
        return None
    return kept


def within_bytes(form: JsonSchemaValue, max_bytes: int) -> JsonSchemaValue:
    """At most n bytes of UTF-8: n ASCII characters, or a quarter as many of any kind."""
    short = {"maxLength": max_bytes // _LONGEST_CHARACTER}
    return {**form, "anyOf": [{"pattern": ASCII, "maxLength": max_bytes}, short]}


def find_refused(schema: Any) -> tuple[str, str] | None:
    """JSON pointer and reason of the first type that cannot be enforced."""
    pending: list[tuple[str, Any]] = [("", schema)]
    while pending:
        pointer, value = pending.pop()
        if isinstance(value, dict):
            if REFUSED in value:
                return pointer, value[REFUSED]
            inner = [(escaped(str(key)), part) for key, part in value.items()]
        else:
            inner = [(str(index), part) for index, part in enumerate(value)] if isinstance(value, list) else []
        pending += [(f"{pointer}/{key}", part) for key, part in reversed(inner)]
    return None
