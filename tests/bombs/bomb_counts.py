"""Schemas made to hurt by how many there are (see `bombs.py`): large counts, many keywords, items that must differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bomb_nesting import within


def large_counts() -> Iterator[tuple[str, Any]]:
    """Schemas with counts and numbers beyond all measure, and classes of characters that are counted."""
    for keyword in ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"):
        yield f"{keyword} 1e30", {keyword: 10**30}
    yield "minProperties and maxProperties 5,000", {"type": "object", "minProperties": 5000, "maxProperties": 5000}
    yield "minContains 1e9", {"contains": {"const": 1}, "minContains": 10**9}
    yield "multipleOf 1e-300", {"multipleOf": 1e-300}
    yield "multipleOf 1e300", {"multipleOf": 1e300}
    yield "multipleOf 999,983", {"type": "integer", "multipleOf": 999_983}
    yield "multipleOf 0.00001 between bounds", {"multipleOf": 0.00001, "minimum": 0.123, "maximum": 98765.4321}
    yield "bounds of 4,000 digits", {"type": "integer", "minimum": -(10**4000), "maximum": 10**4000 + 7}
    yield "bounds of 1e308", {"minimum": -1.7e308, "exclusiveMaximum": 1.7e308}
    yield "enum of 2,000 numbers with exponents", {"enum": [float(f"{n}e{n % 300}") for n in range(2000)]}
    letters = r"^(?:[\p{L}]{1,300}[\p{N}\p{M}]{0,300}\p{Lu}?){1,40}$"
    yield "classes of Unicode, repeated and counted", {"pattern": letters, "minLength": 777, "maxLength": 7777}
    yield (
        "patterns of Unicode joined",
        {
            "type": "string",
            "allOf": [{"pattern": rf"\p{{{kind}}}.{{0,20}}\p{{Nd}}"} for kind in ("Lu", "Ll", "Lo", "Sc", "Mn", "Han")],
        },
    )
    yield "12 look-aheads in a pattern", {"pattern": "^" + "".join(f"(?=.*{c}.*[{c}x])" for c in "abcdefghijkl")}
    yield "a constant of 1,000,000 characters", {"const": "ab" * 500_000}
    yield "an enum of 100 texts of 40,000 characters", {"enum": [f"{n}" + "x" * 40_000 for n in range(100)]}
    yield "a key of 1,000,000 characters", {"properties": {"k" * 1_000_000: {"const": 1}}, "required": ["k"]}
    yield "a list of 100,000 items", {"const": list(range(100_000))}
    yield "a constant of 20,000 members", {"const": {f"k{n}": {"a": n} for n in range(20_000)}}
    yield "prefixItems of 20,000", {"prefixItems": [{"type": "integer", "minimum": n} for n in range(20_000)]}
    yield "required of 20,000 unnamed", {"type": "object", "required": [f"k{n}" for n in range(20_000)]}


def many_of_a_kind() -> Iterator[tuple[str, Any]]:
    """Schemas of few keywords, each of them very often."""
    shuffled = [{"k" * (1 + n % 3): n, "b": [n], "c": None} for n in range(10_000)]
    yield "enum of 10,000 objects with other keys", {"enum": shuffled}
    then = {"properties": {"a": {"type": "integer"}}}
    kinds = [
        {"if": {"properties": {"kind": {"const": n}}}, "then": {"required": [f"f{n}"], **then}} for n in range(300)
    ]
    yield "300 if/then on constants", {"type": "object", "allOf": kinds}
    required = [
        {
            "if": {"properties": {"kind": {"const": n}}, "required": ["kind"]},
            "then": {"required": [f"f{n}"]},
            "else": {"properties": {f"f{n}": False}},
        }
        for n in range(300)
    ]
    yield "300 if/then/else on constants", {"type": "object", "allOf": required}
    ranges = [{"type": "number", "minimum": 3 * n, "maximum": 3 * n + 4.5} for n in range(5000)]
    yield "anyOf of 5,000 ranges", {"anyOf": ranges}
    yield "anyOf of 5,000 ranges of integers", {"anyOf": [{**one, "type": "integer"} for one in ranges]}
    yield (
        "oneOf of 1,000 objects that overlap",
        {"oneOf": [{"type": "object", "required": [f"k{n % 40}", f"l{n % 37}"]} for n in range(1000)]},
    )
    yield "oneOf of 1,000 lengths", {"oneOf": [{"type": "string", "maxLength": n} for n in range(1000)]}
    yield "anyOf of 2,000 lengths", {"anyOf": [{"minLength": 3 * n, "maxLength": 3 * n + 1} for n in range(2000)]}
    yield (
        "keys of 2,000 lengths",
        {
            "minProperties": 2,
            "type": "object",
            "propertyNames": {"anyOf": [{"minLength": 3 * n, "maxLength": 3 * n} for n in range(2000)]},
        },
    )
    yield (
        "anyOf of 2,000 lengths and a pattern",
        {
            "anyOf": [
                {"type": "string", "minLength": 3 * n, "maxLength": 3 * n, "pattern": "^[a-z ]*$"} for n in range(2000)
            ]
        },
    )
    product = [
        {"anyOf": [{"type": "object", "properties": {f"k{n}": {"const": m}}} for m in range(12)]} for n in range(12)
    ]
    yield "allOf of 12 anyOf of 12", {"allOf": product}
    apart = [{"oneOf": [{"required": [f"a{n}"]}, {"required": [f"b{n}"]}]} for n in range(100)]
    yield "allOf of 100 oneOf of keys", {"type": "object", "allOf": apart}
    many = {f"^{chr(97 + n % 26)}.*{chr(97 + n // 26)}$": {"minimum": n} for n in range(60)}
    yield (
        "patterns of properties, and no others",
        {
            "type": "object",
            "patternProperties": many,
            "additionalProperties": False,
            "properties": {f"{chr(97 + n % 26)}{n}": True for n in range(500)},
        },
    )
    yield (
        "500 disjoint patterns of properties",
        {"type": "object", "patternProperties": {f"^k{n};": {"minimum": n} for n in range(500)}},
    )
    for n in (8, 40):
        yield (
            f"unevaluatedItems after {n} contains",
            {
                "allOf": [{"contains": {"const": m}} for m in range(n)],
                "unevaluatedItems": False,
            },
        )
    yield (
        "unevaluatedProperties after 8 levels of anyOf",
        {
            "unevaluatedProperties": False,
            **within(
                8,
                lambda _, inner: {
                    "anyOf": [inner, {"properties": {"a": True}}, {"properties": {"b": {"$ref": "#/$defs/x"}}}],
                },
                {"type": "integer"},
            ),
            "$defs": {"x": {"type": "null"}},
        },
    )
    tower: dict[str, Any] = {"type": "object", "required": ["a"]}
    for depth in range(60):
        tower = {"not": {"anyOf": [tower, {"properties": {f"k{depth}": {"const": depth}}, "required": [f"k{depth}"]}]}}
    yield "tower of 60 not anyOf", tower
    tower = {"enum": [1, "a", None]}
    for depth in range(40):
        tower = {"not": {"items": tower}} if depth % 2 else {"not": {"contains": tower}}
    yield "tower of 40 not items, not contains", tower
    web = {
        f"k{n}": {"anyOf": [{"required": [f"k{(n * 7 + 1) % 60}"]}, {"properties": {f"v{n}": {"minimum": n}}}]}
        for n in range(60)
    }
    yield "web of 60 dependentSchemas", {"type": "object", "dependentSchemas": web}
    yield (
        "dependentSchemas of 500 on constants",
        {
            "type": "object",
            "dependentSchemas": {
                f"k{n}": {"properties": {f"v{n}": {"const": n}}, "required": [f"v{n}"]} for n in range(500)
            },
        },
    )
    formats = ["email", "uri", "hostname", "idn-hostname", "uuid", "date-time", "ipv6", "iri", "uri-template"]
    yield "oneOf of all formats", {"oneOf": [{"type": "string", "format": name} for name in formats]}
    yield "allOf of not formats", {"type": "string", "allOf": [{"not": {"format": name}} for name in formats]}
    yield "two long enums joined", {"allOf": [{"enum": [f"v{n}" for n in range(0, 60_000, step)]} for step in (2, 3)]}
    yield "anyOf of 20,000 constants", {"anyOf": [{"const": f"v{n}"} for n in range(20_000)]}
    yield "oneOf of 20,000 constants", {"oneOf": [{"const": f"v{n}"} for n in range(20_000)]}


def what_must_differ() -> Iterator[tuple[str, Any]]:
    """Keys that come from patterns, and lists whose items differ."""
    two = {
        "type": "object",
        "patternProperties": {"^[a-z]{2}[01]$": {"type": "integer"}},
        "additionalProperties": False,
    }
    yield "1,352 keys from a pattern", two
    yield "1,352 keys from a pattern, all of them", {**two, "minProperties": 1352}
    named = {"type": "object", "propertyNames": {"pattern": "^[a-z]{2}[01]$"}, "properties": {"aa0": {"const": 1}}}
    yield "1,352 names, one of them known", named
    yield "1,000 of 1,352 names", {**named, "minProperties": 1000}
    yield "maxProperties of 1,352 names", {**named, "maxProperties": 600}
    for kind in ({"type": "string"}, {"type": "string", "pattern": "^[a-f]{3,}$"}, {"type": "integer"}, {}):
        name = next(iter([*kind.values(), "anything"][-1:]))
        yield f"500 different items, {name}", {"items": kind, "uniqueItems": True, "minItems": 500, "maxItems": 500}
    pairs = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }
    yield "300 different objects", {"items": pairs, "uniqueItems": True, "minItems": 300}
    lists = {"items": {"items": {"enum": [0, 1]}, "maxItems": 12}, "uniqueItems": True, "maxItems": 500}
    yield "different lists of zeros and ones", lists
    nested: dict[str, Any] = {"items": {"type": "boolean"}, "uniqueItems": True}
    for _ in range(6):
        nested = {"items": nested, "uniqueItems": True}
    yield "different lists of different lists", nested
    yield (
        "prefixItems of 10 that differ",
        {
            "prefixItems": [{"enum": list(range(n, 20 + n))} for n in range(10)],
            "uniqueItems": True,
            "minItems": 10,
        },
    )
    yield (
        "keys of 300 characters, 300 times",
        {
            "type": "object",
            "propertyNames": {"pattern": "^(?:ab|ba){150}$"},
            "minProperties": 300,
        },
    )
