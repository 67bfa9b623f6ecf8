"""Random JSON Schemas of the sort that people write for extraction and tool calls; a pure function of the seed."""

from __future__ import annotations

import random
from typing import Any

WORDS = [
    *("name", "age", "city", "email", "price", "count", "status", "items", "total"),
    *("date", "note", "tags", "unit", "colour", "owner", "address", "active"),
]
PATTERNS = ["^[A-Z]{2}[0-9]{4}$", "^[a-z]+@[a-z]+\\.com$", "^20[0-9]{2}-[01][0-9]$", "^(red|green|blue)$"]
Schema = dict[str, Any]


def random_schemas(seed: int, count: int) -> list[Schema]:
    source = random.Random(seed)
    return [_object(source, 2) for _ in range(count)]


def _object(source: random.Random, depth: int) -> Schema:
    names = source.sample(WORDS, source.randint(1, 4))
    required = [name for name in names if source.random() < 0.8]
    return {
        "type": "object",
        "properties": {name: _value(source, depth - 1) for name in names},
        "required": required,
        "additionalProperties": False,
    }


def _value(source: random.Random, depth: int) -> Schema:
    kinds = [_string, _integer, _number, _boolean, _enum, _nullable]
    if depth > 0:
        kinds += [_array, _object, _any_of]
    return source.choice(kinds)(source, depth)


def _string(source: random.Random, depth: int) -> Schema:
    if source.random() < 0.4:
        return {"type": "string", "pattern": source.choice(PATTERNS)}
    return {"type": "string", "minLength": source.randint(0, 3), "maxLength": source.randint(4, 12)}


def _integer(source: random.Random, depth: int) -> Schema:
    low = source.randint(-50, 1000)
    return {"type": "integer", "minimum": low, "maximum": low + source.randint(0, 5000)}


def _number(source: random.Random, depth: int) -> Schema:
    return {"type": "number", "minimum": 0, "maximum": source.randint(1, 99)}


def _boolean(source: random.Random, depth: int) -> Schema:
    return {"type": "boolean"}


def _enum(source: random.Random, depth: int) -> Schema:
    return {"enum": source.sample([*WORDS, 1, 2.5, None, True], source.randint(1, 5))}


def _nullable(source: random.Random, depth: int) -> Schema:
    return {"type": [source.choice(["integer", "boolean"]), "null"]}


def _array(source: random.Random, depth: int) -> Schema:
    least = source.randint(0, 2)
    return {
        "type": "array",
        "items": _value(source, depth - 1),
        "minItems": least,
        "maxItems": least + source.randint(0, 3),
    }


def _any_of(source: random.Random, depth: int) -> Schema:
    return {"anyOf": [_value(source, depth - 1), {"type": "null"}]}
