"""What a kind of document is, and how a record of it is written down.

A ``Kind`` is a fixed JSON schema, a function that invents a record, two ways of writing the record down (a form with
labelled lines, or prose of which every sentence has several wordings) and questions with short answers::

    record ──► form or prose ──► document text
       │                             │  "Extract the person as JSON."
       └──► canonical JSON ◄─────────┘  "Where does the person live?" ──► "Tarvin"

Knows no particular kind, no tokenizer and no training.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

Record = dict[str, Any]
JsonSchema = dict[str, Any]

STRING: JsonSchema = {"type": "string", "minLength": 1, "maxLength": 40}
INTEGER: JsonSchema = {"type": "integer", "minimum": 0, "maximum": 99999}
BOOLEAN: JsonSchema = {"type": "boolean"}
DATE: JsonSchema = {"type": "string", "pattern": "^20[0-9]{2}-[0-9]{2}-[0-9]{2}$"}
TIME: JsonSchema = {"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$"}

EXTRACTIONS = (
    "Extract the {} as JSON.",
    "Extract the {} as JSON.",
    "Extract the {} as JSON.",
    "Extract {} as JSON.",
    "Give the {} as JSON.",
    "Give me the {} as JSON.",
    "{} as JSON, please.",
    "Write the {} in JSON.",
    "Extract the data as JSON.",
    "Extract JSON.",
)


def object_schema(properties: Mapping[str, JsonSchema]) -> JsonSchema:
    """An object with exactly these properties, all required."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def array_schema(items: JsonSchema, most: int) -> JsonSchema:
    """A list of one to ``most`` items."""
    return {"type": "array", "items": items, "minItems": 1, "maxItems": most}


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of document. Templates are ``str.format`` patterns over ``spoken(record)``."""

    name: str
    schema: JsonSchema
    invent: Callable[[Random], Record]
    speak: Callable[[Record], dict[str, str]]
    opening: tuple[str, ...]  # wordings of the first sentence
    sentences: tuple[tuple[str, ...], ...]  # wordings of the others, which may come in any order
    title: str  # first line of the form
    labels: tuple[str, ...]  # the other lines of the form, in any order
    questions: tuple[tuple[tuple[str, ...], str], ...]  # (wordings, answer pattern)

    def spoken(self, record: Record) -> dict[str, str]:
        """The record's values as text, with the derived phrases that the templates use."""
        plain = {key: str(value) for key, value in record.items() if isinstance(value, str | int)}
        return plain | self.speak(record)


@dataclass(frozen=True, slots=True)
class Document:
    """A record written down: what the model reads, and what it should answer."""

    kind: Kind
    record: Record
    text: str

    @property
    def json(self) -> str:
        """The canonical answer to an extraction: compact JSON in the schema's order."""
        return json.dumps(self.record, separators=(",", ":"))

    def extraction(self, rng: Random | None = None) -> str:
        """The request for JSON; without ``rng`` the published wording."""
        wording = EXTRACTIONS[0] if rng is None else rng.choice(EXTRACTIONS)
        text = wording.format(self.kind.name)
        return text[0].upper() + text[1:]

    @property
    def identifier(self) -> str:
        """What tells the document from others of its kind: the first value of its record."""
        return str(next(iter(self.record.values())))

    def questions(self, rng: Random) -> list[tuple[str, str]]:
        """All questions of the kind in random order, each in a random wording, with its short answer."""
        values = self.kind.spoken(self.record)
        pairs = [
            (rng.choice(wordings).format_map(values), answer.format_map(values))
            for wordings, answer in self.kind.questions
        ]
        rng.shuffle(pairs)
        return pairs

    def pointed_questions(self, rng: Random) -> list[tuple[str, str]]:
        """Those questions that name the document's subject, and the request for its JSON: for one among several."""
        values = self.kind.spoken(self.record)
        pairs = [
            (wording.format_map(values), answer.format_map(values))
            for wordings, answer in self.kind.questions
            for wording in wordings
            if "{" in wording
        ]
        return [
            *rng.sample(pairs, min(2, len(pairs))),
            (f"Extract the {self.kind.name} {self.identifier} as JSON.", self.json),
        ]


def write(kind: Kind, record: Record, rng: Random, form_share: float = 0.3) -> Document:
    """Writes a record down as a form (with probability ``form_share``) or as prose."""
    values = kind.spoken(record)
    if rng.random() < form_share:
        lines = rng.sample(kind.labels, len(kind.labels))
        text = "\n".join([kind.title, *lines]).format_map(values)
    else:
        rest = [rng.choice(wordings) for wordings in kind.sentences]
        rng.shuffle(rest)
        text = " ".join([rng.choice(kind.opening), *rest]).format_map(values)
    return Document(kind, record, text)


def yes_no(flag: bool) -> str:
    """A boolean as a form or an answer says it."""
    return "yes" if flag else "no"
