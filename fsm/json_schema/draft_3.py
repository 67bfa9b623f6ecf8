"""Draft 3 is read as draft 4, of which it lacks a part; what it says in words that draft 4 has not is refused.

Later drafts do not know those words, and what a draft does not know demands nothing: so they are looked for only where
`$schema` names draft 3. A `required` that is no list is no valid schema in draft 4, and refused as such.
"""

from __future__ import annotations

from typing import Any

from ...errors import UnsupportedSchema
from .texts import error_at, escape

_INSTEAD = {"divisibleBy": "multipleOf", "disallow": "not", "extends": "allOf"}
_NAMES = frozenset(("properties", "patternProperties", "definitions", "dependencies"))  # keys there are no keywords
_VALUES = frozenset(("enum", "default"))


def is_draft_3(schema: Any) -> bool:
    """Whether `$schema` names draft 3."""
    return type(schema) is dict and "draft-03" in str(schema.get("$schema"))


def refuse_draft_3(schema: Any, pointer: str) -> None:
    """UnsupportedSchema if a schema in the text at `pointer` says something that draft 4 cannot say in that way."""
    pending = [(schema, pointer, False)]
    while pending:
        value, place, is_map = pending.pop()
        if type(value) is list:
            pending += [(item, f"{place}/{index}", False) for index, item in enumerate(value)]
        elif type(value) is dict:
            for name, inner in value.items():
                if name in _INSTEAD and not is_map:
                    message = f"{name} of draft 3 is not read; write {_INSTEAD[name]}"
                    raise error_at(UnsupportedSchema, f"{place}/{name}", message)
                if is_map or name not in _VALUES:
                    pending.append((inner, f"{place}/{escape(name)}", not is_map and name in _NAMES))
