"""Single fields of request bodies whose wire form is looser than what it means: a string or an array of them, …

Each is a type: the wire's forms, which the schema in `/openapi.json` shows, are read into one. Knows no bodies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

from ..sampling_params import MAX_STOP_STRINGS

MAX_STOP_CHARS = 1024
MAX_LOGIT_BIAS = 1024


def fault(kind: str, message: str) -> PydanticCustomError:
    """A validation error whose message is `message` as it stands (braces and all)."""
    return PydanticCustomError(kind, "{text}", {"text": message})


def refuse(data: object, refused: Mapping[str, str]) -> object:
    """The fields of a request as they came.

    Raises:
        PydanticCustomError: one of the `refused` says something; by name, why.
    """
    for name, text in refused.items():
        if isinstance(data, dict) and data.get(name):
            raise fault(name, text)
    return data


def check_one_answer(n: int, tool_names: Sequence[str]) -> None:
    """What the routes with one answer ask of a request: a single output, and tools that differ."""
    if n != 1:
        raise fault("n", "'n' is not supported here; use /v1/chat/completions")
    if len(set(tool_names)) < len(tool_names):
        raise fault("tools", "Two tools have the same name")


def _stop_strings(value: object) -> object:
    stop = [value] if isinstance(value, str) else value
    if not isinstance(stop, list):
        raise fault("stop_type", "Expected a string or an array of strings")
    if len(stop) > MAX_STOP_STRINGS:
        raise fault("stop", f"There are {len(stop)} stop strings; at most {MAX_STOP_STRINGS} are allowed")
    for index, text in enumerate(stop):
        if not isinstance(text, str):
            raise fault("stop_item_type", f"Item {index} must be a string, but is {str(text)[:40]}")
        if not 0 < len(text) <= MAX_STOP_CHARS:
            raise fault("stop", f"A stop string must have 1 to {MAX_STOP_CHARS} characters; one has {len(text)}")
    return stop


def _logit_bias(value: object) -> object:
    if not isinstance(value, dict):
        raise fault("logit_bias_type", "Expected an object of token ids and numbers")
    if len(value) > MAX_LOGIT_BIAS:
        raise fault("logit_bias", f"There are {len(value)} entries; at most {MAX_LOGIT_BIAS} are allowed")
    biases: dict[int, float] = {}
    for key, bias in value.items():
        if not (isinstance(key, str) and key.isascii() and key.isdigit() and len(key) < 10):
            raise fault("logit_bias", f"{str(key)[:40]!r} is not a token id")
        if isinstance(bias, bool) or not isinstance(bias, (int, float)) or not -100 <= bias <= 100:
            raise fault("logit_bias", f"The bias of token {key} must be a number between -100 and 100")
        biases[int(key)] = float(bias)
    return biases


def _content(value: object) -> object:
    """A message's content as text: a string, or an array of parts (joined), of text or what was said as a refusal."""
    if isinstance(value, str):
        return value
    if not isinstance(value, list):
        raise fault("content_type", "Expected a string or an array of text parts")
    texts = []
    for part in value:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "refusal" and isinstance(part.get("refusal"), str):
            texts.append(part["refusal"])
            continue
        text = part.get("text") if isinstance(part, dict) else None
        if kind not in ("text", "input_text", "output_text"):
            raise fault("content", f"Content parts of type {str(kind)[:40]!r} are not supported; send text")
        if not isinstance(text, str):
            raise fault("content_type", "Expected a string as the 'text' of a text part")
        texts.append(text)
    return "".join(texts)


def _prompts(value: object) -> object:
    """A text, token ids, or an array of either → a list of prompts."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise fault("prompt_type", "Expected a string, array of strings, or array of token ids")
    if not value:
        raise fault("prompt", "The array is empty; give at least one text")
    prompts = [value] if isinstance(value[0], int) else value
    for prompt in prompts:
        if isinstance(prompt, list):
            if not all(type(token_id) is int and 0 <= token_id < 2**31 for token_id in prompt):
                raise fault(
                    "prompt_item_type", "Expected token ids (integers from 0 to 2^31 - 1), nothing else among them"
                )
        elif not isinstance(prompt, str):
            raise fault("prompt_item_type", "Expected strings, or arrays of token ids, as the items of the array")
        if not prompt:
            raise fault("prompt", "An empty prompt cannot be completed; give at least one token")
    return prompts


def _salt(value: object) -> object:
    if not isinstance(value, str) or not 1 <= len(value) <= 128 or not (value.isascii() and value.isprintable()):
        raise fault("cache_salt", "A cache salt is 1 to 128 printable ASCII characters")
    return value


def _schema(value: object) -> object:
    if not isinstance(value, (dict, bool)):
        raise fault("schema_type", "Expected a JSON Schema (an object or a boolean)")
    return value


def _schema_or_text(value: object) -> object:
    return value if isinstance(value, str) else _schema(value)


Text = Annotated[str, Field(min_length=1)]
TokenIds = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1)]
BadWord = Annotated[str, Field(max_length=1024, pattern=r"\S")]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]


class TextPart(TypedDict):
    type: Literal["text", "input_text", "output_text"]
    text: str


class RefusalPart(TypedDict):
    type: Literal["refusal"]
    refusal: str


StopStrings = Annotated[
    list[str],
    BeforeValidator(
        _stop_strings,
        json_schema_input_type=StopString | Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)],
    ),
]
Bias = Annotated[float, Field(ge=-100, le=100)]
LogitBias = Annotated[
    dict[int, float],
    BeforeValidator(
        _logit_bias,
        json_schema_input_type=Annotated[
            dict[Annotated[str, Field(pattern="^[0-9]{1,9}$")], Bias], Field(max_length=MAX_LOGIT_BIAS)
        ],
    ),
]
Content = Annotated[str, BeforeValidator(_content, json_schema_input_type=str | list[TextPart | RefusalPart])]
Prompts = Annotated[
    list[str | list[int]],
    BeforeValidator(
        _prompts, json_schema_input_type=Text | TokenIds | Annotated[list[Text | TokenIds], Field(min_length=1)]
    ),
]
Salt = Annotated[
    str,
    BeforeValidator(
        _salt, json_schema_input_type=Annotated[str, Field(min_length=1, max_length=128, pattern="^[ -~]*$")]
    ),
]
Schema = Annotated[dict[str, Any] | bool, BeforeValidator(_schema, json_schema_input_type=dict[str, Any] | bool)]
Resources = dict[str, Schema]
"""Schemas by URI that the schema beside them may refer to."""
SchemaOrText = Annotated[
    dict[str, Any] | bool | str, BeforeValidator(_schema_or_text, json_schema_input_type=dict[str, Any] | bool | str)
]
