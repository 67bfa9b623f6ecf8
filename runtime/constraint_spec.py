"""What the caller wants the output to look like, before any vocabulary is known.

A `ConstraintSpec` is a plain value: kind, source and options. The engine compiles it for its tokenizer (and caches
the result); `parse` turns the finished text into `Completion.parsed`. This module knows no automata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from ..errors import InvalidGrammar, InvalidRegex, InvalidSchema, RequestError

Kind = Literal["regex", "choice", "json_schema", "json_object", "grammar"]
Whitespace = Literal["compact", "spaced", "flexible"]


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """A constraint as the caller states it; make one with `regex`, `choice`, `json_schema` …

    Attributes:
        source: pattern text, tuple of options, canonical schema text, or grammar text.
        model: the pydantic class whose instance `parse` returns, if one was given.
        whitespace: layout of JSON output.
    """

    kind: Kind
    source: str | tuple[str, ...]
    model: type[BaseModel] | None = None
    whitespace: Whitespace = "compact"

    def parse(self, text: str) -> object:
        """The finished text as a value: a pydantic object, parsed JSON, or the text itself.

        Raises:
            RequestError: the text is not what the constraint describes (an output cut short by `abort`).
        """
        if self.kind not in ("json_schema", "json_object"):
            return text
        try:
            return self.model.model_validate_json(text) if self.model else json.loads(text)
        except ValueError as error:
            raise RequestError(f"the output does not parse as the constraint's value: {error}") from error


def regex(pattern: str) -> ConstraintSpec:
    """The whole output matches `pattern`."""
    if not isinstance(pattern, str):
        raise InvalidRegex(f"regex: expected a pattern as text, got {type(pattern).__name__}", param="regex")
    return ConstraintSpec("regex", pattern)


def choice(options: Iterable[str]) -> ConstraintSpec:
    """The output is exactly one of `options`."""
    found = tuple(options)
    if not found or not all(isinstance(option, str) for option in found):
        raise RequestError("choice: give at least one option, each of them text", param="choice")
    return ConstraintSpec("choice", found)


def json_schema(
    schema: Mapping[str, Any] | bool | str | type[BaseModel], *, whitespace: Whitespace = "compact"
) -> ConstraintSpec:
    """The output is JSON that is valid under `schema`: a dict, JSON text, or a pydantic model class."""
    if isinstance(schema, type) and issubclass(schema, BaseModel):
        text = json.dumps(schema.model_json_schema(), ensure_ascii=False)
        return ConstraintSpec("json_schema", text, model=schema, whitespace=whitespace)
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            raise InvalidSchema(f"json_schema: the text is not JSON: {error}", param="json_schema") from error
    if not isinstance(schema, (Mapping, bool)):
        raise InvalidSchema(
            f"json_schema: expected an object, true or false, got {type(schema).__name__}",
            param="json_schema",
        )
    try:
        text = json.dumps(schema, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSchema(f"json_schema: not a JSON value: {error}", param="json_schema") from error
    return ConstraintSpec("json_schema", text, whitespace=whitespace)


def json_object(*, whitespace: Whitespace = "compact") -> ConstraintSpec:
    """The output is any JSON object."""
    return ConstraintSpec("json_object", "", whitespace=whitespace)


def grammar(text: str) -> ConstraintSpec:
    """The output is a sentence of the grammar `text` (EBNF: `root ::= …`)."""
    if not isinstance(text, str):
        raise InvalidGrammar(f"grammar: expected text, got {type(text).__name__}", param="grammar")
    return ConstraintSpec("grammar", text)
