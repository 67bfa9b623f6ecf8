"""Which constraint a request asks for: one of the many spellings, or none; two are an error.

A schema is always enforced. Objects that do not say what other keys they may have are closed, as OpenAI's strict mode
demands it of them, unless the server (`extra_keys="schema"`) or the request says otherwise. What cannot be enforced is
refused when it is compiled, with a pointer; nothing is weakened in silence.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import RequestError
from ..constrain import spec as constraint_spec
from ..constrain.spec import ConstraintSpec, ExtraKeys
from .errors import api_error, invalid
from .fields import Resources
from .protocol import Generation, ResponseFormat, StructuredOutputs

Compilations = tuple[tuple[float, float], ...]
"""When each began and ended, on `time.monotonic`."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A constraint, the request field that asked for it, and when it was compiled.

    Attributes:
        resources: the field that has the documents that a schema may refer to; empty: there is none.
    """

    spec: ConstraintSpec
    param: str
    compiled: Compilations = ()
    resources: str = ""


def constraint_of(body: Generation, extra_keys: ExtraKeys) -> Wanted | None:
    """The request's one constraint; extra_keys: of its schemas, where it does not say.

    Raises:
        ApiError: 400 if there is more than one, or one that cannot be read.
    """
    make = _Makers(extra_keys)
    found = _named(body, make) + _structured(body.structured_outputs, make) + _formatted(body.response_format, make)
    if len(found) > 1:
        names = " and ".join(f"'{wanted.param}'" for wanted in found)
        raise invalid(f"Only one constraint can be set, but {names} are.", found[1].param, "conflicting_constraints")
    return found[0] if found else None


def structural_tag_of(description: Any, extra_keys: ExtraKeys) -> ConstraintSpec:
    """A structural tag, as an object or as JSON text; extra_keys: of its schemas, where it does not say."""
    return _Makers(extra_keys).structural_tag(description)


class _Makers:
    """How constraints with schemas are made."""

    def __init__(self, extra_keys: ExtraKeys) -> None:
        self.extra_keys = extra_keys

    def json_schema(self, resources: Resources | None) -> Callable[[Any], ConstraintSpec]:
        """Makes a constraint of a schema, which may refer to the resources."""
        return partial(constraint_spec.json_schema, extra_keys=self.extra_keys, resources=resources)

    def structural_tag(self, description: Any) -> ConstraintSpec:
        if isinstance(description, str):
            with suppress(ValueError, RecursionError):  # what is wrong with it is said below
                description = json.loads(description)
        return constraint_spec.structural_tag(self._with_default(description))

    def _with_default(self, form: Any) -> Any:
        """A description whose schemas say what they do not say themselves. Schemas are not looked into."""
        if isinstance(form, list):
            return [self._with_default(part) for part in form]
        if not isinstance(form, dict):
            return form
        if "json_schema" in form or ("schema" in form and "begin" in form):
            return {"extra_keys": self.extra_keys, **form}
        return {key: self._with_default(part) for key, part in form.items()}


def _wanted(
    param: str, value: Any, make: Callable[[Any], ConstraintSpec], resources: str = "resources"
) -> list[Wanted]:
    """resources: the field that has those of a schema, for errors in them."""
    if value is None:
        return []
    try:
        return [Wanted(make(value), param, resources=resources)]
    except RequestError as error:
        raise api_error(error, param=resources if error.param == "resources" else param) from error


def _without_schema(resources: Resources | None, param: str, schemas: str) -> None:
    if resources:
        raise invalid(f"'{param}' goes with a schema, in {schemas}, and there is none.", param)


def _named(body: Generation, make: _Makers) -> list[Wanted]:
    """SGLang's top-level fields and vLLM's old ones."""
    if body.guided_whitespace_pattern is not None:
        raise invalid("'guided_whitespace_pattern' is not supported.", "guided_whitespace_pattern")
    if body.json_schema is None and body.guided_json is None:
        _without_schema(body.resources, "resources", "'json_schema' or 'guided_json'")
    json_schema = make.json_schema(body.resources)
    return [
        *_wanted("regex", body.regex, constraint_spec.regex),
        *_wanted("ebnf", body.ebnf, constraint_spec.grammar),
        *_wanted("json_schema", body.json_schema, json_schema),
        *_wanted("structural_tag", body.structural_tag, make.structural_tag),
        *_wanted("guided_json", body.guided_json, json_schema),
        *_wanted("guided_regex", body.guided_regex, constraint_spec.regex),
        *_wanted("guided_choice", body.guided_choice, constraint_spec.choice),
        *_wanted("guided_grammar", body.guided_grammar, constraint_spec.grammar),
    ]


def _structured(outputs: StructuredOutputs | None, make: _Makers) -> list[Wanted]:
    """vLLM's `structured_outputs`."""
    if outputs is None:
        return []
    place = "structured_outputs"
    if outputs.whitespace_pattern is not None:
        raise invalid(f"'{place}.whitespace_pattern' is not supported.", f"{place}.whitespace_pattern")
    resources = f"{place}.resources"
    if outputs.json_ is None:
        _without_schema(outputs.resources, resources, f"'{place}.json'")
    found = [
        *_wanted(f"{place}.json", outputs.json_, make.json_schema(outputs.resources), resources),
        *_wanted(f"{place}.regex", outputs.regex, constraint_spec.regex),
        *_wanted(f"{place}.choice", outputs.choice, constraint_spec.choice),
        *_wanted(f"{place}.grammar", outputs.grammar, constraint_spec.grammar),
        *_wanted(f"{place}.structural_tag", outputs.structural_tag, make.structural_tag),
    ]
    if outputs.json_object:
        found.append(Wanted(constraint_spec.json_object(), f"{place}.json_object"))
    if not found:
        raise invalid(
            f"'{place}' names no constraint; give json, regex, choice, grammar, structural_tag or json_object.", place
        )
    return found


def _formatted(wanted: ResponseFormat | None, make: _Makers) -> list[Wanted]:
    """OpenAI's `response_format`."""
    if wanted is None:
        return []
    nested = wanted.json_schema.schema_ if wanted.json_schema is not None else None
    schema = nested if nested is not None else wanted.schema_
    resources = "response_format.resources"
    if wanted.json_schema is not None and wanted.json_schema.resources is not None:
        text = f"'resources' stands next to 'json_schema', not in it: '{resources}'."
        raise invalid(text, "response_format.json_schema.resources")
    if schema is None or wanted.type in ("text", "structural_tag"):
        _without_schema(wanted.resources, resources, "'response_format.json_schema'")
    if wanted.type == "text":
        return []
    if wanted.type == "structural_tag":
        ours = {"type", "json_schema", "schema_", "key_order", "extra_keys", "whitespace", "resources"}
        description = wanted.model_dump(exclude_unset=True, exclude=ours)
        return _wanted("response_format", description, make.structural_tag)
    if schema is not None:
        is_strict = wanted.json_schema is not None and wanted.json_schema.strict
        make_schema = partial(
            constraint_spec.json_schema,
            whitespace=wanted.whitespace,
            key_order=wanted.key_order,
            extra_keys=wanted.extra_keys or ("never" if is_strict else make.extra_keys),
            resources=wanted.resources,
        )
        return _wanted("response_format", schema, make_schema, resources)
    if wanted.type == "json_object":
        return [Wanted(constraint_spec.json_object(whitespace=wanted.whitespace), "response_format")]
    param = "response_format.json_schema" + (".schema" if wanted.json_schema is not None else "")
    raise invalid(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")
