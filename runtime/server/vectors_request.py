"""The bodies of `/v1/embeddings`, `/v1/score` and `/rerank`, checked field by field. Knows no engine.

A field that is not known is refused by its name: what other servers have here (truncation, other number formats, tasks)
would make other vectors or scores without notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator
from typing_extensions import TypedDict

from .fields import Salt, Text, TokenIds, fault
from .protocol import Body


def _inputs(value: object) -> object:
    """A text, token ids, or an array of texts or of token ids → a list."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise fault("input_type", "Expected a string, array of strings, array of token ids or array of these")
    if not value:
        raise fault("input", "The array is empty; give at least one text")
    inputs = [value] if type(value[0]) is int else value
    kinds = {type(one) for one in inputs}
    if kinds not in ({str}, {list}):
        raise fault("input_item_type", "Expected strings alone, or arrays of token ids alone")
    for index, one in enumerate(inputs):
        if not one:
            raise fault("input", f"Input {index} is empty, so it has no vector; give at least one token")
        if isinstance(one, list) and not all(type(token_id) is int and 0 <= token_id < 2**31 for token_id in one):
            raise fault("input_item_type", "Expected token ids (integers from 0 to 2^31 - 1), nothing else among them")
    return inputs


def _texts(value: object) -> object:
    """A text or an array of them → a list."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise fault("texts_type", "Expected a string or a non-empty array of strings")
    if not texts:
        raise fault("texts", "The array is empty; give at least one text")
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise fault("texts", f"Expected strings, but number {index} of the array is none")
        if not text:
            raise fault("texts", f"Text {index} is empty, so it has no score; give at least one character")
    return texts


def _documents(value: object) -> object:
    """An array of texts, or of objects with one → a list of texts."""
    if not isinstance(value, list):
        raise fault("documents_type", "Expected an array of strings")
    return _texts([one.get("text") if isinstance(one, dict) and one.keys() == {"text"} else one for one in value])


class Document(TypedDict):
    text: Text


Inputs = Annotated[
    list[str] | list[list[int]],
    BeforeValidator(
        _inputs,
        json_schema_input_type=Text
        | TokenIds
        | Annotated[list[Text], Field(min_length=1)]
        | Annotated[list[TokenIds], Field(min_length=1)],
    ),
]
Texts = Annotated[
    list[str], BeforeValidator(_texts, json_schema_input_type=Text | Annotated[list[Text], Field(min_length=1)])
]
Documents = Annotated[
    list[str],
    BeforeValidator(_documents, json_schema_input_type=Annotated[list[Text | Document], Field(min_length=1)]),
]


class Read(Body):
    """What the routes share. `user` has no effect."""

    model: str | None = None
    user: str | None = None
    cache_salt: Salt | None = None
    priority: int = Field(0, ge=-(2**31), lt=2**31)
    deadline_seconds: float | None = Field(None, gt=0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, data: object) -> object:
        given = [name for name, value in data.items() if value is not None] if isinstance(data, dict) else []
        for name in given:
            if name not in cls.model_fields:
                known = ", ".join(cls.model_fields)
                raise fault(str(name)[:100], f"'{str(name)[:100]}' is not an option of this route; there are {known}")
        return data


class EmbeddingRequest(Read):
    input: Inputs
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1)


class ScoreRequest(Read):
    """`text_1` may be one text for all of `text_2`; `instruction` is for rerankers."""

    text_1: Texts
    text_2: Texts
    instruction: Text | None = None

    @model_validator(mode="after")
    def _pair_up(self) -> ScoreRequest:
        if len(self.text_1) not in (1, len(self.text_2)):
            text = f"There are {len(self.text_1)} texts for {len(self.text_2)} in 'text_2'; give as many, or one"
            raise fault("text_1", text)
        return self

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        firsts = self.text_1 * len(self.text_2) if len(self.text_1) == 1 else self.text_1
        return list(zip(firsts, self.text_2, strict=True))


class RerankRequest(Read):
    """`instruction` is for rerankers."""

    query: Text
    documents: Documents
    top_n: int | None = Field(None, ge=1)
    return_documents: bool = False
    instruction: Text | None = None
