"""What the caller wants the output to look like, before any vocabulary is known.

A `ConstraintSpec` is a plain value: kind, source and options. The engine compiles it for its tokenizer (and caches
the result); `parse` turns the finished text into `Completion.parsed`. This module knows no automata.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Literal, get_args

from ...errors import (
    ConstraintError,
    ConstraintTooLarge,
    InvalidGrammar,
    InvalidRegex,
    InvalidSchema,
    InvalidStructuralTag,
    RequestError,
)
from ...json_size import check_json_size
from .python_type import is_python_type, schema_text, value_of

Kind = Literal["regex", "choice", "json_schema", "json_object", "grammar", "structural_tag"]
Syntax = Literal["auto", "ebnf", "lark"]
Whitespace = Literal["compact", "spaced", "flexible"]
KeyOrder = Literal["schema", "any"]
ExtraKeys = Literal["schema", "never"]

MAX_CHECKED_PATTERN = 2000
"""Characters of a pattern that is parsed as soon as it is stated, which takes a millisecond."""

MAX_TEXT = 2 << 20
"""Most characters of a schema or a structural tag as JSON text. Reading and writing it holds the interpreter's lock."""


@dataclass(frozen=True, slots=True)
class ConstraintSpec:
    """A constraint as the caller states it; make one with `regex`, `choice`, `json_schema` …

    Attributes:
        source: pattern text, tuple of options, JSON text of a schema or a structural tag, or grammar text.
        python_type: the class or annotation of which `parse` returns a value, if one was given.
        whitespace: layout of JSON output; None: as the model writes it.
        syntax: the notation of grammar text.
        key_order: of objects under a schema: named keys as the schema names them, then others; or any order.
        extra_keys: of objects under a schema that names keys: others as it says, or only where it says so.
        resources: JSON text of the schemas by URI that a schema may refer to; empty: none.
    """

    kind: Kind
    source: str | tuple[str, ...]
    python_type: Any = None
    whitespace: Whitespace | None = None
    syntax: Syntax = "auto"
    key_order: KeyOrder = "schema"
    extra_keys: ExtraKeys = "schema"
    resources: str = ""

    def parse(self, text: str) -> object:
        """The finished text as a value: an object of the class, parsed JSON, or the text itself.

        Raises:
            RequestError: the text is no such value: a stop string has cut it short, or the pydantic class asks for more
                than its schema says (a validator of its own).
        """
        if self.kind not in ("json_schema", "json_object"):
            return text
        try:
            return json.loads(text) if self.python_type is None else value_of(self.python_type, text)
        except Exception as error:  # a class's own validators can fail in any way that Python can
            raise RequestError(f"the output is not the value that the constraint describes: {error}") from error


def not_a_spec(value: object) -> str:
    """What to say of a constraint that is none."""
    if is_python_type(value):
        name = value.__name__ if isinstance(value, type) else value
        return f"constraint: {name} is a type; write phloem.json_schema({name})"
    found = type(value).__name__
    return f"constraint: expected phloem.regex(…), phloem.json_schema(…) or the like, got {found}"


def regex(pattern: str) -> ConstraintSpec:
    """The whole output matches `pattern`. One that does not parse is refused here, a very long one when it is compiled.

    Raises:
        InvalidRegex: the pattern does not parse; with the offset.
    """
    if not isinstance(pattern, str):
        raise InvalidRegex(f"regex: expected a pattern as text, got {type(pattern).__name__}", param="regex")
    if len(pattern) <= MAX_CHECKED_PATTERN:
        from ...fsm.regex.regex_syntax import parse

        parse(pattern, "python")
    return ConstraintSpec("regex", pattern)


def choice(options: Iterable[str]) -> ConstraintSpec:
    """The output is exactly one of `options`."""
    if isinstance(options, str):
        raise RequestError(f"choice: expected a list of texts, got the text {options!r}", param="choice")
    found = tuple(options)
    if not found or not all(isinstance(option, str) for option in found):
        raise RequestError("choice: give at least one option, each of them text", param="choice")
    return ConstraintSpec("choice", found)


