"""Formats of structural tags, made in Python: what an answer may look like, put together from parts."""

from __future__ import annotations

import json
from typing import Any

from ..constrain.spec import ConstraintSpec

Form = dict[str, Any]


def form_of(spec: ConstraintSpec) -> Form:
    """A constraint as a part of a larger one; not for structural tags in their older form (`structures`)."""
    if spec.kind == "choice":
        return either([text(option) for option in spec.source])
    assert isinstance(spec.source, str)
    if spec.kind in ("regex", "grammar"):
        return {"type": spec.kind, "pattern" if spec.kind == "regex" else "grammar": spec.source}
    if spec.kind == "structural_tag":
        form: Form = json.loads(spec.source)["format"]
        return form
    schema = json.loads(spec.source) if spec.kind == "json_schema" else {"type": "object"}
    options = {"any_order": spec.key_order == "any", "extra_keys": spec.extra_keys}
    return {"type": "json_schema", "json_schema": schema, **options}


def sequence(*elements: Form) -> Form:
    return {"type": "sequence", "elements": list(elements)}


def either(elements: list[Form]) -> Form:
    return {"type": "or", "elements": elements}


def token(name: str) -> Form:
    """A special token, by its text."""
    return {"type": "token", "token": name}


def text(value: str) -> Form:
    return {"type": "const_string", "value": value}
