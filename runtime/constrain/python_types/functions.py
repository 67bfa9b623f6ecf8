"""What a function of pydantic's in a core schema says about its values, and whether pydantic takes a value at all."""

from __future__ import annotations

import collections.abc
import importlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic.json_schema import JsonSchemaValue
from pydantic_core import SchemaValidator, ValidationError

from .forms import refused
from .known import FORMS, OWN_PACKAGES, Listed, function_of, name_of

_COMPARED = frozenset(
    (
        "greater_than_validator",
        "greater_than_or_equal_validator",
        "less_than_validator",
        "less_than_or_equal_validator",
        "multiple_of_validator",
        "max_digits_validator",
        "decimal_places_validator",
    )
)
_MEASURED = frozenset(("min_length_validator", "max_length_validator"))
_MEASURABLE = frozenset(
    ("SecretStr", "SecretBytes", "EmailStr._validate", "deque_validator", "defaultdict_validator", "val_func")
)
"""Functions whose values have the length of what is written."""
_OWN_SCHEMAS = ("pydantic.json_schema", "pydantic.functional_validators")
"""Where the user says a schema: `WithJsonSchema`, `SkipJsonSchema`, `SkipValidation`."""


def form_of(schema: Mapping[str, Any], name: str, *, is_key: bool) -> JsonSchemaValue | None:
    """The JSON Schema of what a function takes; None where the schema inside of it says so."""
    if name in _COMPARED or name in _MEASURED:
        if _is_said(schema["schema"], name in _MEASURED):
            return None
        return refused("bounds and lengths of this type cannot be enforced; leave them out")
    if is_key and name == "NameEmail._validate":
        return refused("`NameEmail` is no key of a dict, as it has no hash; use EmailStr")
    known = FORMS.get(name, f"{name} is not known; use another type, or say its schema with pydantic.WithJsonSchema")
    if isinstance(known, Listed):
        takes = taken_by({key: value for key, value in schema.items() if key != "serialization"})
        texts = {text for text in known.values(importlib.import_module(known.module)) if takes(text)}
        return {"type": "string", "enum": sorted(texts)}
    found = known(schema) if callable(known) else known
    form = refused(found) if isinstance(found, str) else found
    return form.copy()


def limited(form: JsonSchemaValue, function: Any) -> JsonSchemaValue:
    """With what a function of pydantic says about the length of a value, in the words for its type."""
    if name_of(function) not in _MEASURED:
        return form
    noun = {"array": "Items", "object": "Properties"}.get(form.get("type", ""), "Length")
    return {**form, **{f"{name[:3]}{noun}": bound for name, bound in function.keywords.items()}}


def taken_by(schema: Any) -> Callable[[Any], bool]:
    """Whether pydantic takes a value from JSON, under a core schema."""
    validator = SchemaValidator(schema)

    def takes(value: Any) -> bool:
        try:
            validator.validate_json(json.dumps(value))
        except (ValidationError, ValueError, TypeError):
            return False
        return True

    return takes


def says_less(function: Any) -> bool:
    """Whether a function with which a type describes itself is pydantic's, and no word of the user's."""
    module = str(getattr(function, "__module__", ""))
    return module.split(".")[0] in OWN_PACKAGES and not module.startswith(_OWN_SCHEMAS)


def _is_said(schema: Any, is_length: bool) -> bool:
    """Whether the length of what is read is that of the text; or whether a function of the user's comes before."""
    while True:
        function = function_of(schema)
        if function is not None:
            name = name_of(function)
            if name is None:
                return True
            if not (is_length and name in _MEASURABLE) and name not in _COMPARED | _MEASURED:
                return False
        inner = schema.get("schema") or schema.get("lax_schema") or schema.get("json_schema")
        if not isinstance(inner, collections.abc.Mapping):
            return is_length and schema["type"] in ("str", "list", "dict", "set", "frozenset", "generator")
        schema = inner