def json_schema(
    schema: Any,
    *,
    whitespace: Whitespace | None = None,
    key_order: KeyOrder = "schema",
    extra_keys: ExtraKeys | None = None,
    resources: Mapping[str, Any] | None = None,
) -> ConstraintSpec:
    """The output is JSON that is valid under `schema`: a dict, true or false, JSON text, a pydantic class, or another
    type that pydantic can describe (`list[Person]`, a dataclass …); then `parsed` is a value of that type.

    Args:
        whitespace: "compact", "spaced" or "flexible"; without it, as the model does (`Tokenizer.json_whitespace`).
        key_order: "schema" lets models jump over the keys; "any" takes keys in whatever order they come.
        extra_keys: "schema" allows keys that the schema does not name unless it forbids them; "never" only where it
            says what they may be (what is called strict elsewhere). More is certain then, and jumped over. Without it,
            "never" for a type, whose values have no place for other keys, and "schema" for a schema.
        resources: schemas by URI that `schema` may refer to, as `{"https://example.org/name": {…}}`;
            nothing is ever fetched.
    """
    if extra_keys is None:
        extra_keys = "never" if is_python_type(schema) else "schema"
    _check_whitespace(whitespace)
    _check("key_order", key_order, get_args(KeyOrder))
    _check("extra_keys", extra_keys, get_args(ExtraKeys))
    given = ""
    if resources:
        from ...fsm.resources import checked_resources

        given = _json_text(dict(checked_resources(resources)), "resources", "resources", InvalidSchema)
    if is_python_type(schema):
        text = schema_text(schema)
        return ConstraintSpec("json_schema", text, schema, whitespace, "auto", key_order, extra_keys, given)
    if isinstance(schema, str):
        _check_len(schema, "schema", "json_schema")
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as error:
            text = f"json_schema: the text is not JSON: {error}{_reading(schema)}"
            raise InvalidSchema(text, param="json_schema") from error
    if not isinstance(schema, (Mapping, bool)):
        found = f"{type(schema).__name__}{_reading(schema)}"
        text = f"json_schema: expected an object, true or false, JSON text or a type, got {found}"
        raise InvalidSchema(text, param="json_schema")
    text = _json_text(schema, "schema", "json_schema", InvalidSchema)
    return ConstraintSpec("json_schema", text, None, whitespace, "auto", key_order, extra_keys, given)


def json_object(*, whitespace: Whitespace | None = None) -> ConstraintSpec:
    """The output is any JSON object."""
    _check_whitespace(whitespace)
    return ConstraintSpec("json_object", "", whitespace=whitespace)


def grammar(text: str, *, syntax: Syntax = "auto") -> ConstraintSpec:
    """The output is a sentence of the grammar `text`: EBNF (`root ::= …`) or Lark (`start: …`); "auto" finds out."""
    if not isinstance(text, str):
        remedy = "; write a list of grammars with json.dumps" if isinstance(text, dict) else _reading(text)
        raise InvalidGrammar(f"grammar: expected text, got {type(text).__name__}{remedy}", param="grammar")
    if syntax not in get_args(Syntax):
        raise InvalidGrammar(f"grammar: the syntax {syntax!r} is not one of auto, ebnf, lark", param="grammar")
    return ConstraintSpec("grammar", text, syntax=syntax)


