"""Explaining a constraint as the caller states it: `ph.explain(ph.json_schema(Person))`.

Needs a tokenizer, no model and no engine. A constraint that cannot be enforced raises what compiling it raises;
`Refusal` says the same with the part of the schema that is at fault.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConstraintError, ConstraintTooLarge, EmptyLanguage, UnsupportedSchema
from ..fsm import Vocabulary
from ..fsm.explain import Explanation
from ..fsm.explain import explain as explain_source
from ..fsm.json_schema.texts import index_of
from .constrain.python_type import is_python_type
from .constrain.spec import ConstraintSpec, Whitespace, json_schema
from .models import resolve_model
from .tokenizer.tokenizer import Tokenizer

JSON_KINDS = ("json_schema", "structural_tag")


def explain(
    spec: ConstraintSpec | Mapping[str, Any] | type, *, tokenizer: str | Tokenizer = "nano", text: str | None = None
) -> Explanation:
    """What a constraint demands, how it is enforced and what it costs; `print` it, or ask for its `svg()`.

    Args:
        spec: made by `regex`, `choice`, `json_schema`, `json_object`, `grammar` or `structural_tag`; or a JSON schema
            as a dict, or a type: what `json_schema` makes of it.
        tokenizer: the vocabulary to look at it with: a checkpoint folder, a hub id, "nano", or a `Tokenizer`.
        text: a text to go through; `steps` then says where it leaves the language and why.

    Raises:
        ConstraintError: the constraint cannot be enforced.
        ModelError: there is no such tokenizer.
        TypeError: `spec` or `tokenizer` is nothing of this.
    """
    if isinstance(spec, Mapping) or is_python_type(spec):
        spec = json_schema(spec)
    if not isinstance(spec, ConstraintSpec):
        raise TypeError(
            "explain: give a constraint made by ph.regex, ph.choice, ph.json_schema, ph.json_object, ph.grammar or "
            f"ph.structural_tag, or a JSON schema as a dict, not {type(spec).__name__}"
        )
    if not isinstance(tokenizer, (str, Tokenizer)):
        raise TypeError(f"tokenizer: give a folder, a hub id, 'nano' or a Tokenizer, not {type(tokenizer).__name__}")
    if isinstance(tokenizer, str):
        vocabulary, whitespace = _read(tokenizer)
    else:
        vocabulary, whitespace = tokenizer.vocabulary(), tokenizer.json_whitespace
    return explain_with(vocabulary, whitespace, spec, text)


def explain_with(vocabulary: Vocabulary, whitespace: Whitespace, spec: ConstraintSpec, text: str | None) -> Explanation:
    """`explain`, with a vocabulary that is there; whitespace: where the constraint does not say."""
    source: Any = spec.source
    if spec.kind in JSON_KINDS:
        source = json.loads(source)
    return explain_source(
        vocabulary,
        spec.kind,
        source,
        whitespace=spec.whitespace or whitespace,
        key_order=spec.key_order,
        extra_keys=spec.extra_keys,
        syntax=spec.syntax,
        text=text,
        resources=json.loads(spec.resources or "{}"),
    )


@functools.lru_cache(maxsize=4)
def _read(name: str) -> tuple[Vocabulary, Whitespace]:
    tokenizer = Tokenizer.from_folder(resolve_model(name, weights=False))
    return tokenizer.vocabulary(), tokenizer.json_whitespace


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a constraint cannot be enforced.

    Attributes:
        reason: the error's message, without its place and its remedy.
        pointer: JSON pointer or position in the text; "" is the whole.
        part: what stands there, as JSON text; of a pattern or grammar the line with a caret; "" if not known.
        remedy: what to do about it.
    """

    reason: str
    pointer: str
    part: str
    remedy: str


def refusal(error: ConstraintError, spec: ConstraintSpec) -> Refusal:
    """A refused constraint with the part of its schema that is at fault."""
    reason, _, remedy = str(error).partition("; ")
    part = ""
    if spec.kind in JSON_KINDS and isinstance(spec.source, str):
        document, found_at = json.loads(spec.source), error.pointer
        for uri, given in json.loads(spec.resources or "{}").items():
            if error.pointer.startswith(f"{uri}#"):
                document, found_at = given, error.pointer.removeprefix(f"{uri}#")
        found = _at(document, found_at)
        part = json.dumps(found, ensure_ascii=False, indent=1)
    elif isinstance(spec.source, str):
        part = _line(spec.source, error.pointer)
    if error.pointer and reason.startswith(f"{error.pointer}: "):
        reason = reason.partition(": ")[2] or reason
    return Refusal(reason, error.pointer, part, remedy or _remedy(error))


def _at(schema: Any, pointer: str) -> Any:
    """The value at a JSON pointer, or at the deepest place on the way that exists."""
    value = schema
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and token in value:
            value = value[token]
        elif isinstance(value, list) and (index := index_of(token)) is not None and index < len(value):
            value = value[index]
        else:
            break
    return value


def _line(text: str, pointer: str) -> str:
    """The line of a position ("offset 3", or "line 1, column 4"), and a caret below it; "" if it is none."""
    numbers = [int(number) for number in re.findall(r"\d+", pointer)]
    if pointer.startswith("offset "):
        before = text[: numbers[0]]
        line, column = before.count("\n"), numbers[0] - (before.rfind("\n") + 1)
    elif pointer.startswith("line "):
        line, column = numbers[0] - 1, numbers[1] - 1
    else:
        return ""
    first = max(0, column - 40)
    return f"{text.split(chr(10))[line][first : first + 80]}\n{' ' * (column - first)}^"


def _remedy(error: ConstraintError) -> str:
    if isinstance(error, UnsupportedSchema):
        return "say it in another way, or leave it out and validate the answer afterwards"
    if isinstance(error, EmptyLanguage):
        return "look for demands that contradict each other"
    if isinstance(error, ConstraintTooLarge):
        return "make bounds or patterns smaller"
    return "correct it at that place"
