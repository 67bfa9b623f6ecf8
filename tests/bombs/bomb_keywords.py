"""Schemas made to hurt, keyword by keyword (see `bombs.py`): products of combinators, webs of references, counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bomb_nesting import within
from bomb_values import texts, values

STRING = {"type": "string"}


def keyword_schemas() -> Iterator[tuple[str, Any]]:
    """Schemas that multiply, lead back, overlap or count."""
    yield from products()
    yield from webs()
    yield from keys()
    yield from items()
    yield from values()
    yield from texts()


def products() -> Iterator[tuple[str, Any]]:
    """allOf, anyOf, oneOf, not, if within each other."""

    def cell(i: int, j: int, k: int) -> Any:
        return {"properties": {f"k{i}{j}": {"enum": [k, k + 1, "x" * j]}}, "required": [f"k{i}{k}"]}

    cube = [{"anyOf": [{"oneOf": [cell(i, j, k) for k in range(4)]} for j in range(4)]} for i in range(4)]
    yield "allOf of 4 anyOf of 4 oneOf of 4", {"type": "object", "allOf": cube}
    scalars = [{"anyOf": [{"minimum": n}, {"maxLength": n}, {"multipleOf": n + 1}]} for n in range(12)]
    yield "allOf of 12 anyOf of bounds", {"allOf": scalars}
    yield (
        "allOf of 300 anyOf of types",
        {"allOf": [{"anyOf": [{"type": ["string", "number"]}, {"minItems": n}]} for n in range(300)]},
    )
    yield (
        "oneOf of 12 anyOf of 12 ranges",
        {"oneOf": [{"anyOf": [{"minimum": n * m, "maximum": n * m + n} for m in range(12)]} for n in range(12)]},
    )
    yield "not oneOf of 30 requirements", {"not": {"oneOf": [{"required": [f"k{n}"]} for n in range(30)]}}
    yield (
        "not allOf of 200 properties",
        {"not": {"allOf": [{"properties": {f"k{n}": {"type": "integer"}}} for n in range(200)]}, "type": "object"},
    )
    yield (
        "not oneOf of 12, twelve deep",
        within(12, lambda n, inner: {"not": {"oneOf": [inner, {"required": [f"k{n}"]}, {"minProperties": n}]}}),
    )
    yield (
        "if/then/else, both arms nested, 14 deep",
        within(14, lambda n, inner: {"if": {"required": [f"k{n}"]}, "then": inner, "else": {"items": inner}}),
    )
    yield (
        "if within if within if",
        within(60, lambda n, inner: {"if": inner, "then": {"required": [f"a{n}"]}, "else": {"maxProperties": n}}),
    )
    yield (
        "if/then in items, 100 of them",
        {
            "type": "array",
            "items": {
                "type": "object",
                "allOf": [
                    {"if": {"properties": {f"a{n}": {"const": n}}, "required": [f"a{n}"]}, "then": {"required": ["b"]}}
                    for n in range(100)
                ],
            },
        },
    )
    yield (
        "oneOf within oneOf, 30 deep",
        within(30, lambda n, inner: {"oneOf": [inner, {"properties": {f"k{n}": {"type": "null"}}}]}),
    )
    yield (
        "anyOf of 300 objects, closed",
        {
            "anyOf": [
                {"properties": {f"k{m}": {"const": n} for m in range(n % 7)}, "additionalProperties": False}
                for n in range(300)
            ]
        },
    )
    yield (
        "anyOf of 200 objects with 50 properties",
        {
            "type": "object",
            "anyOf": [{"properties": {f"k{n}_{m}": {"minimum": m} for m in range(50)}} for n in range(200)],
        },
    )


def webs() -> Iterator[tuple[str, Any]]:
    """References that meet, cross and lead back."""
    diamond = {
        f"d{n}": {"properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 2}"}}}
        for n in range(2000)
    }
    ends = {"d2000": {"type": "null"}, "d2001": {"type": "integer"}}
    yield "2,000 diamonds of $ref", {"$ref": "#/$defs/d0", "$defs": {**diamond, **ends}}
    crossing = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n * 7 % 100}"}, {"items": {"$ref": f"#/$defs/d{n * 3 % 100}"}}]}
        for n in range(100)
    }
    yield "100 anyOf that cross", {"$ref": "#/$defs/d1", "$defs": crossing}
    pairs = {
        f"d{n}": {
            "allOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"properties": {"x": {"$ref": f"#/$defs/d{n + 2}"}}}],
        }
        for n in range(40)
    }
    yield "allOf and properties of 40 $ref", {"$ref": "#/$defs/d0", "$defs": {**pairs, "d40": {}, "d41": {}}}
    every = {f"d{n}": {"properties": {f"p{m}": {"$ref": f"#/$defs/d{m}"} for m in range(100)}} for n in range(100)}
    yield "100 objects of 100 references", {"$ref": "#/$defs/d0", "$defs": every}
    joined = {
        f"d{n}": {"allOf": [{"properties": {f"p{m}": {"$ref": f"#/$defs/d{(n + m) % 12}"} for m in range(4)}}] * 2}
        for n in range(12)
    }
    meets = {"allOf": [{"$ref": f"#/$defs/d{n}"} for n in range(12)], "$defs": joined}
    yield "12 recursive schemas met", meets
    dynamic = {
        f"d{n}": {
            "$id": f"u{n}",
            "$dynamicAnchor": "n",
            "anyOf": [{"items": {"$dynamicRef": "#n"}}, {"$ref": f"u{(n + 1) % 60}"}],
        }
        for n in range(60)
    }
    yield "60 $dynamicRef in anyOf", {"$ref": "u0", "$defs": dynamic}
    yield "unresolved references, 10,000", {"properties": {f"k{n}": {"$ref": f"#/$defs/x{n}"} for n in range(10_000)}}
    yield (
        "a $ref through 10,000 hops",
        {
            "$ref": "#/$defs/d0",
            "$defs": {**{f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(10_000)}, "d10000": {"type": "null"}},
        },
    )
    dependent = {f"k{n}": {"dependentSchemas": {f"k{n + 1}": {"required": [f"v{n}"]}}} for n in range(60)}
    yield "dependentSchemas within dependentSchemas", {"type": "object", "dependentSchemas": dependent}
    yield (
        "unevaluatedProperties over a web of 30 $ref",
        {
            "unevaluatedProperties": False,
            "anyOf": [{"$ref": f"#/$defs/d{n}"} for n in range(30)],
            "$defs": {
                f"d{n}": {
                    "properties": {f"p{n}": {"type": "integer"}},
                    "if": {"required": [f"p{n}"]},
                    "then": {"properties": {f"q{n}": True}},
                }
                for n in range(30)
            },
        },
    )
    yield (
        "unevaluatedProperties, 40 levels of allOf",
        {
            "unevaluatedProperties": {"type": "integer"},
            **within(40, lambda n, inner: {"allOf": [inner, {"properties": {f"k{n}": STRING}}]}),
        },
    )
    yield (
        "unevaluatedItems over anyOf of prefixItems",
        {"unevaluatedItems": False, "anyOf": [{"prefixItems": [{"const": m} for m in range(n)]} for n in range(200)]},
    )


def keys() -> Iterator[tuple[str, Any]]:
    """Keys named, by patterns, all at once and in thousands."""
    named = {f"key{n}": {"type": "integer"} for n in range(3000)}
    yield (
        "patterns over 3,000 properties",
        {
            "type": "object",
            "properties": named,
            "patternProperties": {f"{n}$": {"minimum": n} for n in range(10)},
        },
    )
    yield (
        "patterns over 3,000 required properties, and no others",
        {
            "type": "object",
            "properties": named,
            "required": list(named)[::2],
            "patternProperties": {"^key": {"minimum": 1}, "[02468]$": {"multipleOf": 2}, ".{5}": {"maximum": 10**6}},
            "additionalProperties": False,
        },
    )
    heavy = r"^(?=.*a.{8})(?!.*b.{8}c)[\p{L}\p{N}_]{3,60}$"
    yield "propertyNames of a heavy pattern", {"type": "object", "propertyNames": {"pattern": heavy}}
    yield (
        "propertyNames of ten heavy patterns",
        {
            "type": "object",
            "propertyNames": {"allOf": [{"pattern": f"(?=.*{c}.{{7}}).*[^{c}]{{9}}$"} for c in "abcdefghij"]},
        },
    )
    yield (
        "patternProperties with look-arounds",
        {"type": "object", "patternProperties": {f"^(?!.*x{n})(?=.*y.{{{n}}})": {"minimum": n} for n in range(12)}},
    )
    yield (
        "propertyNames and 300 patterns",
        {
            "type": "object",
            "propertyNames": {"pattern": "^[a-z]{1,20}$"},
            "patternProperties": {f"^{chr(97 + n % 26)}{chr(97 + n // 26)}": {"minimum": n} for n in range(300)},
        },
    )
    yield (
        "additionalProperties after 300 patterns",
        {
            "type": "object",
            "patternProperties": {f"[{chr(97 + n % 26)}]{{{1 + n // 26}}}$": True for n in range(300)},
            "additionalProperties": False,
        },
    )
    yield "propertyNames of an enum of 20,000", {"propertyNames": {"enum": [f"k{n}" for n in range(20_000)]}}
    yield (
        "minProperties over 2,000 names",
        {"propertyNames": {"enum": [f"k{n}" for n in range(2000)]}, "minProperties": 1999},
    )
    yield (
        "required of 5,000 after patterns",
        {
            "type": "object",
            "required": [f"k{n}" for n in range(5000)],
            "patternProperties": {"^k1": {"type": "integer"}, "9$": {"minimum": 9}},
        },
    )
    yield (
        "3,000 properties in 3,000 objects",
        {
            "properties": {
                f"o{n}": {"type": "object", "properties": {f"p{m}": STRING for m in range(30)}} for n in range(300)
            }
        },
    )
    yield "1,000 keys of 1,000 characters", {"properties": {f"{n}" + "k" * 1000: {"type": "null"} for n in range(1000)}}
    yield "keys that begin each other", {"properties": {"k" * n: {"type": "null"} for n in range(1, 1000)}}
    yield (
        "200 optional keys, each needing another",
        {
            "type": "object",
            "properties": {f"k{n}": {"const": n} for n in range(200)},
            "dependentRequired": {f"k{n}": [f"k{n * 13 % 200}"] for n in range(200)},
            "maxProperties": 50,
        },
    )
    yield (
        "minProperties and maxProperties over patterns",
        {
            "type": "object",
            "patternProperties": {f"^{c}": {"type": "integer"} for c in "abcdefghij"},
            "minProperties": 200,
            "maxProperties": 400,
            "additionalProperties": False,
        },
    )
    yield (
        "dependentRequired of patterns",
        {
            "type": "object",
            "patternProperties": {f"^k{n}": {"minimum": n} for n in range(30)},
            "dependentRequired": {f"k{n}x": [f"k{m}y" for m in range(n)] for n in range(30)},
        },
    )


def items() -> Iterator[tuple[str, Any]]:
    """Arrays: counted, prefixed, distinct."""
    yield (
        "uniqueItems, contains and prefixItems",
        {
            "prefixItems": [{"enum": list(range(n, n + 40))} for n in range(20)],
            "items": {"enum": list(range(100))},
            "contains": {"minimum": 50},
            "minContains": 20,
            "maxContains": 30,
            "uniqueItems": True,
        },
    )
    yield "minItems 1,000,000 of objects", {"items": {"properties": {"a": True}}, "minItems": 10**6}
    yield "maxItems 1e9 of arrays of 1e9", {"maxItems": 10**9, "items": {"maxItems": 10**9, "items": STRING}}
    yield (
        "contains 7 things, each counted",
        {
            "allOf": [
                {"contains": {"multipleOf": n}, "minContains": n, "maxContains": 5 * n}
                for n in (2, 3, 5, 7, 11, 13, 17)
            ],
            "items": {"type": "integer"},
        },
    )
    yield (
        "contains with minItems 500",
        {"contains": {"const": 7}, "minContains": 200, "minItems": 500, "maxItems": 600},
    )
    yield (
        "prefixItems of 300 objects, contains",
        {
            "prefixItems": [{"properties": {f"k{n}": {"const": n}}} for n in range(300)],
            "contains": {"required": ["k299"]},
            "minContains": 5,
        },
    )
    yield (
        "uniqueItems of enums of arrays",
        {
            "items": {"enum": [[n, [n % 3]] for n in range(300)]},
            "uniqueItems": True,
            "minItems": 20,
        },
    )
    yield (
        "uniqueItems within uniqueItems within contains",
        {
            "contains": {"items": {"items": {"enum": [1, 2, 3]}, "uniqueItems": True}, "uniqueItems": True},
            "uniqueItems": True,
            "maxItems": 50,
        },
    )
    yield (
        "not contains of items of contains",
        within(
            12,
            lambda n, inner: (
                {"not": {"contains": {"items": inner}}} if n % 2 else {"contains": inner, "maxContains": 3}
            ),
        ),
    )
    yield "30 lengths of arrays, oneOf", {"oneOf": [{"minItems": 3 * n, "maxItems": 4 * n} for n in range(30)]}
    yield (
        "prefixItems against prefixItems, 9 deep",
        within(
            9, lambda n, inner: {"prefixItems": [inner, {"const": n}], "allOf": [{"prefixItems": [True, True, inner]}]}
        ),
    )
    yield (
        "unique objects of 3 keys, 500 at least",
        {
            "items": {
                "type": "object",
                "properties": {k: {"enum": list(range(9))} for k in "abc"},
                "required": ["a", "b", "c"],
                "additionalProperties": False,
            },
            "uniqueItems": True,
            "minItems": 500,
        },
    )
