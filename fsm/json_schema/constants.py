"""Constant values: what `const` and `enum` mean, and how a value is spelt.

Equality is that of JSON Schema: numbers by value (1 equals 1.0), `true` is not 1, objects without order. A constant
is *written* in one way only, that of json.dumps(ensure_ascii=False) with the keys in the order of the schema.
Objects and arrays become schemas with one constant per member, so the rest of the compiler need not know them.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from ...errors import InvalidSchema
from .algebra import ARRAY, FALSE, NULL, NUMBER, OBJECT, STRING, TRUE, Conjunction
from .sites import Sites
from .texts import error_at, shown


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a JSON number; Python's booleans are not."""
    return type(value) is int or type(value) is float


def constants(sites: Sites, values: list[Any], pointer: str) -> list[Conjunction]:
    """Conjunctions of which at least one holds for exactly the values equal to one of `values`."""
    types = 0
    strings: set[str] = set()
    numbers: set[int | float] = set()
    spelt: list[int | float] = []  # 1 and 1.0 are equal, and yet not written alike
    conjunctions: list[Conjunction] = []
    for value in sites.time.over(values, pointer):
        if type(value) is str:
            strings.add(value)
        elif value is None:
            types |= NULL
        elif type(value) is bool:
            types |= TRUE if value else FALSE
        elif is_number(value):
            if value != value or value in (float("inf"), float("-inf")):
                raise error_at(InvalidSchema, pointer, f"{value!r} is no JSON number")
            numbers.add(value)
            spelt.append(value)
        elif type(value) is dict or type(value) is list:
            goal = sites.synthetic(_spelt_out(value), pointer)
            conjunctions.append(Conjunction(pointer, OBJECT if type(value) is dict else ARRAY, atoms=tuple(goal)))
        else:
            raise error_at(InvalidSchema, pointer, f"{shown(value)} is no JSON value")
    if strings:
        types |= STRING
    if numbers:
        types |= NUMBER
    if types:
        scalar = Conjunction(
            pointer,
            types,
            (("among", frozenset(numbers), frozenset(map(repr, spelt))),) if numbers else (),
            (("among", frozenset(strings)),) if strings else (),
        )
        conjunctions.insert(0, scalar)
    return conjunctions


def _spelt_out(value: dict[str, Any] | list[Any]) -> dict[str, Any]:
    """The schema of one object or array, one level deep."""
    if type(value) is dict:
        return {
            "type": "object",
            "properties": {key: {"const": item} for key, item in value.items()},
            "required": list(value),
            "additionalProperties": False,
        }
    return {
        "type": "array",
        "prefixItems": [{"const": item} for item in value],
        "items": False,
        "minItems": len(value),
    }
