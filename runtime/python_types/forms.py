"""Small JSON Schemas: text of a pattern, text of so many bytes, and the mark of a type that cannot be enforced."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import JsonSchemaValue

REFUSED = "$refused"
"""The key that marks a type; its value is the reason."""

BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
"""The bounds of a core schema, and JSON Schema's keywords for them."""

ASCII = r"^[\u0000-\u007f]*$"
_LONGEST_CHARACTER = 4


def text(pattern: str) -> JsonSchemaValue:
    """Text that is matched from its beginning to its end."""
    return {"type": "string", "pattern": f"^({pattern})$"}


def refused(reason: str) -> JsonSchemaValue:
    """What stands for a type that cannot be enforced, until its place is known."""
    return {REFUSED: reason}


def within_bytes(form: JsonSchemaValue, max_bytes: int) -> JsonSchemaValue:
    """At most so many bytes of UTF-8: as many ASCII characters, or a quarter as many of any kind."""
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
            inner = [(str(key).replace("~", "~0").replace("/", "~1"), part) for key, part in value.items()]
        else:
            inner = [(str(index), part) for index, part in enumerate(value)] if isinstance(value, list) else []
        pending += [(f"{pointer}/{key}", part) for key, part in reversed(inner)]
    return None
