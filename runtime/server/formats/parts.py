"""Parts of structural tags, made in Python: what an answer may look like is put together from them."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, assert_never

from ...constrain import spec as constraint_spec
from ...constrain.spec import ConstraintSpec, Whitespace

Part = dict[str, Any]


def part_of(spec: ConstraintSpec) -> Part:
    """A constraint as a part of a larger one; not for structural tags in their older form (`structures`)."""
    if spec.kind == "choice":
        return either([text(option) for option in spec.source])
    assert isinstance(spec.source, str)
    if spec.kind == "regex":
        return {"type": "regex", "pattern": spec.source}
    if spec.kind == "grammar":
        return {"type": "grammar", "grammar": spec.source}
    if spec.kind == "structural_tag":
        part: Part = json.loads(spec.source)["format"]
        return part
    if spec.kind == "json_schema":
        schema = json.loads(spec.source)
    elif spec.kind == "json_object":
        schema = {"type": "object"}
    else:
        assert_never(spec.kind)
    options: Part = {"any_order": spec.key_order == "any", "extra_keys": spec.extra_keys}
    if spec.resources:
        options["resources"] = json.loads(spec.resources)
    return {"type": "json_schema", "json_schema": schema, **options}


def sequence(*elements: Part) -> Part:
    return {"type": "sequence", "elements": list(elements)}


def either(elements: list[Part]) -> Part:
    return {"type": "or", "elements": elements}


def token(name: str) -> Part:
    """A special token, by its text."""
    return {"type": "token", "token": name}


def text(value: str) -> Part:
    return {"type": "const_string", "value": value}


def special_or_text(value: str, special_texts: Collection[str]) -> Part:
    """A special token if it is one, else text."""
    return token(value) if value in special_texts else text(value)


def structural_tag(part: Part, whitespace: Whitespace | None) -> ConstraintSpec:
    """The whole of it as a constraint."""
    return constraint_spec.structural_tag({"format": part}, whitespace=whitespace)
