"""A Python type as a JSON Schema, and JSON text as its value.

Pydantic classes, and whatever else pydantic can describe: `list[Person]`, dataclasses, TypedDicts, enums, `int | None`.
Pydantic is imported when it is first needed.
"""

from __future__ import annotations

import json
from typing import Any, get_origin

from ...errors import EmptyLanguage, InvalidSchema, UnsupportedSchema
from ...json_size import check_json_size


def is_python_type(value: object) -> bool:
    """Whether it is a class or an annotation such as `list[int]` or `A | B`, and not a schema."""
    is_alias = type(value).__name__ == "TypeAliasType"  # of typing from 3.12 on, else of typing_extensions
    return isinstance(value, type) or get_origin(value) is not None or is_alias


def schema_text(kind: Any) -> str:
    """JSON text of the schema of a Python type.

    Where pydantic's schema takes more than its validators do, it is narrowed (`python_types`). Where a union has a
    discriminator, it is required. Pydantic asks for it although its schema does not, since it usually has a default
    (`kind: Literal["a"] = "a"`).

    Raises:
        InvalidSchema: pydantic cannot describe the type.
        UnsupportedSchema: a type in it cannot be enforced; with its place in the schema, and what to do.
        EmptyLanguage: it has no value: a definition never ends, or bounds exclude each other; with the place.
    """
    try:
        from .python_types.generator import NarrowSchema

        owner = kind if _is_model(kind) else _adapter(kind)
        make = owner.model_json_schema if _is_model(kind) else owner.json_schema
        described = make(schema_generator=NarrowSchema)
    except Exception as error:  # pydantic's own errors, and those of annotations that name nothing
        raise InvalidSchema(f"json_schema: {_name(kind)} has no schema: {error}", param="json_schema") from error
    from .python_types.endless import find_endless
    from .python_types.forms import find_refused

    for find, error_kind in ((find_refused, UnsupportedSchema), (find_endless, EmptyLanguage)):
        if (found := find(described)) is not None:
            pointer, reason = found
            message = f"json_schema: {reason} (in {_name(kind)}{pointer and f', at {pointer}'})"
            raise error_kind(message, pointer=pointer, param="json_schema")
    check_json_size(described, "schema", InvalidSchema, param="json_schema")
    text = json.dumps(described, ensure_ascii=False)
    if '"discriminator"' not in text:
        return text
    described = json.loads(text)
    _require_discriminators(described)
    return json.dumps(described, ensure_ascii=False)


def value_of(kind: Any, text: str) -> object:
    """JSON text as a value of the type. Raises what its validators raise; mostly a ValueError."""
    return kind.model_validate_json(text) if _is_model(kind) else _adapter(kind).validate_json(text)


def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _is_model(kind: Any) -> bool:
    return hasattr(kind, "model_json_schema")


def _name(kind: Any) -> str:
    name = kind.__name__ if isinstance(kind, type) else str(kind)
    return name if len(name) <= 60 else f"{name[:59]}…"  # the reason comes after it


def _require_discriminators(schema: Any) -> None:
    """In place and iterative. Data that only look like a union with a discriminator would have to be an enum's."""
    pending = [schema]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            discriminator, options = value.get("discriminator"), value.get("oneOf")
            name = discriminator.get("propertyName") if isinstance(discriminator, dict) else None
            for option in options if isinstance(options, list) and isinstance(name, str) else ():
                if isinstance(option, dict):
                    option["required"] = sorted({*option.get("required", ()), name})
            pending += value.values()
        elif isinstance(value, list):
            pending += value
