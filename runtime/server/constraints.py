"""Which constraint a request asks for: one of the many spellings, or none; two are an error.

A schema is always enforced; `strict` closes objects that do not say what other keys they may have (OpenAI takes a
strict schema only if they are all closed). What cannot be enforced is refused when it is compiled, with a pointer;
nothing is weakened in silence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import RequestError
from .. import constraint_spec
from ..constraint_spec import ConstraintSpec
from .errors import api_error, invalid
from .protocol import Generation, ResponseFormat, StructuredOutputs


@dataclass(frozen=True, slots=True)
class Wanted:
    """A constraint and the request field that asked for it (for error messages)."""

    spec: ConstraintSpec
    param: str


def constraint_of(body: Generation) -> Wanted | None:
    """The request's one constraint.

    Raises:
        ApiError: 400 if there is more than one, or one that cannot be read.
    """
    found = _named(body) + _structured(body.structured_outputs) + _formatted(body.response_format)
    if len(found) > 1:
        names = " and ".join(f"'{wanted.param}'" for wanted in found)
        raise invalid(f"Only one constraint can be set, but {names} are.", found[1].param, "conflicting_constraints")
    return found[0] if found else None


def _wanted(param: str, value: Any, make: Callable[[Any], ConstraintSpec]) -> list[Wanted]:
    if value is None:
        return []
    try:
        return [Wanted(make(value), param)]
    except RequestError as error:
        raise api_error(error, param=param) from error


def _named(body: Generation) -> list[Wanted]:
    """SGLang's top-level fields and vLLM's old ones."""
    if body.guided_whitespace_pattern is not None:
        raise invalid("'guided_whitespace_pattern' is not supported.", "guided_whitespace_pattern")
    return [
        *_wanted("regex", body.regex, constraint_spec.regex),
        *_wanted("ebnf", body.ebnf, constraint_spec.grammar),
        *_wanted("json_schema", body.json_schema, constraint_spec.json_schema),
        *_wanted("structural_tag", body.structural_tag, constraint_spec.structural_tag),
        *_wanted("guided_json", body.guided_json, constraint_spec.json_schema),
        *_wanted("guided_regex", body.guided_regex, constraint_spec.regex),
        *_wanted("guided_choice", body.guided_choice, constraint_spec.choice),
        *_wanted("guided_grammar", body.guided_grammar, constraint_spec.grammar),
    ]


def _structured(outputs: StructuredOutputs | None) -> list[Wanted]:
    """vLLM's `structured_outputs`."""
    if outputs is None:
        return []
    place = "structured_outputs"
    if outputs.whitespace_pattern is not None:
        raise invalid(f"'{place}.whitespace_pattern' is not supported.", f"{place}.whitespace_pattern")
    found = [
        *_wanted(f"{place}.json", outputs.json_, constraint_spec.json_schema),
        *_wanted(f"{place}.regex", outputs.regex, constraint_spec.regex),
        *_wanted(f"{place}.choice", outputs.choice, constraint_spec.choice),
        *_wanted(f"{place}.grammar", outputs.grammar, constraint_spec.grammar),
        *_wanted(f"{place}.structural_tag", outputs.structural_tag, constraint_spec.structural_tag),
    ]
    if outputs.json_object:
        found.append(Wanted(constraint_spec.json_object(), f"{place}.json_object"))
    if not found:
        raise invalid(
            f"'{place}' names no constraint; give json, regex, choice, grammar, structural_tag or json_object.", place
        )
    return found


def _formatted(wanted: ResponseFormat | None) -> list[Wanted]:
    """OpenAI's `response_format`."""
    if wanted is None or wanted.type == "text":
        return []
    if wanted.type == "structural_tag":
        ours = {"type", "json_schema", "schema_", "key_order", "extra_keys", "whitespace"}
        description = wanted.model_dump(exclude_unset=True, exclude=ours)
        return _wanted("response_format", description, constraint_spec.structural_tag)
    nested = wanted.json_schema.schema_ if wanted.json_schema is not None else None
    schema = nested if nested is not None else wanted.schema_
    if schema is not None:
        is_strict = wanted.json_schema is not None and wanted.json_schema.strict
        make = partial(
            constraint_spec.json_schema,
            whitespace=wanted.whitespace,
            key_order=wanted.key_order,
            extra_keys=wanted.extra_keys or ("never" if is_strict else "schema"),
        )
        return _wanted("response_format", schema, make)
    if wanted.type == "json_object":
        return [Wanted(constraint_spec.json_object(whitespace=wanted.whitespace), "response_format")]
    param = "response_format.json_schema" + (".schema" if wanted.json_schema is not None else "")
    raise invalid(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")