def structural_tag(
    tags: Mapping[str, Any] | str | Iterable[Mapping[str, Any]],
    *,
    triggers: Iterable[str] | None = None,
    at_least_one: bool = False,
    stop_after_first: bool = False,
    whitespace: Whitespace | None = None,
) -> ConstraintSpec:
    """Free text until a trigger, then one of the tags that begin with it, then free text again.

    Args:
        tags: objects with `begin`, `end` and either `schema` (a dict or a type; with it perhaps
            `any_order`, true or false, and `extra_keys`, see `json_schema`) or `content` (a format); or
            a whole description as XGrammar, SGLang and vLLM take it (`{"structures": …, "triggers": …}` or
            `{"type": "structural_tag", "format": …}`), as a dict or JSON text. Then only `whitespace` may be given.
        triggers: beginnings of the tags' `begin`; each whole `begin` if they are not given.
        at_least_one: the output begins with a tag.
        stop_after_first: the output ends after the first tag.
        whitespace: layout of JSON inside tags, see `json_schema`.
    """
    _check_whitespace(whitespace)
    if isinstance(tags, str):
        _check_len(tags, "structural tag", "structural_tag")
        try:
            tags = json.loads(tags)
        except (ValueError, RecursionError) as error:
            raise InvalidStructuralTag(
                f"structural tag: not JSON: {error}{_reading(tags)}", param="structural_tag"
            ) from error
    if isinstance(tags, Mapping):
        description = dict(tags)
        if triggers is not None or at_least_one or stop_after_first:
            raise InvalidStructuralTag(
                "structural tag: a whole description says itself what its triggers and flags are",
                param="structural_tag",
            )
    elif isinstance(tags, Iterable):
        listed = [_tag(tag) for tag in tags]
        found = [tag["begin"] for tag in listed] if triggers is None else list(triggers)
        flags = {"at_least_one": at_least_one, "stop_after_first": stop_after_first}
        description = {"format": {"type": "triggered_tags", "triggers": found, "tags": listed, **flags}}
    else:
        raise InvalidStructuralTag(
            f"structural tag: expected tags or a description, got {type(tags).__name__}{_reading(tags)}",
            param="structural_tag",
        )
    text = _json_text(description, "structural tag", "structural_tag", InvalidStructuralTag)
    return ConstraintSpec("structural_tag", text, whitespace=whitespace)


def _reading(given: object) -> str:
    """What to do with the path of a file that was given for its text; "" if it is none."""
    is_path = isinstance(given, PurePath) or (isinstance(given, str) and given.endswith((".json", ".jsonschema")))
    return f"; of a file give the text: Path({str(given)!r}).read_text()" if is_path else ""


def _json_text(data: Any, what: str, param: str, invalid: type[ConstraintError]) -> str:
    check_json_size(data, what, invalid, param=param, max_text=MAX_TEXT)
    try:
        text = json.dumps(data, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise invalid(f"{what}: not a JSON value: {error}", param=param) from error
    _check_len(text, what, param)
    return text


def _check_len(text: str, what: str, param: str) -> None:
    if len(text) > MAX_TEXT:
        message = f"the {what} has {len(text)} characters as JSON text; at most {MAX_TEXT} are read, make it smaller"
        raise ConstraintTooLarge(message, param=param)


def _check_whitespace(whitespace: str | None) -> None:
    if whitespace is not None:
        _check("whitespace", whitespace, get_args(Whitespace))


def _check(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise RequestError(f"{option}: expected one of {', '.join(known)}, got {value!r}", param=option)


def _tag(tag: object) -> dict[str, Any]:
    if not isinstance(tag, Mapping) or not isinstance(tag.get("begin"), str) or "end" not in tag:
        raise InvalidStructuralTag(
            "structural tag: a tag is an object with begin, end, and schema or content", param="structural_tag"
        )
    content, schema = tag.get("content"), tag.get("schema")
    options = {key: tag[key] for key in ("any_order", "extra_keys") if key in tag}
    if is_python_type(schema):
        schema = json.loads(schema_text(schema))
        options.setdefault("extra_keys", "never")
    if content is None:
        content = {"type": "json_schema", "json_schema": schema, **options}
    return {"type": "tag", "begin": tag["begin"], "content": content, "end": tag["end"]}
